"""A task's answers to labelled examples in; how they compare with simple ones, which are wrong, which gold may be, out.

Legend: N examples, L labels, K numbers of each example that a score is made of.

There is one view for each kind of answer, told by what the task's own evaluation holds, not by the task's name: a new
task that gives labels is looked at as labels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from filbert.core.records import Example, Prediction, Span
from filbert.forms import label_sets
from filbert.judge import baselines
from filbert.metrics import answers, calibration, generation, labels, noise, numbers, paired, tags
from filbert.tasks.relation.reading import Relation
from filbert.text.sentences import sentences

Numbers = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]
SHOWN_CHARS, AROUND = 400, 30  # of a text that is shown, and around a span in it
SURE = 0.9  # from which on a model that disagrees with the gold is worth a look at the gold


@dataclass(frozen=True, slots=True)
class Beaten:
    """What a baseline scores, and how far the model is from it."""

    scores: Mapping[str, float]
    difference: paired.Difference | None
    about: str
    views: tuple[Numbers, ...] = ()  # [N, L] what it holds each label for


class View:
    """Of a kind that nothing more is known of: only its own metrics."""

    looks_at_each = False  # whether it needs every prediction as an object
    measure = ""  # that a difference from other models is told in; "": none is

    def __init__(self, task: Any, examples: Sequence[Example], raw: Sequence[Any], told: Mapping[str, Any]) -> None:
        self.task, self.examples, self.raw, self.told = task, list(examples), raw, told
        self.said: list[Prediction] = task.predictions(raw) if self.looks_at_each else []

    def simple(self) -> dict[str, Beaten]:
        """Baselines that need no training data."""
        return {}

    def learnt(self, train: Sequence[Example]) -> dict[str, Beaten]:
        """Baselines that learn from the model's own training data."""
        return {}

    def calibration(self, is_fitted_here: bool) -> dict[str, Any] | None:
        """How far the probabilities can be believed; a temperature that these data fitted is not measured on them."""
        return None

    def mistakes(self) -> Iterator[dict[str, Any]]:
        """The wrong answers, the surest first."""
        return iter(())

    def errors(self, others: Sequence[Numbers] = ()) -> dict[str, Any] | None:
        """Examples whose gold is probably wrong, the likeliest first; `others` are further views of each label."""
        return None

    def beside(self, other: Any) -> paired.Difference | None:
        """How far it is from another model's view of the same examples."""
        return None

    def shown(self, place: int, **more: Any) -> dict[str, Any]:
        """An example in a list: where it stands and what it says."""
        return shown(self.examples[place], place, **more)


def shown(example: Example, place: int, **more: Any) -> dict[str, Any]:
    """An example in a list: its file and line, its texts, and whatever else is to be said of it."""
    return {"file": example.source, "line": example.line, "row": place, "text": brief(example), **more}


