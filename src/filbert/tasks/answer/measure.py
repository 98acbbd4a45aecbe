"""Predicted and accepted answers in, as texts; exact match and F1 of each question, their means and intervals out.

Legend: Q questions, R resamples.

Four published rules say what counts as the same answer. None is an option of another; name the one you quote.

- squad: Rajpurkar et al. 2016, 2018. Lower case, no ASCII punctuation, no a, an, the; F1 by the bag of words.
- cmrc: Cui et al. 2019, CMRC 2018. Lower case, no punctuation of a fixed list; F1 by the longest run of Han
  characters and words that both share. The Chinese numbers of most BERT papers are these, on DRCD too.
- drcd: Shao et al. 2018. SQuAD's rule without eight full-width marks, F1 by the bag of characters. The authors
  published no script but said what they changed in SQuAD's (DRCKnowledgeTeam/DRCD, issue 6).
- cjrc: Duan et al. 2019, CAIL2019. Letters and digits only, F1 by the bag of characters. With several accepted
  answers each is left out in turn, and the mean is taken, as CoQA does to be fair to people; so it needs every
  annotator's answer, repeated ones too, and the accepted answers themselves need not score 1.

Elsewhere the best of the accepted answers counts. A question without one is answered right by the empty text.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from filbert.core.errors import InputError, one_of
from filbert.metrics import bootstrap
from filbert.metrics.intervals import widened

Numbers = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

_ARTICLES = re.compile(r"\b(?:an?|the)\b")
# The list is the rule, odd as it is: it has ’ but not ‘, and neither ASCII stops and brackets nor the ellipsis (the
# script lists two of them as one, which no single character can equal).
_CMRC_MARKS = "-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』"
_DRCD_MARKS = "《》？，。、；："
_HAN = "\u4e00-\u9fa5"  # the script's range, which ends before the later additions


# -- the rules ---------------------------------------------------------------------------------------------------


def _squad_normal(text: str, marks: str = string.punctuation) -> str:
    kept = text.lower().translate(dict.fromkeys(map(ord, marks)))
    return " ".join(_ARTICLES.sub(" ", kept).split())


def _squad_segments(text: str) -> list[str]:
    return _squad_normal(text).split()


_drcd_normal = partial(_squad_normal, marks=string.punctuation + _DRCD_MARKS)


def _drcd_segments(text: str) -> list[str]:
    return list(_drcd_normal(text))


def _cmrc_normal(text: str) -> str:
    return text.lower().strip().translate(dict.fromkeys(map(ord, _CMRC_MARKS)))


def _cmrc_segments(text: str) -> list[str]:
    """Han characters one by one; what stands between them cut into words."""
    pieces = re.split(f"([{_HAN}])", _cmrc_normal(text))
    return [segment for at, piece in enumerate(pieces) for segment in ([piece] if at % 2 else _words(piece))]


def _cjrc_normal(text: str) -> str:
    return "".join(char for char in text.lower() if char.isdigit() or char.isalpha())


# The script cuts foreign words as the Penn Treebank does (by nltk.word_tokenize). Symbols stand alone; a comma does
# unless a digit follows; a period does at the very end. Sentences within a run of foreign words are not looked for.
_UNIT = re.compile(
    r"""(?P<alone>\.{2,}|[][(){}<>;@#$%&?!«»„‘\u2012-\u2015]|,(?!\d))
    |(?P<quote>"|'')
    |(?P<word>(?:[^][(){}<>;@#$%&?!«»„‘\u2012-\u2015\s"',.]|,(?=\d)|\.(?!\.)|'(?!'))+|.)""",
    re.VERBOSE,
)
_FINAL_PERIOD = re.compile(r"""(?<=[^.])\.(?=[])}>"'»\s]*$)""")
_CLITIC = re.compile(r"(?<=[^'])(n't|'(?:s|m|d|ll|re|ve)?)$")
_JOINED = re.compile(r"\b(?:(can)(not)|(d)('ye)|(gim)(me)|(gon)(na)|(got)(ta)|(lem)(me)|(more)('n))\b")


def _words(text: str) -> list[str]:
    """A stretch without Han characters as words and symbols."""
    words: list[str] = []
    for match in _UNIT.finditer(_FINAL_PERIOD.sub(" . ", text)):
        unit = match[0]
        if match["alone"]:
            words.append(unit)
        elif match["quote"]:
            words.append("``" if _opens(match.string, match.start(), unit) else "''")
        elif not unit.isspace():
            words.extend(_split_word(unit))
    return words


def _opens(text: str, at: int, quote: str) -> bool:
    if at == 0 or text[:at] == '"':  # the Treebank's rules see a second quote at the beginning as opening, too
        return quote == '"'
    return text[at - 1] in " ([{<«„‘"


def _split_word(word: str) -> list[str]:
    head: list[str] = []
    if re.match(r"'(?!(?:re|ve|ll|m|t|s|d|n)\b)\w", word):
        head, word = ["'"], word[1:]
    return (
        head
        + _JOINED.sub(lambda match: f" {' '.join(filter(None, match.groups()))} ", _CLITIC.sub(r" \1", word)).split()
    )


def _shared_bag(one: Sequence[str], other: Sequence[str]) -> int:
    return (Counter(one) & Counter(other)).total()


def _shared_run(one: Sequence[str], other: Sequence[str]) -> int:
    return SequenceMatcher(None, one, other, autojunk=False).find_longest_match().size


@dataclass(frozen=True, slots=True)
class Rule:
    """What exact match compares, what F1 counts, and how it counts what two answers share."""

    normalised: Callable[[str], str]
    segments: Callable[[str], list[str]]
    shared: Callable[[Sequence[str], Sequence[str]], int] = _shared_bag
    leaves_one_out: bool = False


RULES = {
    "squad": Rule(_squad_normal, _squad_segments),
    "cmrc": Rule(_cmrc_normal, _cmrc_segments, _shared_run),
    "drcd": Rule(_drcd_normal, _drcd_segments),
    "cjrc": Rule(_cjrc_normal, lambda text: list(_cjrc_normal(text)), leaves_one_out=True),
}


def rule_named(name: str) -> Rule:
    """The rule of that name."""
    if name not in RULES:
        raise one_of("the rule of answers", name, RULES)
    return RULES[name]


def rule_for(gold: Sequence[Sequence[str]]) -> str:
    """ "cmrc" where at least half of the accepted answers that have letters hold Han characters, else "squad".

    SQuAD's rule takes a Chinese answer for one word, so that F1 is no more than exact match.
    """
    texts = [text for answers in gold for text in answers if any(map(str.isalpha, text))]
    num_han = sum(re.search(f"[{_HAN}]", text) is not None for text in texts)
    return "cmrc" if texts and 2 * num_han >= len(texts) else "squad"


# -- scores ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Scores:
    """Each question's exact match and F1, from 0 to 1, and whether it has an answer."""

    exact: Numbers  # [Q]
    f1: Numbers  # [Q]
    answerable: Flags  # [Q]


def exact_match(predicted: str, accepted: str, rule: Rule) -> float:
    """1 where both are the same once case and punctuation are gone, else 0."""
    return float(rule.normalised(predicted) == rule.normalised(accepted))


def f1(predicted: str, accepted: str, rule: Rule) -> float:
    """The harmonic mean of the shares that both have in common; 1 for two that have nothing to count.

    CMRC's script gives such two 0, since its data has no empty answers; then gold against itself would not be perfect.
    """
    return _f1(rule.segments(predicted), rule.segments(accepted), rule)


def _f1(one: Sequence[str], other: Sequence[str], rule: Rule) -> float:
    if not one or not other:
        return float(len(one) == len(other))
    # 2PR / (P + R) in one division: the same to the last bits, and exactly 1 for equals.
    return 2.0 * rule.shared(one, other) / (len(one) + len(other))


def scores(predicted: Sequence[str], gold: Sequence[Sequence[str]], rule: str = "squad") -> Scores:
    """Each question's scores; `gold` has its accepted answers, none where the right answer is none."""
    if len(predicted) != len(gold):
        raise InputError(f"there are {len(predicted)} answers to {len(gold)} questions; each question needs one.")
    pairs = [_question(answer, accepted, rule_named(rule)) for answer, accepted in zip(predicted, gold, strict=True)]
    table = np.array(pairs, dtype=np.float64).reshape(-1, 2)
    return Scores(table[:, 0], table[:, 1], np.array([len(accepted) > 0 for accepted in gold], dtype=np.bool_))


def _question(predicted: str, gold: Sequence[str], rule: Rule) -> tuple[float, float]:
    # SQuAD 2.0 drops an accepted answer of which nothing is left, for it would accept the empty one; so do we by any
    # rule but CJRC's, whose annotators mean it: an empty one says that there is no answer.
    accepted = gold if rule.leaves_one_out else [text for text in gold if rule.normalised(text)]
    normal, segments = rule.normalised(predicted), rule.segments(predicted)
    each = [
        (float(normal == rule.normalised(text)), _f1(segments, rule.segments(text), rule))
        for text in (accepted or ("",))
    ]
    if rule.leaves_one_out and len(each) > 1:
        rounds = [_best(each[:out] + each[out + 1 :]) for out in range(len(each))]
        return sum(pair[0] for pair in rounds) / len(rounds), sum(pair[1] for pair in rounds) / len(rounds)
    return _best(each)


def _best(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    return max(pair[0] for pair in pairs), max(pair[1] for pair in pairs)


def means(each: Scores) -> dict[str, float]:
    """ "exact" and "f1" of all questions; of those with and without an answer too, where there are both kinds."""
    result = {"exact": _mean(each.exact), "f1": _mean(each.f1)}
    if each.answerable.any() and not each.answerable.all():
        for name, chosen in (("answerable", each.answerable), ("unanswerable", ~each.answerable)):
            result |= {f"{name}_exact": _mean(each.exact[chosen]), f"{name}_f1": _mean(each.f1[chosen])}
    return result


def _mean(values: Numbers) -> float:
    return float(values.mean()) if values.size else 0.0


def intervals(
    each: Scores, level: float = 0.95, resamples: int = bootstrap.RESAMPLES, seed: int = 0
) -> dict[str, tuple[float, float]]:
    """The percentile bootstrap of the mean exact match and F1 over the questions (Efron 1979)."""
    size = len(each.exact)
    if not size:
        return {"exact": (0.0, 0.0), "f1": (0.0, 0.0)}
    table = np.stack([each.exact, each.f1], axis=1)

    def drawn_means(places_RQ: bootstrap.Counts) -> dict[str, Numbers]:
        exact_R, f1_R = table[places_RQ].mean(axis=1).T
        return {"exact": exact_R, "f1": f1_R}

    drawn = bootstrap.of_places(size, drawn_means, seed=seed, level=level, resamples=resamples)
    values = {"exact": _mean(each.exact), "f1": _mean(each.f1)}
    return {name: widened(drawn[name], value, size) for name, value in values.items()}


def summary(each: Scores, rule: str, seed: int = 0) -> dict[str, Any]:
    """All of it as one object for people and machines: means at the top, "intervals", counts and the rule."""
    return {
        **means(each),
        "rule": rule,
        "num_examples": len(each.exact),
        "num_unanswerable": int((~each.answerable).sum()),
        "intervals": {name: list(pair) for name, pair in intervals(each, seed=seed).items()},
    }
