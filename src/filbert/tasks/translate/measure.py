"""Texts that a model wrote and the right ones in; BLEU, chrF and ROUGE with intervals out.

Legend: N texts, K numbers of each that a score is made of, R resamples.

BLEU and chrF are sacrebleu's (Post 2018), from 0 to 100, with its signatures beside them. ROUGE is ours (Lin 2004),
from 0 to 1: the package rouge-score drops whatever is not a-z or 0-9, so that Chinese scores 0 there. A corpus' ROUGE
is the mean of its texts' F1; BLEU and chrF are made of sums over all texts.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from filbert.core.errors import InputError, MissingExtra, needed
from filbert.metrics import bootstrap, paired
from filbert.metrics.intervals import widened

Numbers = npt.NDArray[np.float64]
ROUGES = ("rouge_1", "rouge_2", "rouge_l")
# Written without spaces, so every character is a token: kana, ideographs (also the rarer ones).
_ALONE = "\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"
_TOKEN = re.compile(rf"[{_ALONE}]|[^\W_{_ALONE}]+")
_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af]")


def tokens(text: str) -> list[str]:
    """What ROUGE counts: words of letters and digits in lower case, each Chinese character by itself, no signs."""
    return _TOKEN.findall(unicodedata.normalize("NFKC", text).lower())


def tokenizer_for(right: Sequence[str]) -> str:
    """ "zh" where at least half of the right texts that have letters hold Han characters, else "13a" (mteval's)."""
    lettered = [text for text in right if any(map(str.isalpha, text))]
    num_han = sum(_HAN.search(text) is not None for text in lettered)
    return "zh" if lettered and 2 * num_han >= len(lettered) else "13a"


# -- ROUGE -------------------------------------------------------------------------------------------------------


def rouge(texts: Sequence[str], right: Sequence[str]) -> dict[str, Numbers]:
    """{"rouge_1", "rouge_2", "rouge_l"}: the F1 of each text, [N]."""
    _check_pairs(texts, right)
    pairs = [(tokens(one), tokens(two)) for one, two in zip(texts, right, strict=True)]
    scores = {
        "rouge_1": [_shared_runs(one, two, 1) for one, two in pairs],
        "rouge_2": [_shared_runs(one, two, 2) for one, two in pairs],
        "rouge_l": [_f1(longest_shared(one, two), len(one), len(two), one == two) for one, two in pairs],
    }
    return {name: np.array(values, dtype=np.float64) for name, values in scores.items()}


def _shared_runs(one: Sequence[str], two: Sequence[str], size: int) -> float:
    """F1 of the runs of so many tokens, each counted as often as both have it."""
    first, second = Counter(_runs(one, size)), Counter(_runs(two, size))
    return _f1((first & second).total(), first.total(), second.total(), one == two)


def _runs(units: Sequence[str], size: int) -> list[tuple[str, ...]]:
    """All stretches of so many neighbours."""
    return list(zip(*(units[at:] for at in range(size)), strict=False))


def _f1(shared: int, one: int, two: int, is_same: bool) -> float:
    """2PR / (P + R) = 2·shared / (one + two); of two texts with nothing to count 1 where they are the same, else 0.

    rouge-score gives such two 0, so that a right text of one word would not be perfect by ROUGE-2.
    """
    return 2.0 * shared / (one + two) if one and two else float(is_same)


def longest_shared(one: Sequence[Hashable], two: Sequence[Hashable]) -> int:
    """The length of the longest common subsequence, with a whole row of the table as the bits of one number.

    Hyyrö 2004, "Bit-parallel LCS-length computation revisited", §4: a bit that is 0 is a step to one more.
    """
    places: dict[Hashable, int] = {}
    for at, token in enumerate(one):
        places[token] = places.get(token, 0) | 1 << at
    whole = row = (1 << len(one)) - 1
    for token in two:
        met = row & places.get(token, 0)
        row = (row + met | row - met) & whole
    return len(one) - row.bit_count()


def rouge_summary(
    texts: Sequence[str], right: Sequence[str], lead: Sequence[str] | None = None, seed: int = 0
) -> dict[str, Any]:
    """ROUGE-1, -2 and -L at the top, "intervals", and how many texts.

    lead: what takes no model, such as the first sentence of each; its scores stand beside, and how far it is beaten.
    """
    table = rouge(texts, right)
    values_NK = np.stack([table[name] for name in ROUGES], axis=1)
    count = max(1, len(texts))
    means: dict[str, Any] = {name: float(table[name].sum() / count) for name in ROUGES}
    drawn = intervals(values_NK, lambda sums_RK: dict(zip(ROUGES, (sums_RK / count).T, strict=True)), seed)
    if lead is not None:
        simple = rouge(lead, right)
        means |= {f"lead_{name}": float(simple[name].sum() / count) for name in ROUGES}
        one, two = (each["rouge_l"][:, None] for each in (table, simple))
        apart = paired.compared(one, two, lambda sums: sums[:, 0] / count, "rouge_l", seed)
        means["lead_difference"] = asdict(apart)
    return {
        **means,
        "num_examples": len(texts),
        "intervals": {name: list(widened(drawn[name], means[name], len(texts))) for name in ROUGES},
    }


# -- BLEU and chrF -----------------------------------------------------------------------------------------------


def bleu_summary(texts: Sequence[str], right: Sequence[str], lowercase: bool = False, seed: int = 0) -> dict[str, Any]:
    """BLEU and chrF at the top, "intervals", how BLEU cut the texts ("tokenize") and their signatures.

    lowercase: also "bleu_lowercase", of texts without capitals, for a model whose vocabulary has none.
    Without sacrebleu there is none of it, and "missing" says so: a run must not lose its other results for it.
    """
    _check_pairs(texts, right)
    kind = tokenizer_for(right)
    summary: dict[str, Any] = {"num_examples": len(texts), "intervals": {}}
    try:
        metrics = sacrebleu_metrics(kind, lowercase)
    except MissingExtra as error:
        return {**summary, "missing": f"BLEU and chrF: {error}"}
    summary |= {"tokenize": kind, "signatures": {}}
    for name, metric in metrics.items():
        summary[name], summary["intervals"][name] = 0.0, [0.0, 0.0]
        if not texts:
            continue
        # Per-text statistics are what sacrebleu's own bootstrap resamples; it has no public name for them.
        statistics = metric._extract_corpus_statistics(list(texts), [list(right)])
        summary[name] = float(metric._aggregate_and_compute(statistics).score)
        drawn = intervals(statistics, _scored_by(metric), seed)["score"]
        summary["intervals"][name] = list(widened(drawn, summary[name], len(texts), 100.0))
        summary["signatures"][name] = str(metric.get_signature())
    return summary


def sacrebleu_metrics(kind: str, lowercase: bool = False) -> dict[str, Any]:
    """{"bleu", "chrf"}: sacrebleu's, as they come but for how BLEU cuts texts; "bleu_lowercase" where it is asked."""
    metrics = needed("sacrebleu.metrics", "metrics")
    # force: texts are what people would read, so a space before a full stop is the model's and no sign of tokens.
    scorers = {"bleu": metrics.BLEU(tokenize=kind, force=True), "chrf": metrics.CHRF()}
    more = {"bleu_lowercase": metrics.BLEU(tokenize=kind, force=True, lowercase=True)} if lowercase else {}
    return scorers | more


class _Score(Protocol):
    score: float


class _Metric(Protocol):
    """One of sacrebleu's."""

    def _compute_score_from_stats(self, stats: list[int]) -> _Score: ...


def _scored_by(metric: _Metric) -> Callable[[Numbers], Mapping[str, Numbers]]:
    """{"score": [R]} from [R, K] sums; they are whole numbers, and sacrebleu changes lists that it is given."""

    def score(sums_RK: Numbers) -> Mapping[str, Numbers]:
        rows = sums_RK.round().astype(np.int64).tolist()
        return {"score": np.array([metric._compute_score_from_stats(row).score for row in rows])}

    return score


# -- intervals ---------------------------------------------------------------------------------------------------


def intervals(
    values_NK: npt.ArrayLike, score: Callable[[Numbers], Mapping[str, Numbers]], seed: int = 0
) -> dict[str, tuple[float, float]]:
    """The percentile bootstrap over the texts (Efron 1979) of scores that are functions of the sums of K numbers."""
    values = np.asarray(values_NK, dtype=np.float64)
    one_each = np.ones(len(values), dtype=np.int64)  # each text is a kind of its own
    return bootstrap.of_counts(
        one_each, lambda drawn_RN: score(drawn_RN.astype(np.float64) @ values), seed=seed, rescale=False
    )


def distinct(texts: Sequence[str], size: int) -> float:
    """Of all runs of so many tokens in all texts, the share that differs (Li et al. 2016, "distinct-1" and "-2")."""
    stretches = [run for text in texts for run in _runs(tokens(text), size)]
    return len(set(stretches)) / len(stretches) if stretches else 0.0


def loops(texts: Sequence[str], size: int = 3) -> float:
    """The share of texts in which some run of so many tokens stands twice."""
    by_text = [_runs(tokens(text), size) for text in texts]
    return sum(len(set(runs)) < len(runs) for runs in by_text) / len(by_text) if by_text else 0.0


def exact(texts: Sequence[str], right: Sequence[str]) -> float:
    """The share of texts that are right to the letter but for white space at their ends."""
    _check_pairs(texts, right)
    return float(np.mean([one.strip() == two.strip() for one, two in zip(texts, right, strict=True)])) if texts else 0.0


def _check_pairs(texts: Sequence[str], right: Sequence[str]) -> None:
    if len(texts) != len(right):
        raise InputError(f"there are {len(texts)} texts and {len(right)} right ones; each text needs one.")
