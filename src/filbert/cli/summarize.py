"""filbert summarize: a model that sums up and texts in, their summaries out, in order."""

from __future__ import annotations

from filbert.cli.translate import writing

command = writing("summarize", "Sum texts up. However long, they are read whole.")
