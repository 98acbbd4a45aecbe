"""Relations of two mentions: as of any label, but that simple models and lists see the mentions by themselves."""

from __future__ import annotations

from filbert.core.records import Example
from filbert.tasks.relation import files
from filbert.tasks.view import Labels


class Relations(Labels):
    """One relation for each two mentions."""

    def label(self, example: Example) -> str:
        """The relation."""
        return str(example.gold.label)

    def texts(self, example: Example) -> tuple[str, ...]:
        """Also both mentions, and what stands between them."""
        return with_between(example)

    def mentions(self, example: Example) -> tuple[str, ...]:
        """The words of both mentions."""
        return files.mentions(example)


def with_between(example: Example) -> tuple[str, ...]:
    """The text, both mentions, and what stands between them."""
    head, tail, text = example.gold.head, example.gold.tail, example.texts[0]
    between = text[min(head.end, tail.end) : max(head.start, tail.start)]
    return (text, *files.mentions(example), between)
