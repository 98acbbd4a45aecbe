"""A slice of Wikipedia in; how good word vectors are, and how fast they were made, by filbert and by gensim, out.

    .venv/bin/python benchmarks/word_vectors.py --megabytes 12 --seeds 0,1,2 --out word_vectors.json
    .venv/bin/python benchmarks/word_vectors.py --language en --objectives cbow --output hierarchical
    .venv/bin/python benchmarks/word_vectors.py --objectives skip-gram,glove --epochs 10

Both learn from the same words of the same texts (rare ones left out), with the same width, window, noise, subsampling
and epochs, on one core, by turns; both rates fall to nothing in a straight line, ours after a rise over the first tenth
of the steps. gensim moves weights after every pair, by the gradient times its rate (`--peer-rate`; its own default is
0.025). We move them after a batch, by Adam at `--learning-rate`. Words a second are those read, before frequent ones
are left out, over the CPU seconds of training alone. A ratio is ours over gensim's. GloVe has no peer in gensim: it
stands by itself, and an epoch of it goes through the table of counts (`--glove-batch-tokens`, two for each entry;
`--glove-rate`).
"""

from __future__ import annotations

import argparse
import itertools
import lzma
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from filbert.core.errors import FilbertError, needed
from filbert.core.files import json_text, write_text
from filbert.corpus import shards as sharding
from filbert.corpus.word_vocab import WordText, WordVocabulary, word_vocabulary
from filbert.metrics import words as metrics
from filbert.models import glove, word2vec
from filbert.pack.batches import batches
from filbert.tasks.cooccurrence import items as cooccurrence
from filbert.tasks.cooccurrence import spec as cooccurrence_spec
from filbert.tasks.word_vectors import items as word_vectors
from filbert.tasks.word_vectors import spec as word_vectors_spec
from filbert.text.tokenizer import Tokenizer
from filbert.train import loop
from filbert.train.machine import Config as Machine
from timing import machine as about
from timing import rotated, spread, table, verdict

SHARED = Path(__file__).resolve().parent.parent.parent / "shared" / "data"
TARGET = 0.95  # of gensim's quality
SOURCES = {"zh": ("zh-a.txt.xz", "bert-base-chinese-vocab.txt"), "en": ("en-a.txt.xz", "bert-base-uncased-vocab.txt")}
SIMILARITY = {"zh": ("CWE_240.txt", "CWE_297.txt"), "en": ("gensim_wordsim353.tsv", "gensim_simlex999.txt")}
ANALOGY = {
    "zh": ("CWE_analogy.txt", "CA8_semantic.txt.xz", "CA8_morphological.txt.xz"),
    "en": ("gensim_questions-words.txt.xz",),
}


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--language", choices=tuple(SOURCES), default="zh")
    parser.add_argument("--megabytes", type=float, default=20.0, help="of text, decompressed")
    parser.add_argument("--objectives", default="skip-gram,cbow", help="of skip-gram, cbow and glove")
    parser.add_argument("--output", choices=tuple(word_vectors.OUTPUTS), default="negative")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--width", type=int, default=100)
    parser.add_argument("--window", type=int, default=5)
    parser.add_argument("--negatives", type=int, default=5)
    parser.add_argument("--min-count", type=int, default=5)
    parser.add_argument("--seeds", default="0,1,2", help="one round for each")
    parser.add_argument("--batch-tokens", type=int, default=16_384)
    parser.add_argument("--learning-rate", type=float, default=0.05)
    parser.add_argument("--peer-rate", type=float, default=0.025, help="of gensim")
    parser.add_argument("--glove-batch-tokens", type=int, default=131_072)
    parser.add_argument("--glove-rate", type=float, default=0.03)
    parser.add_argument("--out", help="JSON file")
    return parser.parse_args()


def read(given: argparse.Namespace, folder: str) -> tuple[WordVocabulary, list[WordText]]:
    """The corpus word by word."""
    source, vocab = SOURCES[given.language]
    tokenizer = Tokenizer.load(SHARED / "vocab" / vocab)
    reading = sharding.Options(held=0, most_bytes=int(given.megabytes * 1e6))
    made = sharding.build(SHARED / "wiki" / source, tokenizer, folder, reading, workers=1)
    found = word_vocabulary(made.train.shards, tokenizer, given.min_count)
    return found, found.texts(made.train.shards)


