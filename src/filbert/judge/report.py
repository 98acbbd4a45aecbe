"""A model's answers to labelled data, and its training data, in; an evaluation report out.

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
from filbert.tasks.task import AnyItems, AnySpec, Json, Report
from filbert.tasks.view import Beaten, shown

FORMAT = "filbert report 1"
REPORT = "report.json"
LISTED, NUM_TEXTS = 20_000, 200  # rows of a list that are kept, and how many of them with their text
NO_TRAIN = "needs the training data: --train FILE"


@dataclass(frozen=True, slots=True)
class Measured:
    """Labelled data with a model's raw answers."""

    task: AnyItems  # made of the examples
    examples: Sequence[Example]
    raw: Sequence[Any]  # the head's output for each
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
    evaluations = {key: _Evaluation(spec, each) for key, each in measured.items()}
    for each in evaluations.values():
        each.compare(train)
    result: dict[str, Any] = {"format": FORMAT, "task": name, "model": about, "evaluations": {}}
    result |= {"reading": {part: list(sentences) for part, sentences in reading.items()}} if reading else {}
    near = _neighbours(spec, [each.examples for each in measured.values()], train)
    begin = 0
    for key, each in evaluations.items():
        each.leak(near, range(begin, begin + len(each.examples)), train)
        begin += len(each.examples)
        result["evaluations"][key] = each.scores | {"sentences": each.sentences()}
    if train is not None and near is not None and judges_train:
        result["train"] = _trained(spec, evaluations, near, train)
    return result


def _neighbours(
    spec: AnySpec, measured: Sequence[Sequence[Example]], train: Sequence[Example] | None
) -> Neighbours | None:
    """Rows that are alike in their texts and, where they speak of something in these, in that too."""
    if train is None:
        return None
    mentions = spec.files().mentions

    def keys(examples: Sequence[Example]) -> list[tuple[str, ...]]:
        return [(*example.texts, *mentions(example)) for example in examples]

    return Neighbours(keys([example for part in measured for example in part]), keys(train))


class _Evaluation:
    """The evaluation of one set of labelled data; `scores` is its report."""

    def __init__(self, spec: AnySpec, measured: Measured) -> None:
        self.spec, self.measured, self.examples = spec, measured, measured.examples
        self.task = measured.task
        self.scores: dict[str, Any] = self.task.evaluated(measured.raw)
        self.view = spec.view(self.task, measured.raw, self.scores)
        self.beaten: dict[str, Beaten] = {}
        # What every sentence below is about: score, interval, difference, and the score without repeated rows.
        self.scores["measure"] = self.view.measure or next(iter(self.scores["intervals"]), "")

    def compare(self, train: Sequence[Example] | None) -> None:
        """Baselines, calibration, label errors and mistakes."""
        baselines: dict[str, Any] = {}
        for wanted in (self.view.simple, lambda: self.view.learnt(train) if train is not None else {}):
            try:
                self.beaten |= wanted()
            except MissingExtra as error:
                baselines["missing"] = f"the TF-IDF baseline: {error}"
        for name, each in self.beaten.items():
            apart = each.difference
            more = {"difference": asdict(apart), "sentence": apart.sentence(CALLED.get(name, name))} if apart else {}
            baselines[name] = {**each.scores, "about": each.about, **more}
        if train is None and self.view.learns:
            baselines["missing"] = f"the baseline that learns {NO_TRAIN}"
        calibrated = self.view.calibration(self.measured.fits)
        self.scores |= {"baselines": baselines} | ({"calibration": calibrated} if calibrated else {})
        others = [shares for each in self.beaten.values() for shares in each.shares]
        errors = self.view.errors(others)
        if errors is not None:
            self.scores["errors"] = errors | {"ranked": _listed(errors["ranked"])}
        self.scores["mistakes"] = list(itertools.islice(self.view.mistakes(), NUM_TEXTS))

    def leak(self, near: Neighbours | None, rows: range, train: Sequence[Example] | None) -> None:
        """Rows that repeat the training data, and the score without them."""
        if near is None or train is None:
            self.scores["leaks"] = {"missing": f"leakage {NO_TRAIN}"}
            return
        matches = [Match(each.row - rows.start, each.other - near.num_queries, each.kind) for each in near.leaks(rows)]
        leaks = _matched(self.spec, matches, self.examples, train)
        leaks |= {"share": len(matches) / max(1, len(self.examples)), "compared": near.num_compared, "of": len(train)}
        leaked = {each.row for each in matches}
        clean = [place for place in range(len(self.examples)) if place not in leaked]
        if leaked and clean:
            leaks["without"] = self._scores(clean)
        self.scores["leaks"] = leaks

    def _scores(self, chosen: Sequence[int]) -> dict[str, Any]:
        """The task's metrics of some of the rows."""
        examples = [self.examples[place] for place in chosen]
        items = self.spec.items(examples, self.task.labels, self.task.tokenizer, self.task.config)
        scores = items.evaluated([self.measured.raw[place] for place in chosen])
        return {name: scores[name] for name in (*scores["intervals"], "intervals")} | {"num_examples": len(chosen)}

    def sentences(self) -> list[str]:
        """What a reader must know, one sentence for each thing."""
        scores = self.scores
        lines = [
            each["sentence"] for each in scores["baselines"].values() if isinstance(each, dict) and "sentence" in each
        ]
        lines += [each["missing"] for each in (scores, scores["baselines"]) if "missing" in each]
        lines += [_leaked(scores["leaks"], scores)]
        if "calibration" in scores:
            lines.append(_calibrated(scores["calibration"]))
        if scores.get("errors", {}).get("num"):
            lines.append(_suspected(scores["errors"]))
        return lines


