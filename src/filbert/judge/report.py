"""A model's answers to labelled data, and the data it learnt from, in; an evaluation that does not flatter out.

To the metrics of a task come baselines with a test of the difference, calibration, rows that the training data hold too
with the score without them, probable label errors and the worst mistakes; each as numbers, and in words. What needs
data or a package that is not there says so in one line.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from filbert.core import registry
from filbert.core.errors import InputError, MissingExtra
from filbert.core.files import json_object, json_text, sha256, write_text
from filbert.core.records import Example
from filbert.forms import splits
from filbert.forms.near import Match, Neighbours
from filbert.tasks.task import AnyItems, TaskSpec
from filbert.tasks.view import Beaten, shown

FORMAT = "filbert report 1"
REPORT = "report.json"
LISTED, NUM_TEXTS = 20_000, 200  # rows of a list that are kept, and how many of them with their text
NO_TRAIN = "needs the training data: --train FILE"


@dataclass(frozen=True, slots=True)
class Measured:
    """Labelled data that a model has answered."""

    task: AnyItems  # made of the examples
    examples: Sequence[Example]
    raw: Sequence[Any]  # what the head said of each
    fits: bool = False  # whether they fitted the temperature, so that they cannot measure it


def report(
    name: str,
    measured: Mapping[str, Measured],
    train: Sequence[Example] | None = None,
    about: str = "",
    judges_train: bool = True,
    reading: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, Any]:
    """All evaluations by their names, such as "dev" and "test", and what there is to say of the training data.

    reading: what was passed over or mended in reading each of them.
    """
    spec = registry.task(name)
    found = {key: _Evaluation(spec, each) for key, each in measured.items()}
    for each in found.values():
        each.compare(train)
    told: dict[str, Any] = {"format": FORMAT, "task": name, "model": about, "evaluations": {}}
    told |= {"reading": {part: list(sentences) for part, sentences in reading.items()}} if reading else {}
    near = _neighbours(spec, [each.examples for each in measured.values()], train)
    begin = 0
    for key, each in found.items():
        each.leak(near, range(begin, begin + len(each.examples)), train)
        begin += len(each.examples)
        told["evaluations"][key] = each.told | {"sentences": each.sentences()}
    if train is not None and near is not None and judges_train:
        told["train"] = _trained(spec, found, near, train)
    return told


def _neighbours(
    spec: TaskSpec[Any], asked: Sequence[Sequence[Example]], train: Sequence[Example] | None
) -> Neighbours | None:
    """Rows that are alike in their texts and, where they speak of something in these, in that too."""
    if train is None:
        return None
    mentions = spec.files().mentions

    def keys(examples: Sequence[Example]) -> list[tuple[str, ...]]:
        return [(*example.texts, *mentions(example)) for example in examples]

    return Neighbours(keys([example for part in asked for example in part]), keys(train))


class _Evaluation:
    """One set of labelled data: `told` grows by what is found."""

    def __init__(self, spec: TaskSpec[Any], measured: Measured) -> None:
        self.spec, self.measured, self.examples = spec, measured, measured.examples
        self.task = measured.task
        self.told: dict[str, Any] = self.task.evaluated(measured.raw)
        self.view = spec.view(self.task, measured.raw, self.told)
        self.beaten: dict[str, Beaten] = {}
        # What every sentence below is about: score, interval, difference, and the score without repeated rows.
        self.told["measure"] = self.view.measure or next(iter(self.told["intervals"]), "")

    def compare(self, train: Sequence[Example] | None) -> None:
        """Baselines, calibration, label errors and mistakes."""
        told: dict[str, Any] = {}
        for wanted in (self.view.simple, lambda: self.view.learnt(train) if train is not None else {}):
            try:
                self.beaten |= wanted()
            except MissingExtra as error:
                told["missing"] = f"the TF-IDF baseline: {error}"
        for name, each in self.beaten.items():
            apart = each.difference
            more = {"difference": asdict(apart), "sentence": apart.sentence(CALLED.get(name, name))} if apart else {}
            told[name] = {**each.scores, "about": each.about, **more}
        if train is None and self.view.learns:
            told["missing"] = f"the baseline that learns {NO_TRAIN}"
        calibrated = self.view.calibration(self.measured.fits)
        self.told |= {"baselines": told} | ({"calibration": calibrated} if calibrated else {})
        others = [shares for each in self.beaten.values() for shares in each.shares]
        errors = self.view.errors(others)
        if errors is not None:
            self.told["errors"] = errors | {"ranked": _listed(errors["ranked"])}
        self.told["mistakes"] = list(itertools.islice(self.view.mistakes(), NUM_TEXTS))

    def leak(self, near: Neighbours | None, own: range, train: Sequence[Example] | None) -> None:
        """Rows that repeat the training data, and the score without them."""
        if near is None or train is None:
            self.told["leaks"] = {"missing": f"leakage {NO_TRAIN}"}
            return
        found = [Match(each.row - own.start, each.other - near.num_queries, each.kind) for each in near.leaks(own)]
        told = _matched(self.spec, found, self.examples, train)
        told |= {"share": len(found) / max(1, len(self.examples)), "compared": near.num_compared, "of": len(train)}
        leaked = {each.row for each in found}
        clean = [place for place in range(len(self.examples)) if place not in leaked]
        if leaked and clean:
            told["without"] = self._scores(clean)
        self.told["leaks"] = told

    def _scores(self, chosen: Sequence[int]) -> dict[str, Any]:
        """The task's metrics of some of the rows."""
        examples = [self.examples[place] for place in chosen]
        items = self.spec.items(examples, self.task.labels, self.task.tokenizer, self.task.config)
        told = items.evaluated([self.measured.raw[place] for place in chosen])
        return {name: told[name] for name in (*told["intervals"], "intervals")} | {"num_examples": len(chosen)}

    def sentences(self) -> list[str]:
        """What a reader must know, one sentence for each thing."""
        told = self.told
        found = [
            each["sentence"] for each in told["baselines"].values() if isinstance(each, dict) and "sentence" in each
        ]
        found += [each["missing"] for each in (told, told["baselines"]) if "missing" in each]
        found += [_leaked(told["leaks"], told)]
        if "calibration" in told:
            found.append(_calibrated(told["calibration"]))
        if told.get("errors", {}).get("num"):
            found.append(_suspected(told["errors"]))
        return found