def ours(
    given: argparse.Namespace, objective: str, seed: int, words: WordVocabulary, texts: list[WordText]
) -> tuple[np.ndarray, float]:
    """The vectors, and CPU seconds."""
    config = word_vectors_spec.Config(
        objective=objective, output=given.output, window=given.window, negatives=given.negatives, seed=seed
    )
    task = word_vectors.Items(texts, words, config)
    torch.manual_seed(seed)
    model = word2vec.Word2vec(word2vec.Config(vocab_size=words.vocab_size, width=given.width), task.parts)
    task.begin(model)
    seconds = trained(model, task, given.epochs, given.batch_tokens, given.learning_rate, seed)
    return model.embeddings.words.weight.detach().numpy(), seconds


def counted(
    given: argparse.Namespace, objective: str, seed: int, words: WordVocabulary, texts: list[WordText]
) -> tuple[np.ndarray, float]:
    """GloVe's vectors, the sum of both tables, and CPU seconds; counting is part of them."""
    begun = time.process_time()
    task = cooccurrence.Items(texts, words, cooccurrence_spec.Config(window=given.window, seed=seed))
    seconds = time.process_time() - begun
    print(f"{objective}: {len(task.entries):,} entries, counted in {seconds:.1f} s", flush=True)
    torch.manual_seed(seed)
    model = glove.GloVe(glove.Config(vocab_size=words.vocab_size, width=given.width), task.parts)
    seconds += trained(model, task, given.epochs, given.glove_batch_tokens, given.glove_rate, seed)
    return (model.embeddings.words.weight + model.embeddings.contexts.weight).detach().numpy(), seconds


def trained(model: torch.nn.Module, task: Any, epochs: int, batch_tokens: int, rate: float, seed: int) -> float:
    """CPU seconds of so many epochs by the one loop, in one thread. Nothing decays: gensim has no such thing."""
    steps = sum(len(batches(task.plan(epoch).lengths, seed, epoch, batch_tokens)) for epoch in range(epochs))
    course = loop.Config(
        steps=steps, batch_tokens=batch_tokens, learning_rate=rate, weight_decay=0.0, seed=seed,
        checkpoint_every=steps, evaluate_every=steps,
    )  # fmt: skip
    begun = time.process_time()
    loop.fit(model, task, course, machine=Machine(device="cpu", threads=1, workers=0))
    return time.process_time() - begun


def theirs(
    given: argparse.Namespace, objective: str, seed: int, words: WordVocabulary, texts: list[WordText]
) -> tuple[np.ndarray, float]:
    """The same by gensim."""
    longest = word_vectors_spec.Config().max_length
    documents = [text.ids[a:b] for text in texts for a, b in itertools.pairwise(text.documents)]
    sentences = [
        [words.words[word] for word in document[at : at + longest]]
        for document in documents
        for at in range(0, len(document), longest)
    ]
    tree = given.output == "hierarchical"
    model = needed("gensim.models", "bench").Word2Vec(
        vector_size=given.width, window=given.window, min_count=1, sg=int(objective == "skip-gram"), hs=int(tree),
        negative=0 if tree else given.negatives, sample=word_vectors_spec.Config().subsample, workers=1, seed=seed + 1,
        alpha=given.peer_rate,
    )  # fmt: skip
    model.build_vocab(sentences)
    begun = time.process_time()
    model.train(sentences, total_examples=len(sentences), epochs=given.epochs)
    return np.stack([model.wv[word] for word in words.words]), time.process_time() - begun


def lines_of(name: str) -> list[str]:
    """A set's lines."""
    path = SHARED / "wordsim" / name
    with lzma.open(path, "rt", encoding="utf-8") if path.suffix == ".xz" else path.open(encoding="utf-8") as handle:
        return handle.read().splitlines()


