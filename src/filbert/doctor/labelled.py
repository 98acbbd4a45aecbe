"""A labelled file of any task comes in; findings on its labels, its ids and what its task checks go out, by line."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from filbert.core.errors import InputError, did_you_mean
from filbert.core.records import Example
from filbert.doctor import checks
from filbert.doctor.findings import Notebook
from filbert.forms import datasets, label_sets
from filbert.forms.formats import Shape, table_rows
from filbert.forms.spec import FileSpec
from filbert.text.streams import Reading

FEW_EXAMPLES, LARGEST_SHARE, UNEVEN = 5, 0.9, 100
ID_NAMES = ("id", "guid", "idx", "qid", "pairid", "pair_id", "question_id", "query_id")


def examine_labelled(
    path: str,
    spec: FileSpec,
    columns: Mapping[str, str | int] | None,
    form: Shape,
    texts: checks.Texts,
    reading: Reading,
) -> None:
    """Reads the file as data of the task and writes down what is wrong in the notebook of `texts`."""
    labels, num_labelled = _Labels(path, spec, texts), 0
    for example in datasets.file_examples(path, spec, columns, reading):
        checked = _checked(path, spec, example)
        texts.look(checked)
        labels.add(example.gold, checked)
        num_labelled += example.gold is not None
        for remark in spec.check(example):
            texts.warn(checked, remark.message, remark.kind, remark.severity)
    texts.tell("examples")
    texts.tell_near()
    if not texts.num_texts:
        return
    if num_labelled < texts.num_texts:
        message = f"{texts.num_texts - num_labelled:,} examples have no label and can only be predicted."
        texts.notebook.add("note", 0, message)
    if num_labelled:
        labels.tell()
    quiet = Reading(reading.encoding, "replace", fault=lambda *_: None)
    if form.kind in spec.forms:
        for remark in spec.forms[form.kind].check(path, quiet):
            texts.notebook.add(remark.severity, remark.line, remark.message, remark.kind)
    _examine_ids(_ids(path, spec, form, quiet), texts.notebook)


def _checked(path: str, spec: FileSpec, example: Example) -> checks.Example:
    """What the checks need of an example."""
    place = f"{path}:{example.line}" if example.line else f"{path} example {example.id + 1}"
    return checks.Example(example.texts, example.line, place, *spec.gold_key(example.gold), spec.mentions(example))


# -- labels ------------------------------------------------------------------------------------------------------


class _Labels:
    """The labels of one file, where each stands first, and how they compare with those of the first file."""

    def __init__(self, path: str, spec: FileSpec, texts: checks.Texts) -> None:
        self.path, self.spec, self.texts, self.notebook = path, spec, texts, texts.notebook
        self.counts: Counter[str] = Counter()
        self.lines: dict[str, int] = {}
        self.tallies: Counter[str] = Counter()  # of what golds are, as the task counts it

    def add(self, gold: object, seen: checks.Example) -> None:
        """The labels of one example."""
        for label in self.spec.labels(gold):
            self.counts[label] += 1
            self.lines.setdefault(label, seen.line)
            if not label.strip():
                self.texts.warn(seen, "the label is empty; give it one, or remove the row.", "empty label", "error")
            elif label != label.strip():
                message = f"the label {label!r} has white space around it; remove it (--fix does)."
                self.texts.warn(seen, message, "a label has white space around it")
        self.tallies.update(what for what, is_counted in self.spec.tallies.items() if is_counted(gold))

    def tell(self) -> None:
        """What is to be said of them once the file is read."""
        for what in self.spec.tallies:
            if self.tallies[what]:
                self.notebook.add("note", 0, f"{self.tallies[what]:,} {what}")
        if not self.counts:
            if self.spec.no_labels:
                severity = "error" if self.texts.seen.first_labels is None else "warning"
                self.notebook.add(severity, 0, self.spec.no_labels)
            return
        advice = self.spec.number_advice
        numbers = label_sets.numbers(self.counts) if advice is not None else None
        if advice is not None and numbers is not None:
            self._tell_numbers(numbers, advice)
        else:
            self._tell_names()

    def _tell_numbers(self, numbers: Mapping[str, float], advice: Callable[[bool], str]) -> None:
        fine = {label: value for label, value in numbers.items() if math.isfinite(value)}
        message = label_sets.number_range(self.counts, numbers)
        self.notebook.add("note", 0, f"{message}: {advice(label_sets.are_measured(fine))}.")
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
        if not self.spec.has_one_label:
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
        first, allowed = self.texts.seen.first_labels
        for label, count in self.counts.items():
            if label not in allowed:
                message = (
                    f"the label {label!r} ({_times(count)}, first here) is not one of the {len(allowed)} in {first}; "
                    f"correct it or train with it.{did_you_mean(label, allowed)}"
                )
                self._at(label, "error", message, f"a label is not in {first}")

    def _at(self, label: str, severity: str, message: str, kind: str = "") -> None:
        self.notebook.add(severity, self.lines[label], message, kind)


def _times(count: int) -> str:
    return f"{count:,} time{'s' * (count > 1)}"


def _is_whole(label: str) -> bool:
    return label.removeprefix("-").isdigit()


# -- ids ---------------------------------------------------------------------------------------------------------


def _examine_ids(ids: Iterator[tuple[int, str]], notebook: Notebook) -> None:
    """Ids that stand twice: results cannot be told apart by them. One that mostly repeats is not an id."""
    first: dict[str, int] = {}
    twice: list[tuple[int, str, int]] = []
    total = 0
    for line, name in ids:
        total += 1
        if first.setdefault(name, line or total) != (line or total):
            twice.append((line, name, first[name]))
    if not twice or len(twice) > total / 2:
        return
    for line, name, before in twice:
        where = f"stands at line {before} too" if line else "stands twice"
        notebook.add("warning", line, f"the id {name!r} {where}; give each its own.", "an id stands twice")


def _ids(path: str, spec: FileSpec, form: Shape, reading: Reading) -> Iterator[tuple[int, str]]:
    """(line or 0, id) of each row, question or passage that has one."""
    try:
        if form.kind in spec.forms:
            yield from spec.forms[form.kind].ids(path, reading)
        elif (name := next((name for name in form.columns if name.lower() in ID_NAMES), None)) is not None:
            for line, row in table_rows(path, form, reading):
                value = row.get(name)
                if isinstance(value, (str, int)) and value != "":
                    yield line, str(value)
    except InputError:  # it is among the findings already
        return
