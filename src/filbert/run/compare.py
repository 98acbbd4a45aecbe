"""Comparison: the names of models, one text and one labelled set in; each trained alike, and one table and page out.

Every model has a folder of its own in the comparison's, with a run of pretraining, a run of fine-tuning and what was
measured (row.json). One that is done is not done again, and one that was killed goes on.
"""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filbert.builtin import model as builtin
from filbert.core.errors import InputError, one_of
from filbert.core.files import json_object, json_text, write_text
from filbert.core.records import Example, Prediction
from filbert.core.registry import members, model
from filbert.draw import html as page
from filbert.engine.reader import bound
from filbert.folder.folder import load
from filbert.forms import objects, sources, splits
from filbert.run import defaults
from filbert.run.finetune import finetune
from filbert.run.folders import CHECKPOINTS, VOCAB, digest
from filbert.run.new_models import NewModel
from filbert.run.pretrain import Corpus, prepared, pretrain, vocabulary
from filbert.run.recipe import compared_recipe
from filbert.tasks.task import Json
from filbert.text.streams import Reading
from filbert.text.tokenizer import Tokenizer
from filbert.train.scores import scored

ROW, TABLE, PAGE, PRETRAINED = "row.json", "comparison.json", "comparison.html", "pretrained"
ENCODER = ("embeddings.", "layers.", "final_norm.")
SENSES = ("苹果", "打", "行", "包", "bank", "apple")  # words of several senses: where they stand, models part
Row = dict[str, Any]  # row.json of a model
SHOWN = 40  # sentences on which the models part


@dataclass(frozen=True, kw_only=True)
class Contest:
    """What all models get alike."""

    task: str
    train: sources.Source
    test: sources.Source
    models: tuple[str, ...]  # files of models, folders, or builtin
    dev: sources.Source | float | None = None  # chooses the state that is measured; "10%" keeps a share of train back
    corpus: tuple[str, ...] = ()  # plain text to pretrain on; without it files of models begin from nothing
    tokens: int = defaults.COMPARED_TOKENS  # that each reads of it
    preset: str = defaults.PRESET
    vocab: str | None = None  # else one is trained on the corpus, or the built-in model's is taken
    settings: tuple[str, ...] = ()  # of all fine-tuning runs, and with pretrain. before them of all others
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("train", "test", "dev"):
            source = getattr(self, name)
            if name != "dev" or (source is not None and splits.share(source) is None):
                object.__setattr__(self, name, objects.kept(source, name))
        if not self.models:
            raise InputError("there is nothing to compare: name some models.")
        doubled = [name for name, count in Counter(map(_called, self.models)).items() if count > 1]
        if doubled:
            raise InputError(f"{doubled[0]} is named twice; each model has one row.")
        for name in self.models:
            if name not in members("models") and name != builtin.NAME and not Path(name).is_dir():
                raise one_of("a model to compare", name, (*members("models"), builtin.NAME, "a folder"))
        if type(self.tokens) is not int or self.tokens < 1:
            raise InputError(f"tokens is {self.tokens!r}, but must be a whole number of 1 or more.")
        self._check_used()

    def _check_used(self) -> None:
        """Refuses what is of new models, or of their pretraining, where there is none."""
        usual = {field.name: field.default for field in dataclasses.fields(self)}
        new = [name for name in self.models if name in members("models")]
        for name in ("corpus", "preset", "vocab"):
            if not new and getattr(self, name) != usual[name]:
                raise InputError(f"{name} is of new models, but all that are named are there; leave it out.")
        is_set = self.tokens != usual["tokens"], any(word.startswith("pretrain.") for word in self.settings)
        if any(is_set) and not (self.corpus and any(model(name).objective for name in new)):
            what = "tokens are" if is_set[0] else "settings of pretrain. are"
            raise InputError(
                f"{what} of pretraining, but no model is pretrained here; give a corpus, or leave them out."
            )


def _called(name: str) -> str:
    """The name of a model's row and folder."""
    return name if name in members("models") else Path(name).resolve().name


def compare(contest: Contest, out: Path | str, note: Callable[[str], None] = lambda line: None) -> dict[str, Any]:
    """Trains and measures one model after another, and writes comparison.json and comparison.html anew after each."""
    out = Path(out)
    data = _read(contest)
    tested = data.examples["test"]
    fields = {name: str(value) for name, value in vars(contest).items()}
    rows_of = {name: _digest_of(examples) for name, examples in data.examples.items()}
    identity = digest({name: value for name, value in (fields | rows_of).items() if name != "models"})
    for sentence in (sentence for sentences in data.met.values() for sentence in sentences):
        note(f"note: {sentence}")
    done = {name: _row(out / _called(name), identity) for name in contest.models}
    for name in contest.models:  # all are looked at before anything is made
        _row(out / _called(name) / PRETRAINED, identity)
    rows: list[dict[str, Any]] = []
    for name in contest.models:
        row = done[name]
        if row is None:
            note(f"{_called(name)} …")
            row = {"identity": identity, **_Row(contest, name, out, tested, identity, note).done()}
            write_text(out / _called(name) / ROW, json_text(row))
        rows.append(row)
        note(line_of(row))
        comparison = {
            "task": contest.task, "rows": rows, "sentences": overlaps(rows), "parted": parted(rows, tested),
            "reading": data.met,
        }  # fmt: skip
        write_text(out / TABLE, json_text(comparison))
        write_text(out / PAGE, _page(contest, comparison))
    return comparison