CALLED = {
    "majority": "always the most frequent answer", "tfidf": "TF-IDF", "dictionary": "a dictionary",
    "lead": "the first sentence", "copy": "the source as it is",
}  # fmt: skip


def _trained(
    spec: TaskSpec[Any], found: Mapping[str, _Evaluation], near: Neighbours, train: Sequence[Example]
) -> dict[str, Any]:
    """What there is to say of the training data: rows that stand twice, and labels that are probably wrong."""
    repeats = near.repeats()
    told: dict[str, Any] = {"num_examples": len(train), "repeats": _matched(spec, repeats, train, train)}
    labels = [spec.gold_label(example) for example in train]
    conflicting = [each for each in repeats if labels[each.row] != labels[each.other]]
    told["repeats"]["conflicting"] = len(conflicting)
    told["repeats"]["examples"] = _pairs(spec, conflicting or repeats, train, train)
    told["sentences"] = [_repeated(told["repeats"], len(train))] if repeats else []
    first = next(iter(found.values()), None)
    try:
        errors = first.view.train_errors(train) if first is not None else None
    except MissingExtra as error:
        told["missing"] = f"label errors: {error}"
    else:
        if errors is not None:
            told["errors"] = errors | {"ranked": _listed(errors["ranked"])}
            told["sentences"] += [_suspected(errors)] if errors["num"] else []
    return told


def _matched(
    spec: TaskSpec[Any], found: Sequence[Match], ours: Sequence[Example], theirs: Sequence[Example]
) -> dict[str, Any]:
    kinds = {kind: sum(each.kind == kind for each in found) for kind in ("exact", "near")}
    return {"num": len(found), **kinds, "examples": _pairs(spec, found, ours, theirs)}


def _pairs(
    spec: TaskSpec[Any], found: Sequence[Match], ours: Sequence[Example], theirs: Sequence[Example]
) -> list[dict[str, Any]]:
    """Rows and what they repeat, the first with their texts."""
    mentions, listed = spec.files().mentions, []
    for each in found[:LISTED]:
        one, two = ours[each.row], theirs[each.other]
        row = shown(one, each.row, mentions(one)) | {"kind": each.kind}
        row |= {f"other_{name}": value for name, value in shown(two, each.other, mentions(two)).items()}
        gold = spec.gold_label(one)
        if isinstance(gold, str):
            row |= {"gold": gold, "other_gold": spec.gold_label(two)}
        listed.append(row)
    return _listed(listed)


