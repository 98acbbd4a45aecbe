"""The texts that are encoded: comes in a tokenizer folder and a seed, goes out headlines, mixed, arrival and one text.

English text from the shared Wikipedia file where it is present, else words of the vocabulary drawn at random.
"""

from __future__ import annotations

import gzip
import lzma
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import NormalDist

from tokenizers import Tokenizer

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
MAX_TOKENS = 512
ARRIVAL_BATCH = 32
NAMES = ("headlines", "headlines-zh", "mixed", "arrival", "arrival-split", "one")
DEFAULT = ("headlines", "mixed", "arrival", "arrival-split", "one")
HISTOGRAM_EDGES = (0, 16, 32, 64, 128, 192, 256, 384, 512)


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Texts and how they reach the encoder."""

    name: str
    texts: list[str]
    calls: list[list[str]]  # each is one call of the encoder
    one_padded_batch: bool = False  # a peer that pads takes a whole call as one batch
    per_call: bool = False  # report milliseconds per call instead of seconds for all
    note: str = ""


def workloads(folder: Path, *, seed: int = 7, scale: float = 1.0, median: int = 90) -> dict[str, Workload]:
    """Every workload by name; `scale` shortens the lists, for a larger model or a smoke run."""
    tokenizer = bare_tokenizer(folder)
    source = _wiki_paragraphs() or _synthetic_paragraphs(tokenizer, seed)
    headlines = _headlines(source, random.Random(seed), num=_scaled(400, scale))
    mixed = _mixed(source, tokenizer, random.Random(seed), _scaled(120, scale), median)
    arrival = mixed[: max(ARRIVAL_BATCH, _scaled(96, scale) // ARRIVAL_BATCH * ARRIVAL_BATCH)]
    batches = [arrival[start : start + ARRIVAL_BATCH] for start in range(0, len(arrival), ARRIVAL_BATCH)]
    short = [_cut(text, tokenizer, 20) for text in source[:: len(source) // 40]][: _scaled(25, min(1.0, scale * 2))]
    chinese = _chinese_headlines(random.Random(seed), num=_scaled(400, scale))
    made = [
        Workload(name="headlines", texts=headlines, calls=[headlines], note="8-30 characters of English"),
        Workload(name="headlines-zh", texts=chinese, calls=[chinese], note="8-30 characters of Chinese, THUCNews"),
        Workload(name="mixed", texts=mixed, calls=[mixed], note="log-normal lengths, all known in advance"),
        Workload(name="arrival", texts=arrival, calls=batches, one_padded_batch=True, note="calls of 32, each a batch"),
        Workload(name="arrival-split", texts=arrival, calls=batches, note="calls of 32, sorted and split inside"),
        Workload(name="one", texts=short, calls=[[text] for text in short], per_call=True, note="about 20 tokens"),
    ]
    return {workload.name: workload for workload in made if workload.texts}


def neighbour_texts(made: dict[str, Workload], num: int = 300, seed: int = 7) -> dict[str, Workload]:
    """Short real texts among which nearest neighbours mean something: messages and captions, else what is timed."""
    messages, captions = SHARED / "en_sms_spam" / "SMSSpamCollection.xz", SHARED / "mt_multi30k" / "val.en.gz"
    found: dict[str, list[str]] = {}
    if messages.exists():
        with lzma.open(messages, "rt", encoding="utf-8") as lines:
            found["sms"] = [line.rstrip("\n").partition("\t")[2] for line in lines]
    if captions.exists():
        with gzip.open(captions, "rt", encoding="utf-8") as lines:
            found["captions"] = [line.strip() for line in lines]
    if not found:
        found = {name: made[name].texts for name in ("headlines", "mixed") if name in made}
    picked = {name: sorted(set(texts)) for name, texts in found.items()}
    picked = {name: random.Random(seed).sample(texts, min(num, len(texts))) for name, texts in picked.items()}
    return {name: Workload(name=name, texts=texts, calls=[texts]) for name, texts in picked.items()}


def bare_tokenizer(folder: Path) -> Tokenizer:
    """The Rust tokenizer of a folder without padding: MiniLM's file asks for rows padded and cut to 128."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(MAX_TOKENS)
    return tokenizer


