"""filbert demo: the built-in texts in; a BERT trained before your eyes, filled blanks, three models compared out."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from filbert.cli.shared import json_option, result, table, usual_task

if TYPE_CHECKING:
    from filbert.builtin.texts import SampleDocument
    from filbert.run.recipe import Recipe
    from filbert.text.tokenizer import Tokenizer
    from filbert.train.listeners import Entry

MARK = ".filbert-demo"
ABOUT_MARK = "`filbert demo` made this folder and may replace it.\n"
BARS = "▁▂▃▄▅▆▇█"
COMPARED, MOST_READ = ("word2vec", "gpt", "bert"), 100  # in the last act; tokens that each reads for each step
# Sentences about everyday things that stand nowhere in the built-in texts; the blank is one token.
BLANKS = (
    "今天天[MASK]很好，我们去公园散步。",
    "他每天早上六[MASK]起床跑步。",
    "火[MASK]站就在前面。",
    "The train leaves at seven in [MASK] morning.",
    "She went [MASK] the market to buy fish.",
)


@click.command("demo")
@click.option("--out", "-o", default="filbert-demo", show_default=True, help="Run folder to write.")
@click.option("--steps", default=2_400, show_default=True, type=click.IntRange(1), help="Training steps.")
@click.option("--seed", default=0, show_default=True, help="Fixes order, masks and first weights.")
@json_option
def command(out: str, steps: int, seed: int, as_json: bool) -> None:
    """Blanks filled by the model that ships; a tiny BERT trained on the texts that ship; three models compared.

    Some minutes on two cores. Nothing is downloaded.
    """
    show: Callable[[str], None] = (lambda line: None) if as_json else click.echo
    from filbert.builtin.model import is_there

    first = _answers("builtin", "The built-in model fills in blanks:", show) if is_there() else []
    train_texts, held_texts, about = _texts()
    show(f"\nNow the whole way by ourselves. {about}" if first else about)
    tokenizer = _vocabulary(train_texts, show)
    recipe = _recipe(tokenizer.vocab_size, steps, seed)
    with _held_folder(Path(out)):
        trained = _train((train_texts, held_texts), tokenizer, recipe, Path(out), show)
        answers = _answers(out, "Fill in the blank, by the minute-old model:", show)
        rows = _compared(Path(out), tokenizer, recipe, show)
    if as_json:
        result({"out": out, **trained, "blanks": answers, "builtin": first, "compared": rows})
    show(f"\nThe run is in {out}: report.html shows its course, {out}/model loads in transformers too. Try:")
    show(f'  filbert fill "我喜欢喝[MASK]" --model {out}')
    show(f'  filbert embed {out} --text "今天天气很好" --text "The weather is fine today"')
    show("  filbert pretrain YOUR-TEXTS --budget 25m --out my-bert")


@contextlib.contextmanager
def _held_folder(out: Path) -> Iterator[None]:
    """Makes room and holds it: what an earlier demo left is replaced; anything else is not touched."""
    import shutil

    from filbert.core.errors import InputError
    from filbert.core.files import locked_by_us, unwritten

    if out.exists() and any(out.iterdir()) and not (out / MARK).exists():
        raise InputError(f"{out}: is there already and is not what a demo left; choose another --out.")
    try:
        out.mkdir(parents=True, exist_ok=True)
        handle = os.open(out / MARK, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise InputError(unwritten(out, error)) from None
    try:
        if not locked_by_us(handle):
            raise InputError(f"{out}: another demo is at work here; wait until it ends, or choose another --out.")
        os.write(handle, ABOUT_MARK.encode() if not os.fstat(handle).st_size else b"")
        for name in ("checkpoints", "shards", "texts", "log.jsonl", "compared"):
            path = out / name
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        yield
    finally:
        os.close(handle)


def _texts() -> tuple[list[str], list[str], str]:
    """The texts to learn from, those kept back (every tenth document), and a line that tells of both."""
    from filbert.builtin.texts import sample

    documents = sample()
    held = documents[5::10]
    learnt = [d for i, d in enumerate(documents) if i % 10 != 5]
    topics = sorted({d.topic for d in documents})
    about = (
        f"Built-in texts: {sum(len(d.sentences) for d in documents):,} sentences in {len(documents)} documents, "
        f"Chinese and English, on {', '.join(topics)}; {len(held)} documents are kept back for measuring."
    )
    return [_joined(d) for d in learnt], [_joined(d) for d in held], about


def _joined(document: SampleDocument) -> str:
    return ("" if document.language == "zh" else " ").join(document.sentences)


def _vocabulary(texts: Sequence[str], show: Callable[[str], None]) -> Any:
    from filbert.text.tokenizer import Tokenizer
    from filbert.text.vocab import train

    start = time.perf_counter()
    report = train(texts, size=4_000)
    tokenizer = Tokenizer(report.tokens)
    show(f"Vocabulary: {tokenizer.vocab_size:,} tokens, trained in {time.perf_counter() - start:.1f} s.")
    shown = "我们坐高铁去旅行, we travelled by train"
    show(f"  {shown}  →  {' '.join(tokenizer.encode(shown).tokens[1:-1])}")
    return tokenizer


def _recipe(vocab_size: int, steps: int, seed: int) -> Any:
    from filbert.models import bert
    from filbert.run.recipe import Recipe, masked_words
    from filbert.train import loop, machine

    model = bert.Config(vocab_size=vocab_size, width=128, layers=2, heads=2, inner=512, max_length=128, dropout=0.0)
    return Recipe(
        model=model,
        # Twice BERT's 15 %: a run of one minute learns more from asking more.
        task=masked_words().config(max_length=64, mask_prob=0.3, seed=seed),
        train=loop.Config(
            steps=steps, batch_tokens=512, learning_rate=1e-3, seed=seed, checkpoint_every=max(1, steps // 2)
        ),
        # So small a model gains little from a second thread, and on a busy machine waiting for it costs much more.
        machine=machine.Config(device="cpu", threads=1),
    )


def _train(
    texts: tuple[list[str], list[str]], tokenizer: Tokenizer, recipe: Recipe, out: Path, show: Callable[[str], None]
) -> dict[str, Any]:
    """Trains, with the loss drawn as it falls, and measures on the texts kept back, before and after."""
    import torch

    from filbert.models import bert
    from filbert.run.pretrain import measure, pretrain
    from filbert.run.recipe import masked_words
    from filbert.train import machine
    from filbert.train.loop import StoppedError

    shards, kept = (_shards(part, out, name, tokenizer) for name, part in zip(("learnt", "kept"), texts, strict=True))
    torch.manual_seed(recipe.train.seed)
    parts = masked_words().items(kept.train.shards, tokenizer, recipe.task).parts
    untrained, one = bert.Bert(recipe.model, parts), machine.Config(threads=1)
    before = measure(untrained, kept.train.shards, tokenizer, recipe.task, one)
    shape = f"{recipe.model.layers} layers × {recipe.model.width}"
    objectives = f"masked words ({recipe.task.mask_prob:.0%} of them, twice BERT's share) and next sentences"
    show(f"Training a BERT of {shape} for {recipe.train.steps:,} steps on {objectives} …")
    watch = _watch(recipe.train.steps, show)
    try:
        finished = pretrain(shards, tokenizer, recipe, out, listener=watch, quiet=True)
    except StoppedError as stop:
        stop.args = (f"interrupted: {out}/checkpoints holds the run so far; the next demo begins anew.",)
        raise
    after = measure(finished.module, kept.train.shards, tokenizer, recipe.task, one)
    show(f"On the {len(texts[1])} documents kept back (the same blanks before and after):")
    rows = [("", "before", "after")]
    rows.append(("masked word, loss", f"{before['mlm_loss']:.2f}", f"{after['mlm_loss']:.2f}"))
    rows.append(("masked word, right", f"{before['mlm_accuracy']:.1%}", f"{after['mlm_accuracy']:.1%}"))
    rows.append(("next sentence, right", f"{before['nsp_accuracy']:.1%}", f"{after['nsp_accuracy']:.1%}"))
    show("\n".join("  " + line for line in table(rows).split("\n")))
    return {
        "steps": len(watch.losses),
        "seconds": round(watch.seconds, 1),
        "first_loss": watch.losses[0],
        "last_loss": sum(watch.losses[-20:]) / len(watch.losses[-20:]),
        "held_out": {"before": _numbers(before), "after": _numbers(after)},
    }


def _compared(out: Path, tokenizer: Tokenizer, recipe: Recipe, show: Callable[[str], None]) -> list[dict[str, Any]]:
    """Three models of the story on equal terms: the same text first, then the topics of the same sentences."""
    from filbert.builtin.texts import sample
    from filbert.core.files import write_text
    from filbert.run.compare import HEAD, Contest, cells, compare

    for name, is_kept in (("learnt", False), ("kept", True)):
        chosen = [d for place, d in enumerate(sample()) if (place % 10 == 5) == is_kept]
        rows = [(line, d.topic) for d in chosen for line in d.sentences]
        text = "".join(f"{line}\t{topic}\n" for line, topic in rows)
        write_text(out / "texts" / f"topics-{name}.tsv", text)
    tokenizer.save(out / "compared" / "words")
    steps, seed = recipe.train.steps, recipe.train.seed
    read = MOST_READ * steps
    show(f"\nThe story in three models, each reading {read:,} tokens of those texts and then learning their topics:")
    contest = Contest(
        task=usual_task(), train=str(out / "texts" / "topics-learnt.tsv"), test=str(out / "texts" / "topics-kept.tsv"),
        models=COMPARED, corpus=(str(out / "texts" / "learnt.txt"),), tokens=read, preset="tiny", seed=seed,
        vocab=str(out / "compared" / "words"), settings=(f"train.steps={max(1, steps // 12)}",
        "machine.device=cpu", "machine.threads=1", "pretrain.machine.device=cpu", "pretrain.machine.threads=1",
        "pretrain.train.batch_tokens=1024"),
    )  # fmt: skip
    compared = compare(contest, out / "compared")["rows"]
    show("\n".join("  " + line for line in table([HEAD, *(cells(row) for row in compared)]).split("\n")))
    show("  word2vec gives a word one vector wherever it stands; GPT reads what stands before it, BERT both sides.")
    return [{key: row[key] for key in ("model", "measures", "intervals", "parameters")} for row in compared]


def _shards(texts: Sequence[str], out: Path, name: str, tokenizer: Tokenizer) -> Any:
    """The texts as a file and as shards, by the same road that a corpus of any size takes."""
    from filbert.core.files import write_text
    from filbert.corpus.shards import Options, build

    path = out / "texts" / f"{name}.txt"
    path.parent.mkdir(exist_ok=True)
    write_text(path, "\n\n".join(texts) + "\n")
    return build([str(path)], tokenizer, out / "shards" / name, Options(held=0.0), workers=1)


def _numbers(measured: dict[str, float]) -> dict[str, float]:
    return {name: round(measured[name], 4) for name in ("mlm_loss", "mlm_accuracy", "nsp_accuracy")}


def _watch(steps: int, show: Callable[[str], None]) -> Any:
    """A listener that shows every step: a moving bar on a terminal, ten plain lines elsewhere."""
    from filbert.train.listeners import Silent

    class Watch(Silent):
        def __init__(self) -> None:
            self.losses, self.started_at = list[float](), time.perf_counter()
            self.seconds, self.num_tokens = 0.0, 0

        def step(self, entry: Entry) -> None:
            self.losses.append(entry["loss"])
            self.num_tokens += entry["tokens"]
            self.seconds = time.perf_counter() - self.started_at
            done = entry["step"]
            if sys.stdout.isatty():
                if done % 10 == 0 or done == steps:
                    click.echo(f"\r  {self.line(done)}", nl=done == steps)
            elif done % max(1, steps // 10) == 0:
                show(f"  {self.line(done)}")

        def line(self, step: int) -> str:
            recent = self.losses[-20:]
            pace = f"{self.num_tokens / max(self.seconds, 1e-9):,.0f} tokens/s  {self.seconds:.0f} s"
            return f"{step:5,}/{steps:,}  loss {sum(recent) / len(recent):.2f}  {spark(self.losses)}  {pace} "

    return Watch()


def spark(losses: Sequence[float], width: int = 24) -> str:
    """The course of the loss as a row of blocks, averaged to `width` places."""
    size = max(1, -(-len(losses) // width))
    means = [sum(losses[i : i + size]) / len(losses[i : i + size]) for i in range(0, len(losses), size)]
    low, high = min(means), max(means)
    steps = [round((mean - low) / (high - low or 1.0) * (len(BARS) - 1)) for mean in means]
    return "".join(BARS[step] for step in steps)


def _answers(model: str, title: str, show: Callable[[str], None]) -> list[dict[str, Any]]:
    from filbert.engine.model import load

    loaded = load(model)
    show(title)
    answers, rows = [], []
    for text in BLANKS:
        blank = loaded.fill(text, top=4)[0]
        rows.append((f"  {text}", "  ".join(f"{c.text} {c.score:.0%}" for c in blank.candidates)))
        answers.append({"text": text, "candidates": [[c.text, round(c.score, 4)] for c in blank.candidates]})
    show(table(rows))
    return answers