def quality(language: str, ids: dict[str, int], vectors: np.ndarray) -> dict[str, dict[str, Any]]:
    """What each set says of the vectors."""
    found = {}
    for name in SIMILARITY[language]:
        said = metrics.similarity(metrics.rated(lines_of(name), name), ids, vectors)
        found[name.split(".")[0]] = {**said, "value": said["spearman"], "interval": said["intervals"]["spearman"]}
    for name in ANALOGY[language]:
        said = metrics.analogies(metrics.questions(lines_of(name), name), ids, vectors)
        found[name.split(".")[0]] = {**said, "value": said["accuracy"], "interval": said["intervals"]["accuracy"]}
    return found


def summary(given: argparse.Namespace, rounds: list[dict[str, Any]], objective: str) -> str:
    """Ours beside gensim's, set by set: median and range of the rounds, ratio of means; and each kind together."""
    of = {who: [r for r in rounds if (r["objective"], r["who"]) == (objective, who)] for who in ("ours", "gensim")}
    rows = []
    for name, first in of["ours"][0]["quality"].items():
        own, peer = ([r["quality"][name]["value"] for r in of[who]] for who in ("ours", "gensim"))
        low, high = first["interval"]
        covered = f"{first['num_examples']:,} of {first['num_asked']:,}"
        rows.append([name, covered, spread(own).text(3), f"{low:.3f}-{high:.3f}", *beside(own, peer)])
    own, peer = ([r["cpu_s"] for r in of[who]] for who in ("ours", "gensim"))
    rows.append(["CPU s", "", spread(own).text(0), "", *beside(own, peer, 0)])
    if peer:  # GloVe reads words once, and then its table
        own, peer = ([r["words_per_s"] for r in of[who]] for who in ("ours", "gensim"))
        rows.append(["words/s", "", spread(own).text(0), "", *beside(own, peer, 0)])
    lines = [table([objective, "covered", "ours", "95% of the first", "gensim", "ratio"], rows)]
    for kind, names in (("similarity", SIMILARITY), ("analogy", ANALOGY)) if peer else ():
        # Means first: the ratio of two small numbers says little.
        own, peer = (
            np.mean([r["quality"][name.split(".")[0]]["value"] for r in of[who] for name in names[given.language]])
            for who in ("ours", "gensim")
        )
        ratio = own / peer if peer > 0 else np.nan  # of a peer that knows nothing there is no share
        said = f"{ratio:.2f} of gensim's (target {TARGET}): {verdict(ratio, TARGET)}"
        lines.append(f"{kind}, mean of the sets: {own:.3f} and {peer:.3f}, {said}")
    return "\n".join(lines)


def beside(own: list[float], peer: list[float], digits: int = 3) -> tuple[str, str]:
    """The peer's numbers, and the ratio of both means; nothing where there is no peer."""
    if not peer:
        return "", ""
    return spread(peer).text(digits), f"{np.mean(own) / np.mean(peer):.2f}" if np.mean(peer) > 0 else "-"


def main() -> None:
    """Runs all rounds, and says each as it comes."""
    given = options()
    rounds: list[dict[str, Any]] = []
    objectives = given.objectives.split(",")
    with tempfile.TemporaryDirectory() as folder:
        words, texts = read(given, folder)
        num_words = sum(text.num_tokens for text in texts)
        print(f"{num_words:,} words, {words.vocab_size:,} different ones", flush=True)
        for turn, (seed, objective) in enumerate(itertools.product(map(int, given.seeds.split(",")), objectives)):
            makers = {"ours": counted} if objective == "glove" else {"ours": ours, "gensim": theirs}
            for who in rotated(tuple(makers), turn // len(objectives)):
                vectors, seconds = makers[who](given, objective, seed, words, texts)
                said = {
                    "who": who, "objective": objective, "seed": seed, "cpu_s": round(seconds, 2),
                    "words_per_s": num_words * given.epochs / seconds,
                    "quality": quality(given.language, words.ids, vectors),
                }  # fmt: skip
                rounds.append(said)
                numbers = ", ".join(f"{name} {value['value']:.3f}" for name, value in said["quality"].items())
                print(f"{objective} {who} seed {seed}: {seconds:.0f} s, {numbers}", flush=True)
                if given.out:
                    write_text(given.out, json_text({"given": vars(given), "machine": about(), "rounds": rounds}))
    for objective in objectives:
        print(summary(given, rounds, objective))


if __name__ == "__main__":
    try:
        main()
    except FilbertError as error:
        raise SystemExit(f"word_vectors: {error}") from None