def brief(example: Example) -> str:
    """Its texts in one line, cut where they are long, mentions marked."""
    texts = list(example.texts)
    if isinstance(example.gold, Relation):
        head, tail = (texts[0][span.start : span.end] for span in (example.gold.head, example.gold.tail))
        texts = [head, tail, texts[0]]
    share = max(40, SHOWN_CHARS // max(1, len(texts)))
    return " ‖ ".join(text if len(text) <= share else text[: share - 1] + "…" for text in texts)


def rows(examples: Sequence[Example]) -> list[tuple[str, ...]]:
    """What simple models count of each: its texts; of two mentions in a text these and what stands between them."""
    found = []
    for example in examples:
        gold = example.gold
        if isinstance(gold, Relation):
            text = example.texts[0]
            between = text[min(gold.head.end, gold.tail.end) : max(gold.head.start, gold.tail.start)]
            mentions = (text[span.start : span.end] for span in (gold.head, gold.tail))
            found.append((text, *mentions, between))
        else:
            found.append(example.texts)
    return found


def _gold_label(example: Example) -> str:
    return str(example.gold.label if isinstance(example.gold, Relation) else label_sets.only(example.gold))


class Labels(View):
    """One label for each example."""

    measure = "accuracy"

    def __init__(self, task: Any, examples: Sequence[Example], raw: Sequence[Any], told: Mapping[str, Any]) -> None:
        super().__init__(task, examples, raw, told)
        self.labels = tuple(task.labels)
        self.gold = np.asarray(task.gold, dtype=np.int64)
        self.shares: Numbers = task.label_shares(raw).reshape(len(self.gold), len(self.labels))

    @property
    def right(self) -> npt.NDArray[np.bool_]:
        """[N] which of the model's are right."""
        found: npt.NDArray[np.bool_] = self.shares.argmax(axis=1) == self.gold
        return found

    def _against(self, said: Places, about: str, views: tuple[Numbers, ...] = ()) -> Beaten:
        table = labels.confusion(self.gold, said, len(self.labels))
        scores = {"accuracy": labels.accuracy(table), "f1": labels.macro_f1(table)}
        return Beaten(scores, paired.accuracy(self.right, said == self.gold), about, views)

    def beside(self, other: Any) -> paired.Difference | None:
        """By accuracy."""
        return paired.accuracy(self.right, other.right)

    def simple(self) -> dict[str, Beaten]:
        """Always the most frequent label."""
        commonest = int(np.bincount(self.gold, minlength=1).argmax())
        return {"majority": self._against(np.full(len(self.gold), commonest), "always the most frequent label")}

    def learnt(self, train: Sequence[Example]) -> dict[str, Beaten]:
        """Logistic regression on TF-IDF."""
        places = {name: place for place, name in enumerate(self.labels)}
        known = [example for example in train if _gold_label(example) in places]
        gold = np.array([places[_gold_label(example)] for example in known], dtype=np.int64)
        model = baselines.labels(rows(known), gold, len(self.labels), is_pair(known))
        shares = model.shares(rows(self.examples))
        about = f"logistic regression on TF-IDF, {_learnt_from(model)}"
        return {"tfidf": self._against(shares.argmax(axis=1), about, (shares,))}

    def calibration(self, is_fitted_here: bool) -> dict[str, Any] | None:
        """Of the likeliest label."""
        # Scores that were divided by a temperature are, as logarithms of shares, those scores but for a constant.
        scores = np.log(np.maximum(self.shares, 1e-300)) * _heat(self.task)
        return _believed(scores, self.gold, _heat(self.task), is_fitted_here)

    def mistakes(self) -> Iterator[dict[str, Any]]:
        """Wrong labels."""
        sure = self.shares.max(axis=1)
        wrong = np.flatnonzero(~self.right)
        for place in wrong[np.argsort(-sure[wrong], kind="stable")].tolist():
            said = self.labels[int(self.shares[place].argmax())]
            gold = self.labels[int(self.gold[place])]
            yield self.shown(place, gold=gold, said=said, score=float(sure[place]))

    def errors(self, others: Sequence[Numbers] = ()) -> dict[str, Any] | None:
        """By what the model and the baseline, which both never saw these labels, agree on."""
        return mislabelled(noise.agreed((self.shares, *others)), self.gold, self.labels, self.examples)


def _heat(task: Any) -> float:
    """The temperature of a task's probabilities; 1 where there is none."""
    return float(getattr(task.config, "temperature", 1.0))


def _believed(scores_NL: Numbers, gold: Places, heat: float, is_fitted_here: bool) -> dict[str, Any]:
    if is_fitted_here or heat == 1.0:  # what a temperature brings is measured on the half that did not fit it
        found = calibration.summary(scores_NL, gold)
        return found | ({"temperature": heat} if heat != 1.0 else {})
    return calibration.summary(scores_NL, gold, heat)


def mislabelled(
    shares_NL: Numbers, gold: Places, names: Sequence[str], examples: Sequence[Example], chosen: Places | None = None
) -> dict[str, Any]:
    """The probable label errors as an object; `chosen` are the places of these among all examples."""
    found = noise.suspects(shares_NL, gold)
    places = np.arange(len(gold)) if chosen is None else chosen
    ranked = zip(found.rows.tolist(), found.margins.tolist(), found.instead.tolist(), strict=True)
    listed = [
        shown(examples[int(places[row])], int(places[row]), gold=names[int(gold[row])], instead=names[other],
              margin=round(margin, 6))
        for row, margin, other in ranked
    ]  # fmt: skip
    counts = {"num": len(listed), "estimated": found.estimated, "checked": len(gold), "of": len(examples)}
    return {**counts, "ranked": listed}


def train_errors(task: Any, train: Sequence[Example]) -> dict[str, Any]:
    """The probable label errors of training data, by models that never saw the label that they judge."""
    names = tuple(task.labels)
    places = {name: place for place, name in enumerate(names)}
    gold = np.array([places[_gold_label(example)] for example in train], dtype=np.int64)
    found = baselines.unseen(rows(train), gold, len(names), is_pair(train))
    return mislabelled(noise.agreed(found.views), gold[found.rows], names, train, found.rows)


def is_pair(examples: Sequence[Example]) -> bool:
    """Whether both texts of an example are to be compared."""
    return bool(examples) and len(examples[0].texts) == 2 and not isinstance(examples[0].gold, Relation)


def _learnt_from(model: baselines.Learnt) -> str:
    part = f"{model.num_rows:,} of {model.num_of:,}" if model.num_rows < model.num_of else f"{model.num_of:,}"
    return f"learnt from {part} rows"


class Sets(View):
    """Any number of labels for each example."""

    measure = "micro_f1"

    def __init__(self, task: Any, examples: Sequence[Example], raw: Sequence[Any], told: Mapping[str, Any]) -> None:
        super().__init__(task, examples, raw, told)
        self.labels = tuple(task.labels)
        self.gold = np.asarray(task.gold) == 1
        self.chances: Numbers = task.label_shares(raw).reshape(self.gold.shape)
        self.given = self.chances >= task.config.several

    def beside(self, other: Any) -> paired.Difference | None:
        """By micro F1."""
        return self._against(other.given, "").difference

    def simple(self) -> dict[str, Beaten]:
        """Always the most frequent set of labels."""
        kinds, many = np.unique(self.gold, axis=0, return_counts=True)
        said = np.repeat(kinds[many.argmax()][None], len(self.gold), axis=0)
        return {"majority": self._against(said, "always the most frequent set of labels")}

    def learnt(self, train: Sequence[Example]) -> dict[str, Beaten]:
        """A logistic regression on TF-IDF for each label."""
        gold = type(self.task)(train, self.labels, self.task.tokenizer, self.task.config).gold
        said = baselines.sets(rows(train), gold, rows(self.examples)) >= 0.5
        return {"tfidf": self._against(said, "logistic regression on TF-IDF for each label")}

    def _against(self, said: npt.NDArray[np.bool_], about: str) -> Beaten:
        one, two = (np.stack(((self.gold & each).sum(1), each.sum(1), self.gold.sum(1)), axis=1).astype(float)
                    for each in (self.given, said))  # fmt: skip
        scores = {
            "micro_f1": float(_f1(two.sum(axis=0)[None])[0]),
            "accuracy": float((said == self.gold).all(1).mean()),
        }
        return Beaten(scores, paired.compared(one, two, _f1, "micro_f1"), about)

    def mistakes(self) -> Iterator[dict[str, Any]]:
        """Examples with a wrong or missing label, those first of which a label is the surest to be wrong."""
        off = np.where(self.gold != self.given, np.abs(self.chances - self.gold), 0.0).max(axis=1, initial=0.0)
        for place in np.argsort(-off, kind="stable").tolist():
            if off[place] > 0:
                yield self.shown(
                    place, gold=self._names(self.gold[place]), said=self._names(self.given[place]),
                    score=float(off[place]),
                )  # fmt: skip

    def _names(self, flags: npt.NDArray[np.bool_]) -> list[str]:
        return [name for name, flag in zip(self.labels, flags.tolist(), strict=True) if flag]

    def errors(self, others: Sequence[Numbers] = ()) -> dict[str, Any] | None:
        """Labels that are there, or are not, though the model is sure of the opposite."""
        off = np.abs(self.chances - self.gold)
        at, which = np.nonzero(off >= SURE)
        order = np.argsort(-off[at, which], kind="stable")
        listed = [
            self.shown(int(row), gold=self._names(self.gold[row]), label=self.labels[label],
                       instead="not there" if self.gold[row, label] else "there", score=float(off[row, label]))
            for row, label in zip(at[order].tolist(), which[order].tolist(), strict=True)
        ]  # fmt: skip
        return {"num": len(listed), "checked": len(self.gold), "ranked": listed}


class Values(View):
    """One number for each example."""

    looks_at_each = True
    measure = "pearson"

    def __init__(self, task: Any, examples: Sequence[Example], raw: Sequence[Any], told: Mapping[str, Any]) -> None:
        super().__init__(task, examples, raw, told)
        self.gold = np.asarray(task.gold, dtype=np.float64)
        self.values = np.array([next(iter(said.scores.values())) for said in self.said])

    def beside(self, other: Any) -> paired.Difference | None:
        """By correlation."""
        return paired.compared(self._products(self.values), self._products(other.values), _correlation, "pearson")

    def learnt(self, train: Sequence[Example]) -> dict[str, Beaten]:
        """Ridge regression on TF-IDF."""
        model = baselines.numbers(
            rows(train), [float(label_sets.only(example.gold)) for example in train], is_pair(train)
        )
        values = model.values(rows(self.examples))
        scores = {name: getattr(numbers, name)(self.gold, values) for name in ("pearson", "spearman")}
        scores["mse"] = float(((self.gold - values) ** 2).mean()) if len(values) else 0.0
        found = paired.compared(self._products(self.values), self._products(values), _correlation, "pearson")
        return {"tfidf": Beaten(scores, found, f"ridge regression on TF-IDF, {_learnt_from(model)}")}

    def _products(self, values: Numbers) -> Numbers:
        """[N, 6] what a correlation is made of, both sides in units of their own spread."""
        one, two = ((side - side.mean()) / (side.std() or 1.0) for side in (self.gold, values))
        return np.stack((np.ones(len(one)), one, two, one * one, two * two, one * two), axis=1)

    def mistakes(self) -> Iterator[dict[str, Any]]:
        """The farthest first."""
        off = np.abs(self.values - self.gold)
        for place in np.argsort(-off, kind="stable").tolist():
            said = round(float(self.values[place]), 4)
            yield self.shown(place, gold=float(self.gold[place]), said=said, score=float(off[place]))


def _correlation(sums_RK: Numbers) -> Numbers:
    count, one, two, squared, other, both = np.moveaxis(sums_RK, -1, 0)
    spread = np.sqrt(np.maximum(count * squared - one**2, 0) * np.maximum(count * other - two**2, 0))
    found: Numbers = np.divide(count * both - one * two, spread, out=np.zeros(len(sums_RK)), where=spread > 1e-12)
    return found


def _f1(sums_RK: Numbers) -> Numbers:
    """Micro F1 from right, called and gold ones."""
    found: Numbers = 2 * sums_RK[:, 0] / np.maximum(sums_RK[:, 1] + sums_RK[:, 2], 1)
    return found


class Spans(View):
    """Stretches of a text, each with a label."""

    looks_at_each = True
    measure = "f1"

    def _counts(self, said: Sequence[Sequence[Span]]) -> Numbers:
        """[N, 3] right, called and gold spans of each text."""
        table = tags.table([example.gold for example in self.examples], said)
        return np.stack([part.sum(axis=1) for part in (table.right, table.called, table.there)], axis=1).astype(float)

    def beside(self, other: Any) -> paired.Difference | None:
        """By F1 of whole spans."""
        one, two = (self._counts([said.spans for said in each.said]) for each in (self, other))
        return paired.compared(one, two, _f1, "f1")

    def learnt(self, train: Sequence[Example]) -> dict[str, Beaten]:
        """A dictionary of the training data's spans."""
        dictionary = baselines.Dictionary([example.texts[0] for example in train], [example.gold for example in train])
        two = self._counts([dictionary(example.texts[0]) for example in self.examples])
        found = paired.compared(self._counts([said.spans for said in self.said]), two, _f1, "f1")
        right, called, there = two.sum(axis=0).tolist()
        scores = {
            "precision": right / max(1, called),
            "recall": right / max(1, there),
            "f1": float(_f1(two.sum(0)[None])[0]),
        }
        about = f"the longest match in a dictionary of {len(dictionary.labels):,} stretches of the training data"
        return {"dictionary": Beaten(scores, found, about)}

    def _apart(self) -> Iterator[tuple[int, Span, str]]:
        """(example, span, "invented" or "missing") of all that model and gold do not agree on."""
        for place, (example, said) in enumerate(zip(self.examples, self.said, strict=True)):
            gold = {(span.start, span.end, span.label) for span in example.gold}
            mine = {(span.start, span.end, span.label) for span in said.spans}
            yield from (
                (place, span, "invented") for span in said.spans if (span.start, span.end, span.label) not in gold
            )
            yield from ((place, Span(*key, 0.0), "missing") for key in sorted(gold - mine))

    def _told(self, place: int, span: Span, what: str) -> dict[str, Any]:
        example = self.examples[place]
        text = example.texts[0]
        before, behind = text[max(0, span.start - AROUND) : span.start], text[span.end : span.end + AROUND]
        place_of = {"file": example.source, "line": example.line, "row": place, "start": span.start, "end": span.end}
        marked = f"{before}【{text[span.start : span.end]}】{behind}"
        return {**place_of, "text": marked, "what": what, "label": span.label, "score": round(span.score, 6)}

    def mistakes(self) -> Iterator[dict[str, Any]]:
        """Spans that the model invented, the surest first, and, in turn with them, those that it missed."""
        apart = list(self._apart())
        invented = sorted((each for each in apart if each[2] == "invented"), key=lambda each: -each[1].score)
        missing = [each for each in apart if each[2] == "missing"]
        for turn in range(max(len(invented), len(missing))):
            for group in (invented, missing):
                if turn < len(group):
                    yield self._told(*group[turn])

    def errors(self, others: Sequence[Numbers] = ()) -> dict[str, Any] | None:
        """Spans that the model is sure of and the gold does not have."""
        sure = [each for each in self._apart() if each[1].score >= SURE]
        sure.sort(key=lambda each: -each[1].score)
        listed = [self._told(place, span, "not in the gold") for place, span, _ in sure]
        return {"num": len(listed), "checked": len(self.examples), "ranked": listed}


class Answers(View):
    """A stretch of a passage, or that there is none."""

    looks_at_each = True
    measure = "f1"

    def __init__(self, task: Any, examples: Sequence[Example], raw: Sequence[Any], told: Mapping[str, Any]) -> None:
        super().__init__(task, examples, raw, told)
        self.accepted = [[answer.text for answer in example.gold] for example in self.examples]
        self.f1 = self._scores([said.label or "" for said in self.said]).f1

    def _scores(self, said: Sequence[str]) -> answers.Scores:
        return answers.scores(said, self.accepted, self.told["rule"])

    def beside(self, other: Any) -> paired.Difference | None:
        """By F1 of the answers' characters or words."""
        count = max(1, len(self.f1))
        return paired.compared(self.f1[:, None], other.f1[:, None], lambda sums: sums[:, 0] / count, "f1")

    def simple(self) -> dict[str, Beaten]:
        """The sentence of the passage that is likest to the question."""
        cut = [[text[start:end] for start, end in sentences(text)] for text in (e.texts[1] for e in self.examples)]
        best = baselines.closest([example.texts[0] for example in self.examples], cut)
        said = [own[place] if place >= 0 else "" for own, place in zip(cut, best, strict=True)]
        found = self._scores(said)
        count = max(1, len(said))
        apart = paired.compared(self.f1[:, None], found.f1[:, None], lambda sums: sums[:, 0] / count, "f1")
        scores = {"exact": float(found.exact.mean()), "f1": float(found.f1.mean())} if said else {}
        return {"tfidf": Beaten(scores, apart, "the sentence that is likest to the question by TF-IDF")}

    def _sure(self, place: int) -> float:
        spans = self.said[place].spans
        return float(spans[0].score) if spans and self.said[place].label else 0.0

    def _told(self, place: int) -> dict[str, Any]:
        gold, said = self.accepted[place], self.said[place].label or ""
        return self.shown(place, gold=gold, said=said, f1=float(self.f1[place]), score=round(self._sure(place), 6))

    def mistakes(self) -> Iterator[dict[str, Any]]:
        """The worst answers, of these the surest first."""
        order = sorted(np.flatnonzero(self.f1 < 1).tolist(), key=lambda place: (self.f1[place], -self._sure(place)))
        return map(self._told, order)

    def errors(self, others: Sequence[Numbers] = ()) -> dict[str, Any] | None:
        """Questions whose answer has nothing in common with one that the model is sure of."""
        wrong = [place for place in np.flatnonzero(self.f1 == 0).tolist() if self._sure(place) >= SURE]
        listed = [self._told(place) for place in sorted(wrong, key=lambda place: -self._sure(place))]
        return {"num": len(listed), "checked": len(self.examples), "ranked": listed}


class Choices(View):
    """One of the options that each question has."""

    measure = "accuracy"

    def __init__(self, task: Any, examples: Sequence[Example], raw: Sequence[Any], told: Mapping[str, Any]) -> None:
        super().__init__(task, examples, raw, told)
        self.gold = np.asarray(task.gold, dtype=np.int64)
        self.options = [example.texts[-len(row) :] for example, row in zip(self.examples, raw, strict=True)]
        self.scores = calibration.stacked(raw)
        self.shares = calibration.shares(self.scores, _heat(task))

    def _right(self, chosen: Sequence[int]) -> npt.NDArray[np.bool_]:
        """[N]; of two options that are alike either is right."""
        given = zip(self.options, chosen, self.gold.tolist(), strict=True)
        return np.array([own[place] == own[gold] for own, place, gold in given], dtype=np.bool_)

    def beside(self, other: Any) -> paired.Difference | None:
        """By accuracy."""
        one, two = (self._right(each.shares.argmax(axis=1).tolist()) for each in (self, other))
        return paired.accuracy(one, two)

    def simple(self) -> dict[str, Beaten]:
        """The commonest place, and the option that is likest to passage and question."""
        asked = ["\n".join(e.texts[: -len(own)]) for e, own in zip(self.examples, self.options, strict=True)]
        commonest = int(np.bincount(self.gold, minlength=1).argmax())
        places = [min(commonest, len(own) - 1) for own in self.options]
        given = {
            "majority": (places, "always the commonest place"),
            "tfidf": (baselines.closest(asked, self.options), "the option likest to passage and question by TF-IDF"),
        }
        mine = self._right(self.shares.argmax(axis=1).tolist())
        found = {}
        for name, (chosen, about) in given.items():
            right = self._right(chosen)
            scores = {"accuracy": float(right.mean()) if len(right) else 0.0}
            found[name] = Beaten(scores, paired.accuracy(mine, right), about)
        return found

    def calibration(self, is_fitted_here: bool) -> dict[str, Any] | None:
        """Of the likeliest option."""
        return _believed(self.scores, self.gold, _heat(self.task), is_fitted_here)

    def mistakes(self) -> Iterator[dict[str, Any]]:
        """Wrong choices."""
        chosen = self.shares.argmax(axis=1)
        wrong = np.flatnonzero(~self._right(chosen.tolist()))
        sure = self.shares.max(axis=1)
        for place in wrong[np.argsort(-sure[wrong], kind="stable")].tolist():
            own = self.options[place]
            gold, said = own[int(self.gold[place])], own[int(chosen[place])]
            yield self.shown(place, gold=gold, said=said, score=float(sure[place]))

    def errors(self, others: Sequence[Numbers] = ()) -> dict[str, Any] | None:
        """Questions of which the model is sure that another option is right."""
        listed = [row for row in self.mistakes() if row["score"] >= SURE]
        return {"num": len(listed), "checked": len(self.examples), "ranked": listed}


class Texts(View):
    """A text written from each text."""

    looks_at_each = True
    measure = "rouge_l"

    def __init__(self, task: Any, examples: Sequence[Example], raw: Sequence[Any], told: Mapping[str, Any]) -> None:
        super().__init__(task, examples, raw, told)
        self.gold = [str(example.gold) for example in self.examples]
        self.texts = [said.text or "" for said in self.said]
        self.rouge_l = generation.rouge(self.texts, self.gold)["rouge_l"]

    def beside(self, other: Any) -> paired.Difference | None:
        """By ROUGE-L."""
        return self._against(other.texts, "").difference

    def simple(self) -> dict[str, Beaten]:
        """The source's first sentence where the task measures it (a summary); else the source as it is."""
        sources = [example.texts[0] for example in self.examples]
        if "lead_rouge_l" not in self.told:
            return {"copy": self._against(sources, "the source as it is")}
        edges = [next(iter(sentences(text)), (0, 0)) for text in sources]
        leads = [text[start:end] for text, (start, end) in zip(sources, edges, strict=True)]
        return {"lead": self._against(leads, "the first sentence of the source")}

    def _against(self, said: Sequence[str], about: str) -> Beaten:
        rouge_l, count = generation.rouge(said, self.gold)["rouge_l"], max(1, len(said))
        scores = {"rouge_l": float(rouge_l.sum() / count)}
        if said and "bleu" in self.told:
            metric = generation.sacrebleu_metrics(self.told["tokenize"])["bleu"]
            scores = {"bleu": float(metric.corpus_score(list(said), [self.gold]).score), **scores}
        one, two = self.rouge_l[:, None], rouge_l[:, None]
        return Beaten(scores, paired.compared(one, two, lambda sums: sums[:, 0] / count, "rouge_l"), about)

    def mistakes(self) -> Iterator[dict[str, Any]]:
        """What has least in common with the right text, by the F1 of ROUGE-L; of these the surest first."""
        sure = [said.scores.get("score", 0.0) for said in self.said]
        for place in sorted(range(len(self.texts)), key=lambda place: (self.rouge_l[place], -sure[place])):
            if self.rouge_l[place] < 1:
                f1, gold, said = float(self.rouge_l[place]), self.gold[place], self.texts[place]
                yield self.shown(place, gold=gold, said=said, f1=f1, score=round(sure[place], 6))


def view(task: Any, examples: Sequence[Example], raw: Sequence[Any], told: Mapping[str, Any]) -> View:
    """The view that suits the task's own evaluation `told`."""
    kinds: tuple[tuple[bool, type[View]], ...] = (
        ("confusion" in told, Labels),
        ("rule" in told, Answers),
        ("types" in told, Spans),
        ("chance_accuracy" in told, Choices),
        ("mean_mse" in told, Values),
        ("labels" in told, Sets),
        ("rouge_l" in told, Texts),
    )
    return next((kind for fits, kind in kinds if fits), View)(task, examples, raw, told)