def _digest_of(examples: Sequence[Example]) -> str:
    return digest([[each.texts, repr(each.gold)] for each in examples])


@dataclass(frozen=True)
class Data:
    """The examples of train, dev and test, and notes from reading them, printed once for all runs."""

    examples: dict[str, list[Example]]
    met: dict[str, list[str]]


def _read(contest: Contest) -> Data:
    places: dict[str, Any] = {"train": contest.train, "dev": contest.dev, "test": contest.test}
    met: dict[str, list[str]] = {}
    data: dict[str, list[Example]] = {}
    for name, source in places.items():
        if source is not None and splits.share(source) is None:
            reading = Reading()
            data[name] = sources.read(contest.task, source, reading=reading)
            met |= {name: sentences} if (sentences := sources.met(source, reading)) else {}
    return Data(data, met)


def _row(folder: Path, identity: str) -> dict[str, Any] | None:
    """What row.json of a folder says; None where there is none. One of another comparison is refused."""
    path = folder / ROW
    if not path.exists():
        return None
    row = json_object(path)
    if row.get("identity") != identity:
        raise InputError(f"{path}: is of another comparison (other data or settings); choose another --out.")
    return row


class _Row:
    """One model: from the text to what it scores."""

    def __init__(
        self,
        contest: Contest,
        name: str,
        out: Path,
        tested: Sequence[Example],
        identity: str,
        note: Callable[[str], None],
    ) -> None:
        self.contest, self.name, self.out, self.tested, self.identity, self.note = (
            contest, name, out, tested, identity, note,
        )  # fmt: skip
        self.folder = out / _called(name)

    def done(self) -> dict[str, Any]:
        """Everything that its row says."""
        c = self.contest
        start, before = self._start()
        new = NewModel() if start is not None else NewModel(arch=self.name, preset=c.preset, vocab=self._vocabulary())
        started = time.perf_counter()
        tuned = self.folder / "tuned"
        settings = [word for word in c.settings if not word.startswith("pretrain.")]
        done = finetune(
            c.task, c.train, start, tuned, dev=c.dev, settings=settings, seed=c.seed, quiet=True,
            resume=(tuned / CHECKPOINTS).exists(), arch=new.arch, preset=new.preset, vocab=new.vocab,
        )  # fmt: skip
        after = {"steps": done.outcome.state.step, "seconds": round(time.perf_counter() - started, 1)}
        return {"model": _called(self.name), **self._sizes(), "pretrained": before, "tuned": after, **self._measured()}

    def _start(self) -> tuple[Path | str | None, dict[str, Any]]:
        """What fine-tuning begins with, none for a new model, and how that came about."""
        c = self.contest
        if self.name not in members("models"):
            return self.name, {"from": self.name}
        if not c.corpus or model(self.name).objective is None:
            return None, {}
        run = self.folder / PRETRAINED
        started = time.perf_counter()
        corpus = Corpus(sources=c.corpus, folder=self.out / "shards")
        words = Tokenizer.load(self._vocabulary() or "")
        shards = prepared(corpus, words, run)
        settings = [word.removeprefix("pretrain.") for word in c.settings if word.startswith("pretrain.")]
        recipe = compared_recipe(self.name, c.preset, words, settings, c.tokens, c.seed)
        before = _row(run, self.identity)
        if before is not None:  # it was pretrained before it was killed
            return run, {name: value for name, value in before.items() if name != "identity"}
        done = pretrain(shards, words, recipe, run, resume=(run / CHECKPOINTS).exists(), quiet=True)
        state = done.outcome.state
        held = {name: round(value, 4) for name, value in done.outcome.held.items() if name != "step"}
        row = {"steps": state.step, "tokens": state.tokens, "seconds": round(time.perf_counter() - started, 1), **held}
        write_text(run / ROW, json_text({"identity": self.identity, **row}))
        return run, row

    def _vocabulary(self) -> str | None:
        """Where that of new models lies, all the same one; none: the built-in model's."""
        c = self.contest
        if c.vocab or not c.corpus:
            return c.vocab
        vocabulary(Corpus(sources=c.corpus), defaults.VOCAB_SIZE, self.out, self.note)
        return str(self.out / VOCAB)

    def _sizes(self) -> dict[str, int]:
        model = load(self.folder / "tuned").model
        inside = {n: p.numel() for n, p in model.named_parameters() if n.startswith(ENCODER)}
        words = sum(size for name, size in inside.items() if name.startswith("embeddings.words"))
        return {"parameters": sum(inside.values()), "beside_words": sum(inside.values()) - words}

    def _measured(self) -> dict[str, Any]:
        """The task's measures on the test data with intervals, how fast it answers, and what it says of each."""
        loaded = load(self.folder / "tuned")
        task = bound(loaded, Tokenizer.load(loaded.folder)).items(self.tested)
        started = time.perf_counter()
        raw = scored(loaded.model, task, 16_384)
        took = time.perf_counter() - started
        scores = task.evaluated(raw)
        numbers = {key: value for key, value in scores.items() if isinstance(value, float)}
        return {
            "measure": task.watched if task.watched in numbers else next(iter(scores["intervals"])),
            "measures": numbers, "intervals": scores["intervals"], "rows_per_s": round(len(task) / took, 1),
            "said": [_gist(prediction) for prediction in task.predictions(raw)],
        }  # fmt: skip


