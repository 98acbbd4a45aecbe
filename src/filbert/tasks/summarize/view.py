"""Summaries: what a model wrote in; the source's first sentence beside it, and the worst summaries, out."""

from __future__ import annotations

from filbert.tasks.summarize.items import first_sentence
from filbert.tasks.translate.view import Texts
from filbert.tasks.view import Beaten


class Summaries(Texts):
    """As of any written text, but beside the first sentence, which is hard to beat."""

    def simple(self) -> dict[str, Beaten]:
        """The source's first sentence."""
        leads = [first_sentence(example.texts[0]) for example in self.examples]
        return {"lead": self.against(leads, "the first sentence of the source")}
