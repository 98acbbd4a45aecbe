"""A labelled file of any task comes in; findings on its labels, spans, answers, choices and ids go out, by line."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from filbert.core.errors import InputError, did_you_mean
from filbert.core.records import Example, Span
from filbert.doctor import checks
from filbert.doctor.findings import Notebook
from filbert.forms import conll, datasets, label_sets, markup
from filbert.forms.formats import Shape, table_rows, whole_json
from filbert.text.streams import Reading

FEW_EXAMPLES, LARGEST_SHARE, UNEVEN = 5, 0.9, 100
ID_NAMES = ("id", "guid", "idx", "qid", "pairid", "pair_id", "question_id", "query_id")
ONE_LABEL = ("classify", "pair", "relation")  # tasks of examples with one label each


def examine_labelled(
    path: str, task: str, columns: Mapping[str, str | int] | None, form: Shape, reading: Reading, texts: checks.Texts
) -> None:
    """Reads the file as `task` and writes down what is wrong in the notebook of `texts`."""
    labels, num_labelled = _Labels(path, task, texts), 0
    for example in datasets.examples(path, task, columns, reading=reading):
        place = f"{path}:{example.line}" if example.line else f"{path} example {example.id + 1}"
        seen = checks.Example(example.texts, example.line, place, *said(example), _mentions(example))
        texts.look(seen)
        if task != "translate":  # what is to be written is no label
            labels.add(example.gold, seen)
        num_labelled += example.gold is not None
        if task == "tag":
            _examine_spans(example, seen, texts)
        elif task == "choose":
            _examine_choices(example, seen, texts)
    texts.tell("examples")
    texts.tell_near()
    if not texts.num_texts:
        return
    if num_labelled < texts.num_texts:
        message = f"{texts.num_texts - num_labelled:,} examples have no label and can only be predicted."
        texts.notebook.add("note", 0, message)
    if num_labelled:
        labels.tell()
    if form.kind == "conll":
        _examine_ends(path, reading.encoding, texts.notebook)
    _examine_ids(path, form, reading.encoding, texts.notebook)


def said(example: Example) -> tuple[str | None, str, bool]:
    """(the label, what else makes it differ from another of the same texts, whether the label can be shown)."""
    gold = example.gold
    if isinstance(gold, markup.Relation):  # one text has many relations; only the same two mentions are a duplicate
        return gold.label, f"{gold.head.start} {gold.head.end} {gold.tail.start} {gold.tail.end}", True
    if gold is None or isinstance(gold, str):
        return gold, "", True
    if isinstance(gold, tuple) and gold and all(isinstance(label, str) for label in gold):
        return ", ".join(sorted(label.strip() for label in gold)), "", True
    return f"{checks.hashed(repr(gold)):x}", "", False


def _mentions(example: Example) -> tuple[str, ...]:
    gold = example.gold
    spans = (gold.head, gold.tail) if isinstance(gold, markup.Relation) else ()
    return tuple(example.texts[0][span.start : span.end] for span in spans)


# -- labels ------------------------------------------------------------------------------------------------------


class _Labels:
    """The labels of one file, where each stands first, and how they compare with those of the first file."""

    def __init__(self, path: str, task: str, texts: checks.Texts) -> None:
        self.path, self.task, self.texts, self.notebook = path, task, texts, texts.notebook
        self.counts: Counter[str] = Counter()
        self.lines: dict[str, int] = {}
        self.num_unanswerable = self.num_unplaced = 0

    def add(self, gold: Any, seen: checks.Example) -> None:
        """The labels of one example."""
        for label in markup.labels_of(gold):
            self.counts[label] += 1
            self.lines.setdefault(label, seen.line)
            if not label.strip():
                self.texts.warn(seen, "the label is empty; give it one, or remove the row.", "empty label", "error")
            elif label != label.strip():
                message = f"the label {label!r} has white space around it; remove it (--fix does)."
                self.texts.warn(seen, message, "a label has white space around it")
        if self.task == "answer" and isinstance(gold, tuple):
            self.num_unanswerable += not gold
            self.num_unplaced += bool(gold) and all(answer.start < 0 for answer in gold)

    def tell(self) -> None:
        """What is to be said of them once the file is read."""
        if self.num_unanswerable:
            self.notebook.add("note", 0, f"{self.num_unanswerable:,} questions have no answer.")
        if self.num_unplaced:
            message = (
                f"{self.num_unplaced:,} questions have no answer that stands in the context: none is learnt there."
            )
            self.notebook.add("note", 0, message)
        if not self.counts:
            if self.task == "tag":
                message = "no example has an entity; are they in another column, or written another way?"
                self.notebook.add("error" if self.texts.seen.first_labels is None else "warning", 0, message)
            return
        numbers = label_sets.numbers(self.counts) if self.task == "pair" else None
        if numbers is not None:
            self._tell_numbers(numbers)
        else:
            self._tell_names()

    def _tell_numbers(self, numbers: Mapping[str, float]) -> None:
        fine = {label: value for label, value in numbers.items() if math.isfinite(value)}
        message = label_sets.number_range(self.counts, numbers)
        how = "pair learns one number" if label_sets.are_measured(fine) else "fine-tune with --set task.answer=number"
        self.notebook.add("note", 0, f"{message}: {how}.")
        for label in numbers.keys() - fine.keys():
            message = f"the label {label!r} ({_times(self.counts[label])}, first here) is no number, as the others are"
            self._at(label, "error", f"{message}; correct it or remove the row.", "a label is no number")

    def _tell_names(self) -> None:
        shown = ", ".join(f"{label} ({count:,})" for label, count in self.counts.most_common(20))
        more = f" and {len(self.counts) - 20} more" if len(self.counts) > 20 else ""
        self.notebook.add("note", 0, f"{len(self.counts)} label{'s' * (len(self.counts) > 1)}: {shown}{more}.")
        for group in datasets.near_duplicates(self.counts):
            listed = " and ".join(f"{label!r} ({self.counts[label]:,})" for label in group)
            message = f"the labels {listed} differ only by case, width or white space; write them alike."
            self._at(min(group, key=self.counts.__getitem__), "error", message)
        self._tell_rare()
        self._tell_balance()
        self._compare()

    def _tell_rare(self) -> None:
        usual = [label for label, count in self.counts.items() if count >= FEW_EXAMPLES]
        for label, count in self.counts.items():
            if count < FEW_EXAMPLES:
                hint = did_you_mean(label, usual) if not label.isdigit() else ""
                message = (
                    f"the label {label!r} stands only {_times(count)}; correct it, or give it more examples.{hint}"
                )
                self._at(label, "warning", message, "a label stands fewer than 5 times")

    def _tell_balance(self) -> None:
        if self.task not in ONE_LABEL:
            return
        total, (largest, count) = self.counts.total(), self.counts.most_common(1)[0]
        rarest = min(self.counts, key=self.counts.__getitem__)
        if len(self.counts) == 1:
            message = f"every example has the label {largest!r}; at least two are needed to learn from."
            self.notebook.add("warning", 0, message)
        elif count > LARGEST_SHARE * total:
            share = f"{100 * count / total:.0f} % of the examples"
            message = f"the label {largest!r} stands on {share}: to say it always scores as much; look at F1 instead."
            self.notebook.add("warning", 0, message)
        elif count >= UNEVEN * self.counts[rarest]:
            message = f"the label {largest!r} stands {count // self.counts[rarest]:,} times as often as {rarest!r}"
            self.notebook.add("note", 0, f"{message}: accuracy hides how rare labels fare; look at macro F1.")
        if "-1" in self.counts and all(_is_whole(label) for label in self.counts):
            message = f"the label -1 ({_times(self.counts['-1'])}, first here) often stands for no label"
            self._at("-1", "warning", f"{message}; if it does, remove these rows, for it is learnt as any other.")

    def _compare(self) -> None:
        if self.texts.seen.first_labels is None:
            self.texts.seen.first_labels = (self.path, self.counts)
            return
        first, known = self.texts.seen.first_labels
        for label, count in self.counts.items():
            if label not in known:
                message = (
                    f"the label {label!r} ({_times(count)}, first here) is not one of the {len(known)} in {first}; "
                    f"correct it or train with it.{did_you_mean(label, known)}"
                )
                self._at(label, "error", message, f"a label is not in {first}")

    def _at(self, label: str, severity: str, message: str, kind: str = "") -> None:
        self.notebook.add(severity, self.lines[label], message, kind)


def _times(count: int) -> str:
    return f"{count:,} time{'s' * (count > 1)}"


def _is_whole(label: str) -> bool:
    return label.removeprefix("-").isdigit()


# -- spans and choices ---------------------------------------------------------------------------------------------


def _examine_spans(example: Example, seen: checks.Example, texts: checks.Texts) -> None:
    text, spans = example.texts[0], [span for span in example.gold or () if isinstance(span, Span)]
    for span in spans:
        stretch = text[span.start : span.end]
        if stretch != stretch.strip():
            message = f"the entity {_called(span)} has white space at its edge; leave it out (--fix does)."
            texts.warn(seen, message, "an entity has white space at its edge")
    reach: Span | None = None  # the one that ends last so far: a later one that begins within it meets it
    for span in sorted(spans, key=lambda span: (span.start, -span.end)):
        if reach is not None and span.start < reach.end:
            is_nested = span.end <= reach.end
            what = "stands within" if is_nested else "crosses"
            message = f"the entity {_called(span)} {what} {_called(reach)}"
            advice = "tags can say only one of them" if is_nested else "correct one of them"
            texts.warn(seen, f"{message}: {advice}.", "entities overlap; tags can say only one of them")
        if reach is None or span.end > reach.end:
            reach = span


def _called(span: Span) -> str:
    return f"{span.label} {span.start}:{span.end}"


def _examine_choices(example: Example, seen: checks.Example, texts: checks.Texts) -> None:
    choices = [choice.strip() for choice in example.texts[2:]]
    twice = next((choice for choice, count in Counter(choices).items() if count > 1), None)
    if len(choices) < 2:
        texts.warn(seen, f"has {len(choices)} choices; at least two are needed.", "too few choices", "error")
    elif twice is not None:
        message = f"the choice {twice[:30]!r} stands twice; write each once."
        texts.warn(seen, message, "a choice stands twice")
    if isinstance(example.gold, int) and not 0 <= example.gold < len(choices):
        message = f"the answer is choice {example.gold} counted from 0, but there are {len(choices)}."
        texts.warn(seen, message, "the answer is not a choice", "error")


def _examine_ends(path: str, encoding: str, notebook: Notebook) -> None:
    """Where tags say how entities end (E-, S-), one that begins and is not ended is a slip of the annotator."""
    sentences = list(conll.sentences(path, Reading(encoding, "replace", fault=lambda *_: None)))
    letters = {tag[0] for found in sentences for tag in found.tags if tag[1:2] in ("-", "_")}
    if not letters & set(markup.ENDS):
        return
    for found in sentences:
        for line, tag, following in zip(found.lines, found.tags, [*found.tags[1:], "O"], strict=True):
            goes_on = following[0] in markup.INSIDE + markup.ENDS and following[2:] == tag[2:]
            if tag[1:2] in ("-", "_") and tag[0] in markup.BEGINS + markup.INSIDE and not goes_on:
                message = f"{tag} is not followed by the end of its entity, as elsewhere in the file; write E- or S-."
                notebook.add("warning", line, message, "an entity is not ended")


# -- ids ---------------------------------------------------------------------------------------------------------


def _examine_ids(path: str, form: Shape, encoding: str, notebook: Notebook) -> None:
    """Ids that stand twice: results cannot be told apart by them. One that mostly repeats is not an id."""
    reading = Reading(encoding, "replace", fault=lambda *_: None)
    first: dict[Any, int] = {}
    twice: list[tuple[int, str, int]] = []
    total = 0
    for line, found in _ids(path, form, reading):
        total += 1
        if first.setdefault(found, line or total) != (line or total):
            twice.append((line, found, first[found]))
    if not twice or len(twice) > total / 2:
        return
    for line, found, before in twice:
        where = f"stands at line {before} too" if line else "stands twice"
        notebook.add("warning", line, f"the id {found!r} {where}; give each its own.", "an id stands twice")


def _ids(path: str, form: Shape, reading: Reading) -> Iterator[tuple[int, str]]:
    """(line or 0, id) of each row, question or passage that has one."""
    try:
        if form.kind == "squad":
            for asked in _questions(whole_json(path, reading)):
                yield from ((0, str(asked["id"])) for _ in range("id" in asked))
        elif form.kind == "choices":
            for entry in whole_json(path, reading):
                yield from ((0, str(entry[2])) for _ in range(isinstance(entry, list) and len(entry) > 2))
        elif (name := next((name for name in form.columns if name.lower() in ID_NAMES), None)) is not None:
            for line, row in table_rows(path, form, reading):
                value = row.get(name)
                if isinstance(value, (str, int)) and value != "":
                    yield line, str(value)
    except InputError:  # what cannot be read was told already
        return


def _questions(value: Any) -> Iterator[Mapping[str, Any]]:
    for article in _held(value, "data"):
        for paragraph in _held(article, "paragraphs"):
            yield from _held(paragraph, "qas")


def _held(holder: Mapping[str, Any], name: str) -> Iterator[Mapping[str, Any]]:
    items = holder.get(name, ())
    return (item for item in itertools.chain(items if isinstance(items, list) else ()) if isinstance(item, Mapping))