def _gist(prediction: Prediction) -> str:
    """A prediction as a short text."""
    if prediction.text is not None:
        return str(prediction.text)
    if prediction.labels is not None:
        return ", ".join(prediction.labels)
    if prediction.label is not None:
        return str(prediction.label)
    return "; ".join(f"{span.start}-{span.end} {span.label}".rstrip() for span in prediction.spans)


def parted(rows: Sequence[Row], tested: Sequence[Example]) -> list[dict[str, Any]]:
    """The sentences that the models do not agree on: those with a word of several senses first, then the most split."""
    if len(rows) < 2:
        return []
    apart = []
    for place, example in enumerate(tested):
        answers = {row["model"]: row["said"][place] for row in rows}
        if len(set(answers.values())) > 1:
            several = [word for word in SENSES if word in example.texts[0]]
            entry = {"text": example.texts[0], "gold": str(example.gold), "said": answers, "senses": several}
            apart.append((not several, -len(set(answers.values())), place, entry))
    return [entry for *_, entry in sorted(apart, key=lambda each: each[:3])[:SHOWN]]


def overlaps(rows: Sequence[Row]) -> list[str]:
    """Which models' intervals overlap, so that the order of the table says less than it seems to."""
    edges = [(row["model"], *row["intervals"][row["measure"]]) for row in rows]
    pairs = [
        f"{one} and {two}"
        for (one, low, high), (two, least, most) in itertools.combinations(edges, 2)
        if low <= most and least <= high
    ]
    if not pairs:
        return ["No two intervals overlap."] if len(rows) > 1 else []
    return [
        f"The intervals of these overlap: {'; '.join(pairs)}. Which of two such models is better this test set alone "
        "does not say; measure them on more rows, or train each with several seeds."
    ]


HEAD = ("model", "score", "95 %", "parameters", "beside words", "tokens read", "pretrained, s", "tuned, s", "rows/s")


def cells(row: Row) -> list[str]:
    """A row of the table, as text."""
    low, high = row["intervals"][row["measure"]]
    before = row["pretrained"]
    return [
        row["model"], f"{100 * row['measures'][row['measure']]:.2f}", f"{100 * low:.2f}–{100 * high:.2f}",
        f"{row['parameters']:,}", f"{row['beside_words']:,}", f"{before['tokens']:,}" if "tokens" in before else "–",
        f"{before['seconds']:,.0f}" if "seconds" in before else "–", f"{row['tuned']['seconds']:,.0f}",
        f"{row['rows_per_s']:,.0f}",
    ]  # fmt: skip


def line_of(row: Row) -> str:
    """A row in one line."""
    name, score, spread, *_ = cells(row)
    size, speed = f"{row['parameters']:,} parameters", f"{row['rows_per_s']:,.0f} rows/s"
    return f"{name}: {row['measure']} {score} ({spread}), {size}, {speed}"


def _page(contest: Contest, comparison: Json) -> str:
    rows = comparison["rows"]
    models = [row["model"] for row in rows]
    about = {
        "task": contest.task, "learnt from": sources.called(contest.train), "measured on": sources.called(contest.test),
        "text": ", ".join(contest.corpus) or "none: files of models begin from nothing", "preset": contest.preset,
        "seed": contest.seed, "settings": ", ".join(contest.settings) or "the defaults",
    }  # fmt: skip
    split = []
    for one in comparison["parted"]:
        answers = [one["said"][name] for name in models]
        split.append([one["text"], one["gold"], *(f"{word} ✓" if word == one["gold"] else word for word in answers)])
    notes = "".join(f"<p>{page.text(sentence)}</p>" for sentence in comparison["sentences"])
    remarks = [remark for some in comparison["reading"].values() for remark in some]
    parts = [
        f"<header><h1>{page.text(f'{len(rows)} models, {contest.task}')}</h1></header>",
        page.section("The table", page.table(HEAD, [cells(row) for row in rows], range(1, len(HEAD))) + notes),
        page.section("Where they part", page.table(("text", "right", *models), split) if split else ""),
        page.section("What all of them had", page.pairs(about)),
        page.section("Notes", page.bullets(remarks)),
    ]
    return page.whole(f"compare: {contest.task}", parts)
