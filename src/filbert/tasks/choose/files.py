"""Questions with options to choose from come in; their columns, file forms, checks and repairs go out as FILES."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from filbert.core.records import Example
from filbert.forms.formats import Shape, whole_json
from filbert.forms.json_places import Change, Node, parsed, removal_changes, rewritten
from filbert.forms.spec import FileForm, FileSpec, Remark, RemovalReason, Roles, each_alone
from filbert.tasks.choose.reading import ANSWER, NUMBERED, choice_examples, rows
from filbert.text.streams import Reading

BEFORE = 2  # texts of an example that are not options: passage and question
QUESTION = 2  # the number of the question among the texts, which may be empty


def reads(roles: Roles, name: str) -> bool:
    """Whether a column is one of a question's options, which have no role of their own."""
    return "options" not in roles and NUMBERED.fullmatch(name.strip()) is not None


def num_tokens(counts: Sequence[int]) -> list[int]:
    """The tokens of passage and question with the longest option, with [CLS] and two [SEP]."""
    return [sum(counts[:BEFORE]) + max(counts[BEFORE:]) + 3] if len(counts) > BEFORE else each_alone(counts)


# -- file forms --------------------------------------------------------------------------------------------------


def shape_of_json(value: object) -> Shape | None:
    """C3's and DREAM's entries: the lines of a passage, its questions, an id."""
    if isinstance(value, list) and any(map(_is_entry, value)):
        return Shape("choices", description="C3/DREAM-style JSON: passages with questions and choices")
    return None


def _is_entry(entry: object) -> bool:
    return (
        isinstance(entry, list) and len(entry) > 1 and isinstance(entry[0], (list, str)) and isinstance(entry[1], list)
    )


def ids(source: str, reading: Reading) -> Iterator[tuple[int, str]]:
    """The ids of the passages of a file of that kind."""
    for entry in whole_json(source, reading):
        if isinstance(entry, list) and len(entry) > 2:
            yield 0, str(entry[2])


# -- checks and repairs ------------------------------------------------------------------------------------------


def check(example: Example) -> Iterator[Remark]:
    """Too few choices, one that stands twice, an answer that is none of them."""
    choices = [choice.strip() for choice in example.texts[BEFORE:]]
    twice = next((choice for choice, count in Counter(choices).items() if count > 1), None)
    if len(choices) < 2:
        yield Remark(f"has {len(choices)} choices; at least two are needed.", "too few choices", "error")
    elif twice is not None:
        yield Remark(f"the choice {twice[:30]!r} stands twice; write each once.", "a choice stands twice")
    if isinstance(example.gold, int) and not 0 <= example.gold < len(choices):
        message = f"the answer is choice {example.gold} counted from 0, but there are {len(choices)}."
        yield Remark(message, "the answer is not a choice", "error")


def repaired_choices(text: str, reason: RemovalReason) -> list[Change]:
    """Questions that stand twice taken out, and answers written as the choice that they are."""
    changes: list[Change] = []
    for entry in (node for node in parsed(text).items if len(node.items) >= 2):
        lines = entry.items[0].value
        passage = "\n".join(map(str, lines if isinstance(lines, list) else [lines]))
        removed: dict[int, str] = {}
        for number, question in enumerate(entry.items[1].items):
            choices, answer = question.held("choice"), question.held(ANSWER)
            if choices is None or answer is None or not all(isinstance(node.value, str) for node in choices.items):
                continue
            words = str(question.value.get("question", ""))
            texts = [node.value for node in choices.items]
            why = reason((passage, words, *texts), repr(answer.value), str(question.start)) if texts else ""
            if why:
                removed[number] = why
            elif isinstance(answer.value, str) and answer.value not in texts:
                changes += _chosen(text, answer, texts)
        changes += removal_changes(text, entry.items[1].items, removed)
    return changes


def _chosen(text: str, answer: Node, choices: Sequence[str]) -> list[Change]:
    """An answer that is a choice but for white space around it."""
    same = [choice for choice in choices if choice.strip() == answer.value.strip()]
    if len(same) != 1:
        return []
    what = "answer written as the choice that it is but for white space"
    return [Change(rewritten(text, answer, same[0]), what, repr(answer.value), repr(same[0]))]


FILES = FileSpec(
    task="choose",
    rank=6,
    roles=("context", "question", "options", "label"),
    optional=frozenset({"label"}),
    required=("context",),  # options may stand in columns of their own, and a context need not be asked about
    names={
        "context": ("context", "passage", "article", "text", "sent1"),
        "question": ("question", "query", "sent2"),
        "options": ("options", "choices", "choice", "endings"),
        "label": ("label", ANSWER),
    },
    tuple_roles=("context", "question", "options", "label"),
    reads=reads,
    rows=rows,
    forms={"choices": FileForm(read=choice_examples, ids=ids, repaired_json=repaired_choices, may_gain=True)},
    shape_of_json=shape_of_json,
    claims_names=lambda head: not head.names.isdisjoint({"options", "choices", "ending0"}),
    check=check,
    num_tokens=num_tokens,
    blank_text=QUESTION,
    keeps_blank=True,  # a choice is no text of its own
    strips_labels=False,  # they are compared with the options, white space and all
)
