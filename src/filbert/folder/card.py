"""A model's card (README.md): fields of its folder in; Markdown out, whose sections can be renewed. No torch.

A card opens with a few lines that the Hugging Face hub reads; then a paragraph by the model's maker, and sections, each
under a heading of the second rank. Whoever learns more of the model later (a report, an export in eight bits) renews
the section that is theirs and leaves the others as they are, also where somebody edited them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from filbert.core.files import Json, write_text
from filbert.folder.manifest import CARD, seal

DATA, SCORES, EIGHT, LIMITS, LICENCE = "Data", "Scores", "In eight bits", "Limits", "Licence"
ORDER = (DATA, SCORES, EIGHT, LIMITS, LICENCE)  # of those sections that are ours
SHOWN_LABELS = 20
HEAD_BYTES = 64 * 2**10  # of another maker's card that are read
_HEADING = re.compile(r"^## +(.+?) *$", re.MULTILINE)
_LICENCE = re.compile(r"^licen[cs]e: *['\"]?([\w.+ -]{1,80}?)['\"]? *$", re.MULTILINE | re.IGNORECASE)


def made(fields: Json, card: str, answers: bool = False) -> str:
    """A short card: what the model is, how to use it, and what its maker says of it; a whole card stays as it is.

    answers: whether it was fine-tuned for a task.
    """
    if card.startswith(("---", "# ")):
        return card
    labels = list(fields.get("id2label", {}).values())
    what = fields.get("architectures", [fields["model_type"]])[0]
    lines = [
        "---",
        "library_name: filbert",
        "---",
        "",
        "# A model made with filbert",
        "",
        card or "No description.",
        "",
    ]
    lines += [f"- what: `{what}`, {fields['dtype']}"] + ([f"- labels: {listed(labels)}"] if labels else [])
    verb = "predict" if answers else "embed"
    lines += [f'- use: `filbert {verb} FOLDER --text …`, or `filbert.load("FOLDER")` in Python', ""]
    return "\n".join(lines)


def listed(names: Sequence[str], most: int = SHOWN_LABELS) -> str:
    """Names with commas between, and how many more there are."""
    shown = [" ".join(name.split()) for name in names[:most]]
    return ", ".join(shown) + (f" and {len(names) - most:,} more" if len(names) > most else "")


def bullets(lines: Iterable[str]) -> str:
    """One line for each."""
    return "\n".join(f"- {line}" for line in lines)


def table(rows: Sequence[Sequence[str]]) -> str:
    """The first row is the head; what would end a cell is written otherwise."""
    head, *others = [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows]
    lines = [head, ["---"] * len(head), *others]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def section(card: str, title: str) -> str:
    """What stands under a heading; empty where there is none."""
    place = _place(card, title)
    return card[place[0] : place[1]].partition("\n")[2].strip() if place else ""


def with_section(card: str, title: str, body: str) -> str:
    """The card with this section instead of the one of that title, or before the next of ours, or at the end."""
    new = f"## {title}\n\n{body.strip()}\n"
    place = _place(card, title)
    if place is None:
        later = ORDER[ORDER.index(title) + 1 :] if title in ORDER else ()
        begin = next((other_place[0] for other in later if (other_place := _place(card, other))), len(card))
        place = (begin, begin)
    before, after = card[: place[0]].rstrip(), card[place[1] :].strip()
    return "\n\n".join(part for part in (before, new.strip(), after) if part) + "\n"


def _place(card: str, title: str) -> tuple[int, int] | None:
    """Where a section begins, with its heading, and where it ends; lines within a code fence are no headings."""
    fences = [match.start() for match in re.finditer(r"^```", card, re.MULTILINE)]
    headings = [match for match in _HEADING.finditer(card) if sum(at < match.start() for at in fences) % 2 == 0]
    for match, following in zip(headings, [*headings, None][1:], strict=True):
        if match[1] == title:
            return match.start(), following.start() if following else len(card)
    return None


def renew(folder: Path, sections: Mapping[str, str], **stated: object) -> None:
    """Writes these sections into a folder's card, and seals the folder; `stated` goes into its manifest."""
    path = folder / CARD
    card = path.read_text(encoding="utf-8") if path.exists() else "# A model made with filbert\n"
    for title, body in sections.items():
        card = with_section(card, title, body)
    # A lone surrogate, which a text or a label from Python may hold, cannot be written.
    write_text(path, card.encode("utf-8", "replace").decode())
    seal(folder, **stated)


def licence_of(folder: Path) -> str:
    """What a folder's card says of its licence, as the hub reads it or in words; empty where it says nothing."""
    try:
        with (folder / CARD).open("rb") as handle:
            card = handle.read(HEAD_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
    _, _, front = card.partition("---\n")
    named = _LICENCE.search(front.partition("\n---")[0]) if card.startswith("---") else None
    if named:
        return named[1].strip()
    text = section(card, LICENCE) or section(card, "License")
    return " ".join(text.split("\n\n")[0].split())[:300]
