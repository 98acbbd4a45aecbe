"""Tags to entities and back, places in the text, nested spans, and scores equal to seqeval's."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest

from filbert.core.errors import FilbertError, InputError
from filbert.core.records import Span
from filbert.metrics import bootstrap
from filbert.metrics.intervals import wilson
from filbert.nn import crf_walk
from filbert.tasks.tag import decode as tags
from filbert.tasks.tag import measure as metrics

TYPES = ["PER", "LOC-X"]
ALL = {scheme: tags.tag_set(TYPES, scheme) for scheme in ("bio", "bioes")}


def test_tag_sets_and_what_may_follow() -> None:
    assert ALL["bio"] == ("O", "B-PER", "I-PER", "B-LOC-X", "I-LOC-X")
    assert ALL["bioes"][1:5] == ("B-PER", "I-PER", "E-PER", "S-PER")
    assert tags.tag_set(["n", "v"], "plain") == ("n", "v")
    assert tags.allowed(("n", "v"), "plain").pair.all()
    legal = tags.allowed(("I-B", "O", "B-A", "I-A", "B-B"), "bio")  # any order
    assert legal.begin.tolist() == [False, True, True, False, True]
    assert legal.pair[:, 3].tolist() == [False, False, True, True, False]
    assert legal.end.all()
    for scheme in ("bio", "bioes"):
        legal = tags.allowed(ALL[scheme], scheme)
        for length in (1, 2, 3):  # legal is exactly: what `tags` can write
            written = set()
            for path in itertools.product(range(len(ALL[scheme])), repeat=length):
                names = [ALL[scheme][tag] for tag in path]
                is_written = tags.tags(tags.entities(names, scheme, strict=True), length, scheme) == names
                assert is_written == (len(legal.broken(path, [0, length])) == 0), names
                written.add(is_written)
            assert written == {True, False}
    for wrong in (["A", "A"], [""]):
        with pytest.raises(InputError, match="must be names that differ"):
            tags.tag_set(wrong, "bio")
    with pytest.raises(InputError, match="Did you mean 'bio'"):
        tags.tag_set(["A"], "bip")
    with pytest.raises(InputError, match="'X-A' is not O or an entity type with one of B-, I- before it"):
        tags.allowed(["O", "X-A"], "bio")


def test_illegal_steps_do_not_look_across_sequences() -> None:
    legal = tags.allowed(ALL["bio"], "bio")
    assert legal.broken([1, 2, 2, 0], [0, 2, 4]).tolist() == [2]
    assert legal.broken([1, 2, 2, 0], [0, 4]).tolist() == []
    assert legal.broken([1, 2, 4, 0], [0, 0, 4, 4]).tolist() == [2]
    assert legal.broken([], [0]).tolist() == []


def test_broken_tags_lenient_and_strict() -> None:
    broken = ["I-PER", "I-PER", "O", "B-PER", "I-LOC-X", "I-LOC-X", "B-PER", "B-PER"]
    assert tags.entities(broken, "bio") == [(0, 2, "PER"), (3, 4, "PER"), (4, 6, "LOC-X"), (6, 7, "PER"), (7, 8, "PER")]
    assert tags.entities(broken, "bio", strict=True) == [(3, 4, "PER"), (6, 7, "PER"), (7, 8, "PER")]
    unended = ["B-PER", "I-PER", "O", "S-PER", "E-PER", "B-PER", "E-PER"]
    assert tags.entities(unended, "bioes") == [(0, 2, "PER"), (3, 4, "PER"), (4, 5, "PER"), (5, 7, "PER")]
    assert tags.entities(unended, "bioes", strict=True) == [(3, 4, "PER"), (5, 7, "PER")]
    assert tags.entities(["n", "n", "O", "v"], "plain") == [(0, 1, "n"), (1, 2, "n"), (3, 4, "v")]
    assert tags.entities(["B", "I", "O"], "bio") == [(0, 2, "_")]
    with pytest.raises(InputError, match="'S-PER' is not O"):
        tags.entities(["S-PER"], "bio", strict=True)


def test_what_tags_cannot_say_is_an_error() -> None:
    with pytest.raises(InputError, match="shares units with another"):
        tags.tags([(0, 3, "A"), (1, 2, "B")], 4, "bio")
    with pytest.raises(InputError, match="leaves the sequence, which has 4 units"):
        tags.tags([(3, 5, "A")], 4, "bio")
    with pytest.raises(InputError, match="plain tags cannot join"):
        tags.tags([(0, 2, "A")], 4, "plain")


# -- seqeval -------------------------------------------------------------------------------------------------------


def seqeval_numbers(gold: list[list[str]], said: list[list[str]], scheme: str, strict: bool) -> dict[str, object]:
    seqeval = pytest.importorskip("seqeval.metrics")
    from seqeval.metrics.v1 import precision_recall_fscore_support as strict_scores
    from seqeval.scheme import IOB2, IOBES

    def told(average: str | None) -> tuple:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if strict:
                chosen = {"bio": IOB2, "bioes": IOBES}[scheme]
                return strict_scores(gold, said, average=average, scheme=chosen, zero_division=0)
            return seqeval.sequence_labeling.precision_recall_fscore_support(
                gold, said, average=average, zero_division=0
            )

    return {"each": told(None), "micro": told("micro"), "macro": told("macro")}


def check_parity(gold: list[list[str]], said: list[list[str]], scheme: str, strict: bool) -> int:
    read = [[tags.entities(row, scheme, strict) for row in side] for side in (gold, said)]
    counts = metrics.table(*read)
    if not counts.types:  # seqeval divides by zero here; 0 is what it means
        assert set(metrics.scores(counts).values()) == {0.0}
        return 0
    wanted = seqeval_numbers(gold, said, scheme, strict)
    found, each = metrics.scores(counts), metrics.per_type(counts)
    for place, name in enumerate(("precision", "recall", "f1")):
        assert each[name] == pytest.approx(np.asarray(wanted["each"][place], dtype=float), abs=1e-12)
        assert found[name] == pytest.approx(wanted["micro"][place], abs=1e-12)
        assert found[f"macro_{name}"] == pytest.approx(wanted["macro"][place], abs=1e-12)
    assert each["support"].tolist() == list(wanted["each"][3])
    return int(counts.right.sum())


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("scheme", ["bio", "bioes"])
def test_every_short_sequence_is_read_as_seqeval_reads_it(scheme: str, strict: bool) -> None:
    pytest.importorskip("seqeval")
    from seqeval.metrics.sequence_labeling import get_entities
    from seqeval.scheme import IOB2, IOBES, Tokens

    for length in range(1, 5 if scheme == "bio" else 4):
        for row in itertools.product(ALL[scheme], repeat=length):
            row = list(row)
            if strict:
                read = Tokens(row, {"bio": IOB2, "bioes": IOBES}[scheme]).entities
                wanted = [(entity.start, entity.end, entity.tag) for entity in read]
            else:
                wanted = [(start, end + 1, name) for name, start, end in get_entities(row)]
            assert tags.entities(row, scheme, strict) == wanted, row


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("scheme", ["bio", "bioes"])
def test_scores_are_those_of_seqeval(scheme: str, strict: bool) -> None:
    random = np.random.default_rng(7)
    num_right = 0
    for size in (1, 2, 30, 200):
        for noise in (0.0, 0.1, 1.0):
            lengths = random.integers(1, 12, size)
            gold, said = [], []
            for length in lengths:
                row = random.choice(ALL[scheme], length).tolist()  # broken more often than not
                if noise < 1:  # well-formed
                    row = tags.tags(tags.entities(row, scheme), int(length), scheme)
                other = random.choice(ALL[scheme], length).tolist()
                gold.append(row)
                said.append([b if random.random() < noise else a for a, b in zip(row, other, strict=True)])
            num_right += check_parity(gold, said, scheme, strict)
            wanted = pytest.importorskip("seqeval.metrics").accuracy_score(gold, said)
            assert metrics.accuracy(metrics.token_counts(gold, said)) == pytest.approx(wanted)
    assert num_right > 500


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("scheme", ["bio", "bioes"])
def test_adversarial_sentences_score_as_in_seqeval(scheme: str, strict: bool) -> None:
    nothing = [["O", "O"]]
    only = [["B-PER", "I-PER"]] if scheme == "bio" else [["B-PER", "E-PER"]]
    for gold, said in itertools.product((nothing, only, [["I-PER", "I-LOC-X"]], [["B-LOC-X", "B-LOC-X"]]), repeat=2):
        check_parity(gold, said, scheme, strict)


# -- metrics -------------------------------------------------------------------------------------------------------


def made_spans(seed: int = 0, size: int = 150) -> tuple[list[list[Span]], list[list[Span]]]:
    random = np.random.default_rng(seed)
    gold = [
        [Span(int(s), int(s) + 3, "AB"[int(s) % 2], 0.3) for s in random.integers(0, 90, random.integers(0, 5))]
        for _ in range(size)
    ]
    said = [[Span(x.start, x.end + int(random.random() < 0.3), x.label, 0.9) for x in row] for row in gold]
    return gold, said


def test_nested_spans_count_and_scores_do_not_matter() -> None:
    gold = [[Span(0, 4, "ORG"), Span(0, 2, "LOC"), Span(0, 2, "ORG")], []]
    said = [[(0, 4, "ORG"), Span(0, 2, "LOC", 0.4), (1, 2, "ORG")], [Span(3, 4, "PER", 0.2)]]
    counts = metrics.table(gold, said)
    assert counts.types == ("LOC", "ORG", "PER")
    assert metrics.scores(counts)["precision"] == 0.5
    assert metrics.scores(counts)["recall"] == pytest.approx(2 / 3)
    assert metrics.per_type(counts)["f1"].tolist() == [1.0, 0.5, 0.0]
    assert metrics.table(gold, said, ["PER", "ORG", "LOC", "X"]).right.sum(axis=0).tolist() == [0, 1, 1, 0]
    assert metrics.scores(metrics.table(gold, said, ["PER", "ORG", "LOC", "X"])) == metrics.scores(counts)
    assert metrics.scores(metrics.table(gold, gold))["macro_f1"] == 1.0
    with pytest.raises(InputError, match="an entity's type is 'LOC', but must be one of"):
        metrics.table(gold, said, ["PER", "ORG"])
    with pytest.raises(InputError, match="2 sentences have gold entities, but 1 predicted"):
        metrics.table(gold, said[:1])
    with pytest.raises(InputError, match="differ in number"):
        metrics.token_counts([["O"]], [["O", "O"]])


def test_the_bootstrap_is_that_of_drawn_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    gold, said = made_spans()
    counts = metrics.table(gold, said)
    tokens = np.stack((counts.right.sum(axis=1) + 3, counts.there.sum(axis=1) + 5), axis=1)
    random = np.random.default_rng(1)
    drawn: dict[str, list[float]] = {}
    for _ in range(1_500):
        chosen = random.integers(0, len(gold), len(gold))
        part = metrics.Table(counts.types, counts.right[chosen], counts.called[chosen], counts.there[chosen])
        for name, value in {**metrics.scores(part), "accuracy": metrics.accuracy(tokens[chosen])}.items():
            drawn.setdefault(name, []).append(value)
    found = metrics.intervals(counts, tokens, resamples=3_000)
    assert set(found) == set(drawn)
    for name, values in drawn.items():
        assert found[name] == pytest.approx(tuple(np.quantile(values, [0.025, 0.975])), abs=0.01), name
    assert found == metrics.intervals(counts, tokens, resamples=3_000)
    assert found != metrics.intervals(counts, tokens, resamples=3_000, seed=1)
    monkeypatch.setattr(bootstrap, "CHUNK_CELLS", 1)
    assert metrics.intervals(counts, tokens, resamples=50, seed=2)["f1"][0] > 0.4


def test_the_summary_and_nothing_at_all() -> None:
    gold, said = made_spans()
    told = metrics.summary(metrics.table(gold, said))
    assert told["num_sentences"] == 150
    assert told["num_entities"] == sum(len(set(map(metrics._key, row))) for row in gold)
    assert told["intervals"]["f1"][0] < told["f1"] < told["intervals"]["f1"][1]
    assert set(told["types"]) == {"A", "B"}
    assert "accuracy" not in told
    empty = metrics.summary(metrics.table([], []), metrics.token_counts([], []))
    assert empty["f1"] == empty["accuracy"] == empty["macro_f1"] == 0.0
    assert empty["intervals"]["accuracy"] == [0.0, 0.0]
    perfect = metrics.table(gold, gold)
    assert metrics.intervals(perfect, resamples=50)["macro_f1"] == wilson(150, 150)


# -- places in the text --------------------------------------------------------------------------------------------


def test_spans_slice_the_text() -> None:
    text = "我在 New York 的。"
    starts, ends = [0, 1, 3, 7, 12, 13], [1, 2, 6, 11, 13, 14]
    found = tags.spans([(2, 4, "LOC"), (0, 1, "PER")], starts, ends, [1.0, 1.0, 0.5, 1.0, 1.0, 1.0])
    assert [text[span.start : span.end] for span in found] == ["New York", "我"]
    assert found[0].score == 0.75  # the mean
    assert tags.spans([(0, 1, "A")], [0], [1])[0].score == 1.0
    with pytest.raises(InputError, match="in the order of the text"):
        tags.spans([], [3, 0], [4, 1])
    with pytest.raises(InputError, match="at least one character"):
        tags.spans([], [0], [0])
    with pytest.raises(InputError, match="2 units begin, but 1 end"):
        tags.spans([], [0, 1], [1])


def test_nested_spans_are_taken_best_first_and_never_cross() -> None:
    probs = np.zeros((5, 5, 2))
    probs[0, 3, 0] = 0.9
    probs[1, 2, 1] = 0.6  # within
    probs[2, 4, 0] = 0.8  # crosses the best
    probs[0, 3, 1] = 0.7  # the same stretch, another type
    probs[4, 4, 0] = 0.55
    probs[3, 1, 0] = 1.0  # below the diagonal
    probs[0, 0, 0] = 0.5  # not above the threshold
    found = tags.nested(probs, ["A", "B"], range(0, 10, 2), range(1, 11, 2))
    assert [(span.start, span.end, span.label, span.score) for span in found] == [
        (0, 7, "A", 0.9),
        (0, 7, "B", 0.7),
        (2, 5, "B", 0.6),
        (8, 9, "A", 0.55),
    ]
    ties = np.zeros((3, 3, 1))
    ties[0, 1] = ties[1, 2] = 0.9
    assert [(span.start, span.end) for span in tags.nested(ties, ["A"], [0, 1, 2], [1, 2, 3])] == [(0, 2)]
    assert tags.nested(np.zeros((0, 0, 2)), ["A", "B"], [], []) == ()
    with pytest.raises(FilbertError, match="NaN"):
        tags.nested(np.full((1, 1, 1), np.nan), ["A"], [0], [1])


@pytest.mark.slow
def test_everything_above_the_threshold_is_still_fast() -> None:
    """An untrained model may call everything an entity."""
    size = 200
    probs = np.random.default_rng(0).random((size, size, 3)) * 0.4 + 0.55
    found = tags.nested(probs, ["A", "B", "C"], range(size), range(1, size + 1))
    assert 0 < len({(span.start, span.end) for span in found}) < 2 * size


def test_alignment_names_every_span_that_it_cannot_keep() -> None:
    #       0123456789012
    # text "Ann Lee, Paris" as the tokens Ann, Lee, comma, Paris
    starts, ends = [0, 4, 7, 9], [3, 7, 8, 14]
    exact = tags.aligned([Span(9, 14, "LOC"), Span(0, 7, "PER"), Span(0, 7, "PER")], starts, ends)
    assert exact.entities == ((0, 2, "PER"), (3, 4, "LOC"))
    assert exact.num_changed == 0
    cut = tags.aligned([Span(9, 12, "LOC")], starts, ends)
    assert cut.entities == ((3, 4, "LOC"),)
    assert cut.cut == (Span(9, 12, "LOC"),)
    loose = tags.aligned([Span(0, 4, "PER"), Span(8, 14, "LOC")], starts, ends)
    assert loose.entities == ((0, 1, "PER"), (3, 4, "LOC"))
    assert loose.loose == (Span(0, 4, "PER"), Span(8, 14, "LOC"))
    assert loose.num_changed == 2
    lost = tags.aligned([Span(3, 4, "X"), Span(14, 20, "X"), Span(5, 5, "X")], starts, ends)
    assert lost.entities == ()
    assert len(lost.lost) == 3
    both = [Span(0, 3, "PER"), Span(0, 7, "PER"), Span(5, 14, "ODD")]
    flat = tags.aligned(both, starts, ends)
    assert flat.entities == ((0, 2, "PER"),)
    assert flat.overlapping == (Span(0, 3, "PER"), Span(5, 14, "ODD"))
    assert tags.tags(flat.entities, 4, "bioes") == ["B-PER", "E-PER", "O", "O"]
    nested = tags.aligned(both, starts, ends, nesting=True)
    assert nested.entities == ((0, 1, "PER"), (0, 2, "PER"), (1, 4, "ODD"))
    assert nested.cut == (Span(5, 14, "ODD"),)
    assert tags.aligned([Span(0, 1, "X")], [], []).lost == (Span(0, 1, "X"),)


def test_units_find_their_tokens() -> None:
    # "买 iPad" by characters; the tokens are 买 and iPad
    found = tags.rows([0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 6], [0, 2], [1, 6])
    assert found.first.tolist() == found.last.tolist() == [0, 0, 1, 1, 1, 1]
    assert found.bare.tolist() == [False, True, False, False, False, False]
    assert found.shared.tolist() == [False, False, True, True, True, True]
    # "unbelievable" as a word of three tokens, after a space that is a unit
    found = tags.rows([0, 1], [1, 13], [1, 3, 9], [3, 9, 13])
    assert (found.first.tolist(), found.last.tolist()) == ([-1, 0], [-1, 2])
    assert not found.shared.any()
    assert tags.rows([0, 1], [1, 2], [], []).first.tolist() == [-1, -1]
    assert tags.rows([], [], [0], [1]).first.tolist() == []


def test_softmax_scores_with_constraints() -> None:
    scores = np.log([[0.1, 0.2, 0.7], [0.1, 0.1, 0.8], [0.8, 0.1, 0.1]])  # I I O: cannot be
    legal = tags.allowed(("O", "B-A", "I-A"), "bio")
    assert crf_walk.viterbi(scores, [0, 3]).tolist() == scores.argmax(axis=1).tolist() == [2, 2, 0]
    assert crf_walk.viterbi(scores, [0, 3], legal=legal).tolist() == [1, 2, 0]