CALLED = {
    "majority": "always the most frequent answer", "tfidf": "TF-IDF", "dictionary": "a dictionary",
    "lead": "the first sentence", "copy": "the source as it is",
}  # fmt: skip


def _trained(
    spec: AnySpec, evaluations: Mapping[str, _Evaluation], near: Neighbours, train: Sequence[Example]
) -> dict[str, Any]:
    """What there is to say of the training data: rows that stand twice, and labels that are probably wrong."""
    repeats = near.repeats()
    result: dict[str, Any] = {"num_examples": len(train), "repeats": _matched(spec, repeats, train, train)}
    labels = [spec.gold_label(example) for example in train]
    conflicting = [each for each in repeats if labels[each.row] != labels[each.other]]
    result["repeats"]["conflicting"] = len(conflicting)
    result["repeats"]["examples"] = _pairs(spec, conflicting or repeats, train, train)
    result["sentences"] = [_repeated(result["repeats"], len(train))] if repeats else []
    first = next(iter(evaluations.values()), None)
    try:
        errors = first.view.train_errors(train) if first is not None else None
    except MissingExtra as error:
        result["missing"] = f"label errors: {error}"
    else:
        if errors is not None:
            result["errors"] = errors | {"ranked": _listed(errors["ranked"])}
            result["sentences"] += [_suspected(errors)] if errors["num"] else []
    return result


def _matched(
    spec: AnySpec, matches: Sequence[Match], ours: Sequence[Example], theirs: Sequence[Example]
) -> dict[str, Any]:
    kinds = {kind: sum(each.kind == kind for each in matches) for kind in ("exact", "near")}
    return {"num": len(matches), **kinds, "examples": _pairs(spec, matches, ours, theirs)}


def _pairs(
    spec: AnySpec, matches: Sequence[Match], ours: Sequence[Example], theirs: Sequence[Example]
) -> list[dict[str, Any]]:
    """Rows and what they repeat, the first with their texts."""
    mentions, listed = spec.files().mentions, []
    for each in matches[:LISTED]:
        one, two = ours[each.row], theirs[each.other]
        row = shown(one, each.row, mentions(one)) | {"kind": each.kind}
        row |= {f"other_{name}": value for name, value in shown(two, each.other, mentions(two)).items()}
        gold = spec.gold_label(one)
        if isinstance(gold, str):
            row |= {"gold": gold, "other_gold": spec.gold_label(two)}
        listed.append(row)
    return _listed(listed)


def _listed(rows: Sequence[Json]) -> list[dict[str, Any]]:
    """As many as a report holds; a text can be looked up, so only the first have theirs."""
    bare = [{name: value for name, value in row.items() if "text" not in name} for row in rows[NUM_TEXTS:LISTED]]
    return [*rows[:NUM_TEXTS], *bare]


# In words -------------------------------------------------------------------------------------------------------------


def _leaked(leaks: Json, scores: Json) -> str:
    if "missing" in leaks:
        return str(leaks["missing"])
    part = f" ({leaks['compared']:,} of {leaks['of']:,} were compared)" if leaks["compared"] < leaks["of"] else ""
    if not leaks["num"]:
        return f"no row repeats the training data{part}"
    kinds = f"{leaks['exact']:,} to the letter, {leaks['near']:,} nearly{part}"
    sentence = f"{leaks['num']:,} rows ({leaks['share']:.1%}) repeat the training data: {kinds}"
    if "without" not in leaks:
        return f"{sentence}; nothing is left without them"
    name = scores["measure"]
    return f"{sentence}; without them {name} is {leaks['without'][name]:.4f} instead of {scores[name]:.4f}"


def _calibrated(calibration: Json) -> str:
    before, after = calibration["before"]["ece"], calibration["after"]["ece"]
    if calibration["measured"].startswith("not fitted"):
        return f"calibration error {before:.4f}; a temperature was {calibration['measured']}"
    with_it = f"with a temperature of {calibration['temperature']:.2f} {after:.4f} ({calibration['measured']})"
    return f"calibration error {before:.4f}, {with_it}"


def _suspected(errors: Json) -> str:
    about = f" (about {errors['estimated']:,} are wrong by an estimate)" if "estimated" in errors else ""
    part = f" ({errors['of']:,} in all)" if errors.get("of", 0) > errors["checked"] else ""
    checked = f"{errors['num']:,} of {errors['checked']:,} gold answers that were checked{part}"
    return f"{checked} are worth a look{about}; the likeliest stand first"


def _repeated(repeats: Json, total: int) -> str:
    sentence = f"{repeats['num']:,} of {total:,} training rows repeat an earlier one"
    return sentence + (f", {repeats['conflicting']:,} of them with another label" if repeats["conflicting"] else "")


# Files ----------------------------------------------------------------------------------------------------------------


def write(folder: Path | str, result: Report) -> Path:
    """Writes report.json into the folder, which is made if need be."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    # A lone surrogate, which a text from Python may hold, cannot be written.
    write_text(folder / REPORT, json_text(result).encode("utf-8", "replace").decode())
    return folder / REPORT


def remembered(sources: Sequence[Path], share: float | None, how: Mapping[str, object]) -> dict[str, Any]:
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
        examples = read([path for path, _ in files], columns=data.get("columns"), encoding=data.get("encoding"))
        return splits.split(examples, data["share"])[0] if "share" in data else examples
    except (InputError, KeyError, TypeError, AttributeError, OSError):
        return None
