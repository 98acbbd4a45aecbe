"""filbert demo: the built-in texts in; a vocabulary, a small BERT trained before your eyes, and filled blanks out."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from filbert.cli.shared import json_option, result, table

if TYPE_CHECKING:
    from filbert.builtin.texts import SampleDocument

BARS = "▁▂▃▄▅▆▇█"
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
    """The shortest honest path: train a vocabulary and a tiny BERT on the texts that ship, then fill in blanks.

    A minute or two on two cores. Nothing is downloaded.
    """
    show: Callable[[str], None] = (lambda line: None) if as_json else click.echo
    train_texts, held_texts, about = _texts()
    show(about)
    tokenizer = _vocabulary(train_texts, show)
    recipe = _recipe(tokenizer.vocab_size, steps, seed)
    told = _train(train_texts, held_texts, tokenizer, recipe, out, show)
    answers = _answers(out, show)
    if as_json:
        result({"out": out, **told, "blanks": answers})
    show(f"\nThe model is in {out}/model; transformers loads it too. Try it:")
    show(f'  filbert fill "我喜欢喝[MASK]" --model {out}')
    show(f'  filbert embed {out} --text "今天天气很好" --text "The weather is fine today"')


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
    from filbert.run import Recipe
    from filbert.tasks import mlm_nsp
    from filbert.train import loop

    model = bert.Config(vocab_size=vocab_size, width=128, layers=2, heads=2, inner=512, max_length=128, dropout=0.0)
    return Recipe(
        model=model,
        # Twice BERT's 15 %: a run of one minute learns more from asking more.
        task=mlm_nsp.Config(max_length=64, mask_prob=0.3, seed=seed),
        train=loop.Config(steps=steps, batch_tokens=512, learning_rate=1e-3, seed=seed),
    )


def _train(
    texts: Sequence[str], held: Sequence[str], tokenizer: Any, recipe: Any, out: str, show: Callable[[str], None]
) -> dict[str, Any]:
    """Trains, with the loss drawn as it falls, and measures on the texts kept back, before and after."""
    import torch

    from filbert.models import bert
    from filbert.run import measure, pretrain

    # So small a model gains little from a second thread, and on a busy machine waiting for it costs tens of times more.
    torch.set_num_threads(1)
    torch.manual_seed(recipe.train.seed)
    before = measure(bert.Bert(recipe.model, ("pooler", "mlm", "nsp")), held, tokenizer, recipe.task)
    shape = f"{recipe.model.layers} layers × {recipe.model.width}"
    asked = f"masked words ({recipe.task.mask_prob:.0%} of them, twice BERT's share) and next sentences"
    show(f"Training a BERT of {shape} for {recipe.train.steps:,} steps on {asked} …")
    watch = _Watch(recipe.train.steps, show)
    model = pretrain(texts, tokenizer, recipe, Path(out), watch)
    watch.finish()
    after = measure(model, held, tokenizer, recipe.task)
    show(f"On the {len(held)} documents kept back ({after.num_masked:,} masked words, the same before and after):")
    rows = [("", "before", "after")]
    rows.append(("masked word, loss", f"{before.mlm_loss:.2f}", f"{after.mlm_loss:.2f}"))
    rows.append(("masked word, right", f"{before.mlm_accuracy:.1%}", f"{after.mlm_accuracy:.1%}"))
    rows.append(("next sentence, right", f"{before.nsp_accuracy:.1%}", f"{after.nsp_accuracy:.1%}"))
    show("\n".join("  " + line for line in table(rows).split("\n")))
    return {
        "steps": len(watch.losses),
        "seconds": round(watch.seconds, 1),
        "first_loss": watch.losses[0],
        "last_loss": sum(watch.losses[-20:]) / len(watch.losses[-20:]),
        "held_out": {"before": _numbers(before), "after": _numbers(after)},
    }


def _numbers(measured: Any) -> dict[str, float]:
    return {name: round(getattr(measured, name), 4) for name in ("mlm_loss", "mlm_accuracy", "nsp_accuracy")}


class _Watch:
    """Hears of every step: a moving bar on a terminal, ten plain lines elsewhere."""

    def __init__(self, steps: int, show: Callable[[str], None]) -> None:
        self.steps, self.show, self.losses = steps, show, list[float]()
        self.begun, self.seconds, self.num_tokens = time.perf_counter(), 0.0, 0
        self.on_terminal = sys.stdout.isatty()

    def __call__(self, step: Any) -> None:
        """Draws it."""
        self.losses.append(step.loss)
        self.num_tokens += step.num_tokens
        self.seconds = time.perf_counter() - self.begun
        if self.on_terminal:
            if step.step % 10 == 0 or step.step == self.steps:
                click.echo(f"\r  {self._line(step.step)}", nl=False)
        elif step.step % max(1, self.steps // 10) == 0:
            self.show(f"  {self._line(step.step)}")

    def _line(self, step: int) -> str:
        recent = self.losses[-20:]
        speed = self.num_tokens / max(self.seconds, 1e-9)
        loss = sum(recent) / len(recent)
        pace = f"{speed:,.0f} tokens/s  {self.seconds:.0f} s"
        return f"{step:5,}/{self.steps:,}  loss {loss:.2f}  {spark(self.losses)}  {pace} "

    def finish(self) -> None:
        """Ends the moving line."""
        if self.on_terminal:
            click.echo()


def spark(losses: Sequence[float], width: int = 24) -> str:
    """The course of the loss as a row of blocks, averaged to `width` places."""
    size = max(1, -(-len(losses) // width))
    means = [sum(losses[i : i + size]) / len(losses[i : i + size]) for i in range(0, len(losses), size)]
    low, high = min(means), max(means)
    steps = [round((mean - low) / (high - low or 1.0) * (len(BARS) - 1)) for mean in means]
    return "".join(BARS[step] for step in steps)


def _answers(out: str, show: Callable[[str], None]) -> list[dict[str, Any]]:
    from filbert.infer.model import load

    model = load(out)
    show("Fill in the blank (sentences it has never seen):")
    told, rows = [], []
    for text in BLANKS:
        blank = model.fill(text, top=4)[0]
        rows.append((f"  {text}", "  ".join(f"{c.text} {c.score:.0%}" for c in blank.candidates)))
        told.append({"text": text, "candidates": [[c.text, round(c.score, 4)] for c in blank.candidates]})
    show(table(rows))
    return told
