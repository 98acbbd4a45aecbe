"""The data, report and base of a run's model in; the sections of the card in the model's folder out."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from filbert.builtin import model as builtin
from filbert.core import registry
from filbert.core.errors import InputError
from filbert.core.files import sha256
from filbert.core.records import Example
from filbert.corpus.shards import Shards, Split
from filbert.engine.reader import TASK
from filbert.folder import card
from filbert.folder.manifest import model_folder
from filbert.folder.weights import small_json
from filbert.forms import label_sets, sources
from filbert.forms.gold import labels_of
from filbert.judge.report import CALLED
from filbert.tasks.task import AnyItems, Json, Trait
from filbert.text.tokenizer import Tokenizer

LOOKED_AT, LOOKED_CHARS = 5_000, 2_000  # texts whose letters and lengths are counted, and characters of one
FEW = 20  # a label with fewer examples is named
RARE = 0.005  # a script with a smaller share of the letters is not named
SCRIPTS = {"CJK": "Han", "HIRAGANA": "Kana", "KATAKANA": "Kana"}  # Unicode's first word, where it is not the script's


@dataclass(frozen=True, kw_only=True)
class Learnt:
    """The data, report and base of a model for a task."""

    task: AnyItems  # the training data as their task: labels, tokenizer, config
    examples: Sequence[Example]  # that it learnt from
    named_sources: Mapping[str, sources.Source | None]  # train, dev and test as the user named them
    held: Mapping[str, Sequence[Example]]  # dev and test
    share: float | None  # of the training data, that was kept back as dev data
    report: Mapping[str, Any]  # report.json; empty where nothing was measured
    base: str  # the folder whose weights it began with; "" where they were random
    teacher: str = ""
    fixed: Sequence[str] = ()  # fields of the task that the user set


def of_task(folder: Path, learnt: Learnt) -> None:
    """Writes the card of a model for a task."""
    about = small_json(folder / TASK)
    texts = [text for example in learnt.examples for text in example.texts]
    sections = {
        card.DATA: _data(learnt, texts, bool(about.get("several"))),
        card.SCORES: _scores(learnt.report),
        card.LIMITS: card.bullets(_limits(learnt, about, texts)),
        card.LICENCE: _licence(learnt.base, learnt.teacher),
    }
    card.renew(folder, sections)


def of_reading(folder: Path, shards: Shards, held: Mapping[str, float], base: str, teacher: str = "") -> None:
    """Writes the card of a pretrained model."""
    report, corpus = shards.report, shards.meta["identity"]["corpus"]
    names = [Path(str(name)).name for name, *_ in corpus]
    rows = [["", "documents", "tokens"]]
    splits = {"learnt from": shards.train, "kept back, by the hash of the text": shards.held}
    rows += [[what, f"{each.num_documents:,}", f"{each.num_tokens:,}"] for what, each in splits.items()]
    dropped = {"the same text stood before": report.num_duplicate, "excluded": report.num_excluded}
    left = "; ".join(f"{count:,} documents were left out: {why}" for why, count in dropped.items() if count)
    data = [f"Read from: {card.listed([f'`{name}`' for name in names])}.", card.table(rows), left]
    measured = [[name.replace("_", " "), f"{value:.4f}"] for name, value in held.items() if name != "step"]
    scores = "Nothing was kept back, so nothing was measured."
    if measured:
        common = _commonest(shards)
        scores = card.table([["kept back", "score"], *measured, *common]) + (
            "\n\nMeans over documents of the same corpus; an interval is not known, and only exact duplicates were "
            "removed, so some sentences may stand on both sides."
        )
    limits = [
        f"{report.unknown_share:.2%} of the tokens of its corpus are unknown to the vocabulary ([UNK]).",
        "It knows what its corpus says, and no other kind of text; it shares the views and the gaps of that corpus.",
        "Its vectors were not trained for similarity or for a task: fine-tune it first.",
    ]
    sections = {card.DATA: "\n\n".join(filter(None, data)), card.SCORES: scores, card.LIMITS: card.bullets(limits),
                card.LICENCE: _licence(base, teacher)}  # fmt: skip
    card.renew(folder, sections)


def _commonest(shards: Shards) -> list[list[str]]:
    """What always naming the most frequent token of the training documents would have right of those kept back."""

    def counts(split: Split) -> Any:
        return sum(np.bincount(shard.ids, minlength=shards.vocab_size) for shard in split.shards)

    learnt, held = counts(shards.train), counts(shards.held)
    if not np.ndim(learnt) or not np.ndim(held):
        return []
    return [["accuracy of always naming the most frequent token", f"{held[learnt.argmax()] / held.sum():.4f}"]]


# Data -----------------------------------------------------------------------------------------------------------------


def _data(learnt: Learnt, texts: Sequence[str], several: bool) -> str:
    rows = [
        ["", "rows", "files, and their SHA-256"],
        ["learnt from", f"{len(learnt.examples):,}", _named(learnt, "train")],
    ]
    for name, examples in learnt.held.items():
        rows.append([f"measured on: {name}", f"{len(examples):,}", _named(learnt, name)])
    counts = _label_counts(learnt, several)
    lines = [card.table(rows)]
    if counts:
        lines.append(f"Rows of each label: {card.listed([f'{label}: {count:,}' for label, count in counts])}.")
    lengths = sorted(map(len, texts))
    half, longest = (lengths[len(lengths) // 2], lengths[-1]) if lengths else (0, 0)
    letters = ", ".join(f"{share:.0%} {script}" for script, share in _scripts(texts)) or "none"
    lines.append(f"Half of the texts have up to {half:,} characters, the longest {longest:,}. Letters: {letters}.")
    return "\n\n".join(lines)


def _named(learnt: Learnt, name: str) -> str:
    """The files of one part of the data."""
    if name == "dev" and learnt.share is not None:
        return f"{learnt.share:.3g} of the same rows, kept back by the hash of the text"
    source = learnt.named_sources.get(name)
    files = sources.files(source) if source is not None else []
    if not files or not all(path.is_file() for path in files):
        return "given in Python, not as a file"
    return ", ".join(f"{path.name} `{sha256(path)}`" for path in files)


def _label_counts(learnt: Learnt, several: bool) -> list[tuple[str, int]]:
    """How often each label is right in the training data, the most frequent first; none where gold is a number."""
    golds: Sequence[Any] = [example.gold for example in learnt.examples if example.gold is not None]
    if several:
        golds = label_sets.parted(golds)
    counts = Counter(label for gold in golds for label in labels_of(gold))
    return [] if len(learnt.task.labels) < 2 or len(counts) > max(10, len(golds) / 2) else counts.most_common()


def _sample(texts: Sequence[str]) -> list[str]:
    return [text[:LOOKED_CHARS] for text in texts[:: max(1, len(texts) // LOOKED_AT)]]


def _scripts(texts: Sequence[str]) -> list[tuple[str, float]]:
    """The scripts of the letters, with their shares, the most frequent first."""
    scripts: Counter[str] = Counter()
    for letter, count in Counter("".join(_sample(texts))).items():
        if letter.isalpha():
            word = unicodedata.name(letter, "UNKNOWN").split()[0]
            scripts[SCRIPTS.get(word, word.capitalize())] += count
    total = sum(scripts.values())
    return [(script, count / total) for script, count in scripts.most_common() if count / total >= RARE]


# Scores ---------------------------------------------------------------------------------------------------------------


def _scores(report: Mapping[str, Any]) -> str:
    """Every evaluation with its intervals, beside what simple models have."""
    lines = []
    for name, scores in report.get("evaluations", {}).items():
        rows = [[name, "score", "95 %"]]
        rows += [[measure, f"{scores[measure]:.4f}", f"{low:.4f} to {high:.4f}"]
                 for measure, (low, high) in scores["intervals"].items()]  # fmt: skip
        first = scores["measure"]
        for other, each in scores.get("baselines", {}).items():
            if isinstance(each, dict) and first in each:
                rows.append([f"{first} of {CALLED.get(other, other)}", f"{each[first]:.4f}", ""])
        lines += [card.table(rows), card.bullets(scores["sentences"])]
        if name == "dev":
            lines.append("The best state was chosen on dev, which flatters a little.")
    return "\n\n".join(lines) or "Not measured: the run had neither dev nor test data."


# Limits ---------------------------------------------------------------------------------------------------------------


def _limits(learnt: Learnt, about: Json, texts: Sequence[str]) -> list[str]:
    longest, several = about.get("max_length"), bool(about.get("several"))
    chooses = Trait.CHOOSES in registry.task(str(about.get("task"))).traits and not several
    chooses = chooses and len(learnt.task.labels) != 1
    lines = [f"It reads {longest} tokens at a time; a longer text is read whole, in windows."]
    if "overlap" not in about:
        lines = [f"It reads {longest} tokens; of a longer text, those around what is asked."]
    lines += _unknown(learnt.task.tokenizer, texts)
    lines.append("It never saw scripts, lengths or kinds of text other than those under Data; there, expect less.")
    if chooses:
        lines.append("It always chooses one of what it was given, also where none of it is right.")
    few = [f"{label}: {count}" for label, count in _label_counts(learnt, several) if count < FEW]
    if few:
        lines.append(f"Labels with fewer than {FEW} examples to learn from: {card.listed(few)}.")
    heat = about.get("temperature")
    if isinstance(heat, float) and heat != 1.0:
        lines.append(f"Its scores are divided by a temperature of {heat:.3g}, fitted on dev, before they are shares.")
    elif chooses:
        why = "there were no dev data to fit a temperature on"
        if "dev" in learnt.held:
            why = f"the {len(learnt.held['dev']):,} rows of dev data are too few to fit a temperature on"
        if "temperature" in learnt.fixed:
            why = "the user set the temperature"
        lines.append(f"Its probabilities were not calibrated: {why}.")
    return lines


def _unknown(tokenizer: Tokenizer, texts: Sequence[str]) -> list[str]:
    """A sentence on the characters of the training texts that are unknown to the vocabulary."""
    some = _sample(texts)
    pieces = tokenizer.pieces(some)
    lost: Counter[str] = Counter()
    owners = np.searchsorted(pieces.boundaries, np.flatnonzero(pieces.ids == tokenizer.unk_id), side="right") - 1
    for place, owner in zip(np.flatnonzero(pieces.ids == tokenizer.unk_id), owners, strict=True):
        lost[some[owner][pieces.starts[place] : pieces.ends[place]][:20]] += 1
    if not lost:
        return ["The vocabulary knows all characters that it learnt from; others become [UNK]."]
    shown = card.listed([f"`{piece}`" for piece, _ in lost.most_common(8)], 8)
    share = sum(lost.values()) / max(1, len(pieces.ids))
    return [f"{share:.2%} of the tokens that it learnt from are unknown to the vocabulary ([UNK]), e.g. {shown}."]


# Licence --------------------------------------------------------------------------------------------------------------


def _licence(base: str, teacher: str) -> str:
    """The licences of the folders that it came from; it has none of its own."""
    came = [f"It began with {_called(folder)}." for folder in [base] if folder]
    came += [f"Its teacher was {_called(folder)}." for folder in [teacher] if folder and folder != base]
    data = "The data that it learnt from have licences of their own: look at those before you pass it on."
    return " ".join(["No licence was given for this model.", *(came or ["Its weights began at random."]), data])


def _called(folder: str) -> str:
    """A folder's name and what its card says of its licence."""
    try:
        path = model_folder(folder)
    except InputError:  # it is gone by now
        path = Path(folder)
    is_ours = builtin.is_there() and path == builtin.folder()
    licence = card.licence_of(path)
    name = "the built-in model" if is_ours else f"`{path.resolve().name}`"
    return f"{name}, whose card {f'says of its licence: {licence}'.rstrip('.') if licence else 'names no licence'}"
