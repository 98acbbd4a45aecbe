"""Every label of a text as a question, where a blank is filled: the head reads the vectors of the blanks alone."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from filbert.tasks.question import Labels


class Blanks(Labels):
    """Every label, by its words."""

    def read_from(self) -> npt.NDArray[np.float32]:
        """[R] the blanks."""
        return self.rows_of("blank_rows")
