"""The figures of the story, from real numbers: nothing in, the SVG files beside this one out.

    python docs/story/figures.py

Their labels are numbers and symbols, so that both languages share them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F

from filbert.builtin.model import folder
from filbert.builtin.texts import sample
from filbert.core.records import Encoding, Packed
from filbert.corpus import shards
from filbert.corpus.word_vocab import word_vocabulary
from filbert.metrics import labels
from filbert.models import glove, seq2seq
from filbert.nn.attention import tensors
from filbert.nn.positions import Sinusoidal
from filbert.pack.lay import pack
from filbert.tasks.cooccurrence import items as cooccurrence
from filbert.tasks.cooccurrence import spec as cooccurrence_spec
from filbert.text.tokenizer import Tokenizer
from filbert.train import loop

HERE = Path(__file__).parent
COLD, PALE, WARM = np.array([[33, 102, 172], [247, 247, 247], [178, 24, 43]])
Numbers = npt.NDArray[np.float64]


def colour(value: float) -> str:
    """Blue for -1, white for 0, red for 1."""
    end = WARM if value > 0 else COLD
    red, green, blue = (PALE + (end - PALE) * min(abs(value), 1.0)).round().astype(int)
    return f"#{red:02x}{green:02x}{blue:02x}"


def svg(width: int, height: int, parts: Sequence[str]) -> str:
    """A picture of these parts on white."""
    style = 'font-family="sans-serif" font-size="12" fill="#333"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" {style}>'
    return "\n".join([head, f'<rect width="{width}" height="{height}" fill="#fff"/>', *parts, "</svg>", ""])


def text(x: float, y: float, words: str, anchor: str = "middle") -> str:
    """A label."""
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}">{words}</text>'


def cells(table: Numbers, size: tuple[float, float], left: float, top: float) -> list[str]:
    """A rectangle for each number that is not near white."""
    wide, high = size
    return [
        f'<rect x="{left + column * wide:g}" y="{top + row * high:g}" width="{wide:g}" height="{high:g}" '
        f'fill="{colour(float(value))}"/>'
        for (row, column), value in np.ndenumerate(table)
        if abs(value) > 0.02
    ]


def places() -> str:
    """The sines and cosines of 32 places (down) and the 32 numbers of their vectors (across)."""
    table = Sinusoidal(32, 32).weight.double().numpy()
    parts = cells(table, (14, 8), 40, 24)
    parts += [text(47 + 14 * at, 16, str(at)) for at in range(0, 32, 4)]
    parts += [text(34, 33 + 8 * at, str(at), "end") for at in range(0, 32, 4)]
    return svg(504, 296, parts)


def packed(rows: npt.NDArray[np.int64] | list[list[int]]) -> Packed:
    """A pack of token ids."""
    made = [np.array(row, dtype=np.int32) for row in rows]
    return tensors(pack([Encoding(row, *[np.zeros_like(row)] * 4) for row in made])[0])


def reversed_text() -> str:
    """Where the seq2seq of chapter 2 looks: the symbols that it writes (down), and those that it reads (across)."""
    torch.manual_seed(0)
    random = np.random.default_rng(0)
    config = seq2seq.Config(vocab_size=22, width=48, embedding=32, layers=1, score="dot", dropout=0.0)
    model = seq2seq.Seq2seq(config, ("writer",))
    optimiser = torch.optim.Adam(model.parameters(), lr=8e-3)
    for _ in range(150):
        rows = random.integers(2, 22, (32, 8))
        source, target = packed(rows), packed([[0, *row[::-1]] for row in rows.tolist()])
        gold = torch.tensor([[*row[::-1], 1] for row in rows.tolist()]).flatten()
        vectors = model.decoded(target, model(source), source, torch.arange(32))
        optimiser.zero_grad()
        F.cross_entropy(model.word_scores(vectors), gold).backward()
        optimiser.step()
    read = list(range(4, 12))
    with torch.inference_mode():
        source, target = packed([read]), packed([[0, *read[::-1]]])
        (weights,) = model.attention_of(target, model(source), source, torch.arange(1))
    names = [chr(ord("A") + token - 4) for token in read]
    parts = cells(weights[:8].double().numpy(), (32, 32), 40, 32)
    parts += [text(56 + 32 * at, 24, name) for at, name in enumerate(names)]
    parts += [text(28, 53 + 32 * at, name) for at, name in enumerate(names[::-1])]
    return svg(304, 296, parts)


def counts() -> str:
    """Pairs of chapter 7: the logarithm of the count (across), and what the trained vectors say (up)."""
    tokenizer = Tokenizer.load(folder())
    with tempfile.TemporaryDirectory() as place:
        texts = Path(place) / "texts.txt"
        texts.write_text("\n\n".join("".join(d.sentences) for d in sample("zh")), encoding="utf-8")
        corpus = shards.build(texts, tokenizer, Path(place) / "shards", shards.Options(held=0.0), workers=1)
        words = word_vocabulary(corpus.train.shards, tokenizer, min_count=4)
        task = cooccurrence.Items(
            words.texts(corpus.train.shards), words, cooccurrence_spec.Config(window=5, x_max=10.0)
        )
    torch.manual_seed(0)
    model = glove.GloVe(glove.Config(vocab_size=words.vocab_size, width=32), task.parts)
    loop.fit(model, task, loop.Config(steps=120, batch_tokens=8_192, learning_rate=0.02, weight_decay=0.0))
    first, second, found = task.entries.at(np.arange(len(task.entries)))
    shown = (found >= 3) | (np.arange(len(found)) % 16 == 0)  # all that are frequent, and some of the many that are not
    first, second, found = first[shown], second[shown], found[shown]
    with torch.inference_mode():
        said = model.log_counts(torch.from_numpy(first), torch.from_numpy(second)).double().numpy()
    dots = "".join(f"M{156 + 50 * x:.0f} {250 - 50 * y:.0f}h0" for x, y in zip(np.log(found), said, strict=True))
    parts = ['<line x1="56" y1="350" x2="386" y2="20" stroke="#bbb"/>']
    for at in range(-2, 5):
        parts += [text(156 + 50 * at, 374, str(at)), text(40, 254 - 50 * at, str(at), "end")]
    parts.append(f'<path d="{dots}" stroke="{colour(-0.8)}" stroke-width="3" stroke-linecap="round"/>')
    return svg(412, 384, parts)


def sureness() -> str:
    """The 95 % interval of an accuracy of 0.90, by how many rows were asked."""
    sizes, parts = (50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000), []
    for share in (0.80, 0.85, 0.90, 0.95, 1.0):
        y = 20 + (1 - share) * 1_000
        parts.append(f'<line x1="52" x2="536" y1="{y:g}" y2="{y:g}" stroke="#ddd"/>')
        parts.append(text(46, y + 4, f"{share:.2f}", "end"))
    for at, size in enumerate(sizes):
        gold = np.arange(size) % 2
        said = np.where(np.arange(size) < 0.9 * size, gold, 1 - gold)
        low, high = labels.intervals(labels.confusion(gold, said, 2))["accuracy"]
        x, top, bottom = 84 + 52 * at, 20 + (1 - high) * 1_000, 20 + (1 - low) * 1_000
        parts.append(f'<rect x="{x - 9}" y="{top:.1f}" width="18" height="{bottom - top:.1f}" fill="{colour(-0.8)}"/>')
        parts.append(f'<line x1="{x - 13}" x2="{x + 13}" y1="120" y2="120" stroke="#333" stroke-width="2"/>')
        parts.append(text(x, 244, f"{size:,}"))
    return svg(548, 256, parts)


if __name__ == "__main__":
    for name, made in (("places", places), ("reversed", reversed_text), ("counts", counts), ("sureness", sureness)):
        (HERE / f"{name}.svg").write_text(made(), encoding="utf-8")