def histogram(texts: Sequence[str], folder: Path) -> dict[str, object]:
    """How long the texts are in tokens, [CLS] and [SEP] counted."""
    lengths = sorted(len(encoding.ids) for encoding in bare_tokenizer(folder).encode_batch(list(texts)))
    edges = list(pairwise(HISTOGRAM_EDGES))
    return {
        "num_texts": len(lengths),
        "tokens": sum(lengths),
        "mean": round(sum(lengths) / len(lengths), 1),
        "median": lengths[len(lengths) // 2],
        "min": lengths[0],
        "max": lengths[-1],
        "buckets": {f"{low + 1}-{high}": sum(low < n <= high for n in lengths) for low, high in edges},
    }


def _scaled(num: int, scale: float) -> int:
    return max(2, round(num * scale))


def _wiki_paragraphs(num: int = 3000) -> list[str]:
    path = SHARED / "wiki" / "en-a.txt.xz"
    if not path.exists():
        return []
    found: list[str] = []
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            if len(line) > 200:
                found.append(line.strip())
            if len(found) == num:
                break
    return found


def _synthetic_paragraphs(tokenizer: Tokenizer, seed: int, num: int = 600) -> list[str]:
    rng = random.Random(seed)
    words = sorted(word for word in tokenizer.get_vocab() if word.isascii() and word.isalpha() and len(word) > 1)
    return [" ".join(rng.choices(words, k=rng.randint(60, 160))) + "." for _ in range(num)]


def _headlines(source: Sequence[str], rng: random.Random, num: int) -> list[str]:
    made: list[str] = []
    while len(made) < num:
        words = rng.choice(source).split()
        start, length = rng.randrange(len(words)), rng.randint(8, 30)
        text = ""
        for word in words[start:]:
            if len(text) + 1 + len(word) > length:
                break
            text = f"{text} {word}".strip()
        if len(text) >= 8:
            made.append(text)
    return made


def _chinese_headlines(rng: random.Random, num: int) -> list[str]:
    """THUCNews headlines: a character is about a token there, as in the project's reference figures."""
    path = next(iter(sorted((SHARED / "thucnews").glob("dev*.xz"))), None)
    if path is None:
        return []
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        texts = [line.split("\t")[0].strip() for line in lines]
    return rng.sample([text for text in texts if 8 <= len(text) <= 30], num)


def _mixed(source: Sequence[str], tokenizer: Tokenizer, rng: random.Random, num: int, median: int) -> list[str]:
    made = []
    for wanted in _lognormal_lengths(rng, num, median):
        start = rng.randrange(len(source) - 12)
        made.append(_cut(" ".join(source[start : start + 12]), tokenizer, wanted))
    return made


def _lognormal_lengths(rng: random.Random, num: int, median: int, sigma: float = 0.866) -> list[int]:
    """Even quantiles of a log-normal, cut to 16-512 and shuffled, so that the mean is not the luck of a seed.

    With the median 90, their geometric mean, 16 and 512 lie two deviations to each side.
    """
    spots = [NormalDist().inv_cdf((index + 0.5) / num) for index in range(num)]
    lengths = [min(MAX_TOKENS, max(16, round(median * math.exp(sigma * spot)))) for spot in spots]
    rng.shuffle(lengths)
    return lengths


def _cut(text: str, tokenizer: Tokenizer, num_tokens: int) -> str:
    """The beginning of a text that is at most `num_tokens` long, ended where a word ends."""
    encoding = tokenizer.encode(text)
    room = min(num_tokens - 2, len(encoding.ids) - 2)
    while 1 < room < len(encoding.ids) - 2 and encoding.word_ids[room + 1] == encoding.word_ids[room]:
        room -= 1
    return text[: encoding.offsets[room][1]]