def _listed(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """As many as a report holds; a text can be looked up, so only the first have theirs."""
    bare = [{name: value for name, value in row.items() if "text" not in name} for row in rows[NUM_TEXTS:LISTED]]
    return [*rows[:NUM_TEXTS], *bare]


# In words -------------------------------------------------------------------------------------------------------------


def _leaked(leaks: Mapping[str, Any], told: Mapping[str, Any]) -> str:
    if "missing" in leaks:
        return str(leaks["missing"])
    part = f" ({leaks['compared']:,} of {leaks['of']:,} were compared)" if leaks["compared"] < leaks["of"] else ""
    if not leaks["num"]:
        return f"no row repeats the training data{part}"
    kinds = f"{leaks['exact']:,} to the letter, {leaks['near']:,} nearly{part}"
    said = f"{leaks['num']:,} rows ({leaks['share']:.1%}) repeat the training data: {kinds}"
    if "without" not in leaks:
        return f"{said}; nothing is left without them"
    name = told["measure"]
    return f"{said}; without them {name} is {leaks['without'][name]:.4f} instead of {told[name]:.4f}"


def _calibrated(told: Mapping[str, Any]) -> str:
    before, after = told["before"]["ece"], told["after"]["ece"]
    if told["measured"].startswith("not fitted"):
        return f"calibration error {before:.4f}; a temperature was {told['measured']}"
    with_it = f"with a temperature of {told['temperature']:.2f} {after:.4f} ({told['measured']})"
    return f"calibration error {before:.4f}, {with_it}"


def _suspected(errors: Mapping[str, Any]) -> str:
    about = f" (about {errors['estimated']:,} are wrong by an estimate)" if "estimated" in errors else ""
    part = f" ({errors['of']:,} in all)" if errors.get("of", 0) > errors["checked"] else ""
    checked = f"{errors['num']:,} of {errors['checked']:,} gold answers that were checked{part}"
    return f"{checked} are worth a look{about}; the likeliest stand first"


def _repeated(repeats: Mapping[str, Any], total: int) -> str:
    said = f"{repeats['num']:,} of {total:,} training rows repeat an earlier one"
    return said + (f", {repeats['conflicting']:,} of them with another label" if repeats["conflicting"] else "")


# Files ----------------------------------------------------------------------------------------------------------------


def write(folder: Path | str, told: Mapping[str, Any]) -> Path:
    """Writes report.json into the folder, which is made if need be."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    # A lone surrogate, which a text from Python may hold, cannot be written.
    write_text(folder / REPORT, json_text(told).encode("utf-8", "replace").decode())
    return folder / REPORT


def remembered(sources: Sequence[Path], share: float | None, how: Mapping[str, Any]) -> dict[str, Any]:
    """What a recipe keeps of the training files, as "data": where they are, their fingerprints, how they were read.

    share: of the rows, that was kept back. Data that came from no file cannot be found again.
    """
    if not sources or not all(path.is_file() for path in sources):
        return {}
    files = [{"path": str(path.absolute()), "sha256": sha256(path)} for path in sources]
    read = {name: how[name] for name in ("columns", "encoding") if how.get(name)}
    return {"data": {"train": files, **read, **({"share": share} if share is not None else {})}}


def recalled(recipe: Path, read: Callable[..., list[Example]]) -> list[Example] | None:
    """The training data that a run's recipe remembers; None where it does not, or they are no longer what they were."""
    try:
        data = json_object(recipe).get("data") or {}
        files = [(Path(each["path"]), each["sha256"]) for each in data["train"]]
        if not files or not all(path.is_file() and sha256(path) == digest for path, digest in files):
            return None
        found = read([path for path, _ in files], columns=data.get("columns"), encoding=data.get("encoding"))
        return splits.split(found, data["share"])[0] if "share" in data else found
    except (InputError, KeyError, TypeError, AttributeError, OSError):
        return None
