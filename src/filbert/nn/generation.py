"""Writing one token after another: a model's scores for what comes next in, what it writes out.

Legend: B sequences to write, N rows of a model's state (B, or B·W in a beam), W width of the beam, V vocabulary,
L tokens written so far, C candidates for the next token.

A model offers `step(ids_N, state) -> (scores_NV, state)`: the last token of each row in, scores of the next one out, in
float32 and not yet normed. The first step gets the tokens that start the texts. What is written stays on the device;
on a GPU the host looks only now and then at what has ended, and what has ended leaves the batch.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from filbert.core import settings, stopping
from filbert.core.errors import InputError
from filbert.core.random import keys, uniforms
from filbert.core.records import Packed
from filbert.nn.attention import placed
from filbert.nn.encoder import Encoder

if TYPE_CHECKING:
    from filbert.nn.copying import Copies
    from filbert.nn.decoder_attention import Owners
    from filbert.nn.encoder import Shape

EVERY = 8  # steps between two looks at a GPU for what has ended
FEW = 0.75  # rows are dropped from the batch once at most this share of them is still being written
BLOCK = 64  # scores of a row that are looked at together
LOW = float("-inf")
Pick = Callable[[Tensor, Tensor, int], Tensor]  # [N, V] scores, [N] sequence of each row, step: [N] tokens


class State(Protocol):
    """What a model remembers of the rows that it writes."""

    def select(self, rows_N: Tensor) -> Self:
        """The state of these rows, in this order; one may come several times or not at all. Spends the old state."""
        ...


@runtime_checkable
class Grouping(Protocol):
    """A state whose rows can stand in groups, one for each beam.

    A beam spreads it once, and from then on selects whole groups in their order, some left out, where all rows of a
    group come from that group: so they can share what they have in common, and their past need not be moved.
    """

    def spread(self, width: int) -> State:
        """Each row `width` times, side by side, as a group."""
        ...


class Writer(Protocol):
    """A model that writes."""

    def step(self, ids_N: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Scores of each row's next token, [N, V] float32, and the state with ids_N read. Spends the old state."""
        ...


class LeftToRight(Encoder):
    """A causal model: each vector depends on the tokens up to its own alone, so that it can continue a text."""

    directions: ClassVar[tuple[str, ...]] = ("forward",)

    @abstractmethod
    def started(self, packed: Packed) -> Any:
        """The state after reading the pack's sequences, in the order in which they stand there."""

    @abstractmethod
    def step(self, ids_N: Tensor, state: Any) -> tuple[Tensor, Any]:
        """One token more of each text in, scores of the next [N, V] in float32 and the state after it out."""


class EncoderDecoder(Writer, Protocol):
    """A model that writes texts from the vectors of others."""

    config: Shape

    def decoded(self, target: Packed, memory_TD: Tensor, source: Packed, owners_B: Owners = None) -> Tensor:
        """[U, D] a vector for each token of the targets, for what comes next; owners: the source of each."""
        ...

    def word_scores(self, x_UD: Tensor) -> Tensor:
        """[U, V]."""
        ...

    def copies(
        self, x_UD: Tensor, target: Packed, memory_TD: Tensor, source: Packed, owners_B: Owners = None
    ) -> Copies | None:
        """What each token of the targets may copy of its source next; None of a model that cannot copy."""
        ...

    def started(self, memory_TD: Tensor, source: Packed) -> State:
        """Before the first word of a text for each source sequence, in the pack's order."""
        ...

    def parameters(self) -> Iterator[Tensor]:
        """The weights."""
        ...


@dataclass(frozen=True, slots=True)
class Generated:
    """One text that was generated."""

    ids: tuple[int, ...]  # without the end token
    score: float  # the model's log-probability of them, and of the end token where it was written
    ended: bool  # by the end token; else it was cut at max_new


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What every way of writing keeps to."""

    end: int  # the token that ends a text
    max_new: int | Sequence[int]  # most tokens to write, the end token included: one number, or one per sequence
    min_new: int = 0  # fewest tokens before the end token; only a text with no other way on may end earlier
    banned: tuple[int, ...] = ()  # never written
    no_repeat: int = 0  # no stretch of so many tokens is written twice; 0: any may

    def __post_init__(self) -> None:
        settings.check_whole("rules", self, end=0, min_new=0, no_repeat=0)
        wholes = [self.max_new] if isinstance(self.max_new, int) else list(self.max_new)
        if any(type(most) is not int or most < 1 for most in wholes):
            raise InputError(f"rules.max_new is {self.max_new!r}, but must be whole numbers of 1 or more.")
        if self.end in self.banned:
            raise InputError(f"rules.banned has the end token {self.end}, but no text could end; take it out.")

    def limits(self, num: int) -> list[int]:
        """[B] most tokens of each of so many sequences."""
        if isinstance(self.max_new, int):
            return [self.max_new] * num
        if len(self.max_new) != num:
            raise InputError(f"rules.max_new has {len(self.max_new)} numbers for {num} sequences; give one for each.")
        return list(self.max_new)


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """How the next token is drawn."""

    temperature: float = 1.0  # divides the scores: below 1 the likely become likelier
    top_k: int = 0  # only the k likeliest tokens; 0: all
    top_p: float = 1.0  # only the likeliest tokens that together reach this probability (Holtzman et al. 2020)
    seed: int = 0

    def __post_init__(self) -> None:
        settings.check_positive("drawing", self, temperature=1_000, top_p=1)
        settings.check_whole("drawing", self, top_k=0, seed=0)


@torch.no_grad()
def greedy(model: Writer, starts_B: Tensor, state: State, rules: Rules) -> list[Generated]:
    """The likeliest next token, each time."""
    return _one_by_one(model, starts_B, state, rules, lambda scores_NV, sequence_N, step: scores_NV.argmax(1))


@torch.no_grad()
def sample(
    model: Writer, starts_B: Tensor, state: State, rules: Rules, drawing: Drawing, numbers: Sequence[int] | None = None
) -> list[Generated]:
    """Each next token drawn by its probability.

    Draws follow from the seed, the sequence's number (its place here unless `numbers` says another) and the step alone:
    what stands beside a text in the batch changes nothing.
    """
    places = np.asarray(range(len(starts_B)) if numbers is None else numbers, dtype=np.int64)
    longest = max(rules.limits(len(starts_B)), default=0)
    draws = uniforms(keys(drawing.seed, "sample", 0, places)[:, None], np.arange(longest)[None, :])
    draws_BL = placed(draws, starts_B.device)

    def pick(scores_NV: Tensor, sequence_N: Tensor, step: int) -> Tensor:
        chances_NV = chances(scores_NV, drawing)
        reached_NV = chances_NV.double().cumsum(1)
        # Below the sum even after rounding: the first token whose sum is beyond the draw has a chance of its own.
        drawn_N1 = draws_BL[sequence_N, step, None].clamp(max=1 - 1e-12) * reached_NV[:, -1:]
        token_N1 = torch.searchsorted(reached_NV, drawn_N1, right=True)
        return token_N1.squeeze(1).clamp(max=scores_NV.shape[1] - 1)  # beyond only where scores are not numbers

    return _one_by_one(model, starts_B, state, rules, pick)


def chances(scores_NV: Tensor, drawing: Drawing) -> Tensor:
    """[N, V] the probability of drawing each token; those that are equally likely at an edge all stay."""
    scores_NV = scores_NV / drawing.temperature
    if 0 < drawing.top_k < scores_NV.shape[1]:
        least_N1 = scores_NV.topk(drawing.top_k, dim=1).values[:, -1:]
        scores_NV = scores_NV.masked_fill(scores_NV < least_N1, LOW)
    chances_NV = scores_NV.softmax(1)
    if drawing.top_p < 1:
        sorted_NV = chances_NV.sort(1, descending=True).values
        before_NV = sorted_NV.cumsum(1) - sorted_NV  # what likelier tokens reach without this one
        last_N1 = ((before_NV < drawing.top_p).sum(1, keepdim=True) - 1).clamp(min=0)  # below only if not numbers
        chances_NV = chances_NV.masked_fill(chances_NV < sorted_NV.gather(1, last_N1), 0.0)
    return chances_NV / chances_NV.sum(1, keepdim=True)


@torch.no_grad()
def beam(
    model: Writer, starts_B: Tensor, state: State, rules: Rules, *, width: int = 4, length_penalty: float = 0.6
) -> list[Generated]:
    """The best text that a search finds which keeps the `width` likeliest beginnings of each.

    The best has the highest log-probability divided by ((5 + length) / 6)^length_penalty, its end token counted (Wu et
    al. 2016, eq. 14); texts that max_new cuts compete as they are. A sequence is done when `width` texts have ended, or
    none of those that run could still win. A beam of 1 is `greedy`.
    """
    if type(width) is not int or width < 1:
        raise InputError(f"width is {width!r}, but a beam must be a whole number of 1 or more wide.")
    if not 0 <= length_penalty <= 10:
        raise InputError(f"length_penalty is {length_penalty!r}, but must be from 0 to 10.")
    num, device = len(starts_B), starts_B.device
    texts: list[Generated | None] = [None] * num
    beams = _Beams(rules, rules.limits(num), width, length_penalty, device)
    bans, ids_N = _Bans(rules, device), starts_B.repeat_interleave(width)
    if isinstance(state, Grouping):
        state = state.spread(width)
    else:
        state = state.select(torch.arange(num, device=device).repeat_interleave(width))
    for step in range(beams.longest):
        stopping.current().check()
        scores_NV, state = model.step(ids_N, state)
        scores_NV = bans.applied(scores_NV.log_softmax(1), beams.generated_BWL[:, :, :step].flatten(0, 1))
        rows_BW = beams.grown(scores_NV, step)
        if step + 1 == beams.longest or _looks(step, device):
            ended, kept = beams.without_done()
            for place, text in ended:
                texts[place] = text
            if not len(kept):
                break
            rows_BW = rows_BW if len(kept) == len(rows_BW) else rows_BW[kept]
        ids_N, state = beams.generated_BWL[:, :, step].flatten(), state.select(rows_BW.flatten())
    return [text for text in texts if text is not None]


def top(scores_NV: Tensor, num: int) -> tuple[Tensor, Tensor]:
    """[N, C] the highest scores of each row, falling, and their places.

    On a CPU a wide row is cut into blocks: the best stand in the blocks whose best are the best, and to find those is
    cheap, so that only a few blocks are searched. For the best 8 of 8,000 it took half the time on one core.
    """
    num_words = scores_NV.shape[1]
    if scores_NV.device.type != "cpu" or num_words < 4 * num * BLOCK:
        best_NC, place_NC = scores_NV.topk(num, dim=1)
        return best_NC, place_NC
    whole = num_words // BLOCK * BLOCK
    blocks_NBn = scores_NV[:, :whole].view(len(scores_NV), -1, BLOCK)
    chosen_NC1 = blocks_NBn.amax(2).topk(num, dim=1).indices[:, :, None]
    values = blocks_NBn.gather(1, chosen_NC1.expand(-1, -1, BLOCK)).flatten(1)
    places = (chosen_NC1 * BLOCK + torch.arange(BLOCK)).flatten(1)
    rest = torch.arange(whole, num_words).expand(len(scores_NV), -1)  # fewer than a block
    best_NC, at_NC = torch.cat((values, scores_NV[:, whole:]), 1).topk(num, dim=1)
    return best_NC, torch.cat((places, rest), 1).gather(1, at_NC)


class _Bans:
    """What may not come next, from the rules and what was written."""

    def __init__(self, rules: Rules, device: torch.device) -> None:
        self.rules = rules
        self.banned = placed(sorted(set(rules.banned)), device, torch.int64)

    def applied(self, scores_NV: Tensor, generated_NL: Tensor) -> Tensor:
        """The scores, changed in place: minus infinity for what may not come next."""
        rules, num_words, length = self.rules, scores_NV.shape[1], generated_NL.shape[1]
        if not length and max((rules.end, *rules.banned)) >= num_words:
            raise InputError(f"rules name token {max((rules.end, *rules.banned))}, but the model knows {num_words:,}.")
        if len(self.banned):
            scores_NV.index_fill_(1, self.banned, LOW)
        size = rules.no_repeat
        if size and length >= size:
            past_NCn = generated_NL.unfold(1, size, 1)
            same_NC = (past_NCn[:, :, :-1] == generated_NL[:, None, length - size + 1 :]).all(2)
            added_NC = scores_NV.new_zeros(same_NC.shape).masked_fill_(same_NC, LOW)
            scores_NV.scatter_add_(1, past_NCn[:, :, -1], added_NC)
        if length < rules.min_new:
            end_N = scores_NV[:, rules.end].clone()
            scores_NV[:, rules.end] = LOW
            if len(self.banned) or size:  # where nothing else is left, ending early is better than a broken rule
                stuck_N = scores_NV.amax(1) == LOW
                scores_NV[:, rules.end] = torch.where(stuck_N, end_N, LOW)
        return scores_NV


def _one_by_one(model: Writer, starts_B: Tensor, state: State, rules: Rules, pick: Pick) -> list[Generated]:
    """One text for each sequence, its tokens chosen by `pick`."""
    device, num = starts_B.device, len(starts_B)
    limits = rules.limits(num)
    longest = max(limits, default=0)
    texts: list[Generated | None] = [None] * num
    bans, ids_N, limits_N = _Bans(rules, device), starts_B, placed(limits, device, torch.int64)
    sequence_N, done_N = torch.arange(num, device=device), torch.zeros(num, dtype=torch.bool, device=device)
    generated_NL = torch.full((num, longest), rules.end, device=device)
    score_N = torch.zeros(num, device=device)
    for step in range(longest):
        stopping.current().check()
        scores_NV, state = model.step(ids_N, state)
        scores_NV = bans.applied(scores_NV.log_softmax(1), generated_NL[:, :step])
        ids_N = pick(scores_NV, sequence_N, step)
        gained_N = scores_NV.gather(1, ids_N[:, None]).squeeze(1)
        score_N = torch.where(done_N, score_N, score_N + gained_N)
        generated_NL[:, step] = ids_N  # what follows the end token is cut off below
        done_N = done_N | (ids_N == rules.end) | (limits_N <= step + 1)
        if step + 1 < longest and not _looks(step, device):
            continue
        done = done_N.tolist()
        if sum(done) < max(1, (1 - FEW) * len(done)):
            continue
        away, kept_N = [at for at, is_done in enumerate(done) if is_done], (~done_N).nonzero().squeeze(1)
        places, rows, totals = (x[away].tolist() for x in (sequence_N, generated_NL, score_N))
        for place, ids, total in zip(places, rows, totals, strict=True):
            ids = ids[: limits[place]]
            ended = rules.end in ids
            texts[place] = _checked(ids[: ids.index(rules.end)] if ended else ids, total, ended)
        if not len(kept_N):
            break
        sequence_N, ids_N, limits_N, score_N = (x[kept_N] for x in (sequence_N, ids_N, limits_N, score_N))
        generated_NL, done_N, state = generated_NL[kept_N], done_N[kept_N], state.select(kept_N)
    return [text for text in texts if text is not None]


class _Beams:
    """The running beginnings of each sequence and the best text that has ended, all on the device."""

    PER_SEQUENCE = (
        "sequence_B", "limits_B", "done_B", "num_ended_B", "score_BW", "generated_BWL",
        "best_B", "best_total_B", "best_length_B", "best_ended_B", "best_BL",
    )  # fmt: skip

    def __init__(self, rules: Rules, limits: list[int], width: int, penalty: float, device: torch.device) -> None:
        num, self.longest = len(limits), max(limits, default=0)
        self.end, self.width = rules.end, width
        lengths = torch.arange(self.longest + 1, device=device)
        self.divisors = ((5 + lengths) / 6) ** penalty  # by length
        self.sequence_B, self.limits_B = torch.arange(num, device=device), placed(limits, device, torch.int64)
        self.score_BW = torch.full((num, width), LOW, device=device)
        self.score_BW[:, 0] = 0  # all begin alike: only one of them counts until they differ
        self.generated_BWL = torch.zeros(num, width, self.longest, dtype=torch.int64, device=device)
        self.best_BL = torch.zeros(num, self.longest, dtype=torch.int64, device=device)
        self.best_B = torch.full((num,), LOW, device=device)  # its score divided by that of its length
        self.best_total_B = torch.full((num,), LOW, device=device)
        self.best_length_B, self.num_ended_B = (torch.zeros_like(self.sequence_B) for _ in range(2))
        self.best_ended_B, self.done_B = (torch.zeros_like(self.sequence_B, dtype=torch.bool) for _ in range(2))

    def grown(self, scores_NV: Tensor, step: int) -> Tensor:
        """Each beginning one token longer; [B, W] the row that each comes from."""
        num, width = len(self.sequence_B), self.width
        # One token of each beginning is the end, so the best 2W hold W that go on; they are among each row's best 2W.
        each_NC, word_NC = top(scores_NV, min(2 * width, scores_NV.shape[1]))
        total_BWC = each_NC.view(num, width, -1) + self.score_BW[:, :, None]
        total_BC, at_BC = total_BWC.flatten(1).topk(min(2 * width, width * each_NC.shape[1]), dim=1)
        parent_BC = at_BC // each_NC.shape[1]
        word_BC = word_NC.view(num, -1).gather(1, at_BC)
        ends_BC = word_BC == self.end
        last_B = self.limits_B == step + 1
        final_BW = (ends_BC | last_B[:, None])[:, :width] & total_BC[:, :width].isfinite()
        self._take_best(total_BC, parent_BC, word_BC, final_BW, step)
        self.score_BW, going_BW = total_BC.masked_fill(ends_BC, LOW).topk(width, dim=1)
        parent_BW, word_BW = parent_BC.gather(1, going_BW), word_BC.gather(1, going_BW)
        self.generated_BWL = self.generated_BWL.gather(1, parent_BW[:, :, None].expand(-1, -1, self.longest))
        self.generated_BWL[:, :, step] = word_BW
        # Scores only fall as texts grow, and no divisor is larger than that of the longest text allowed.
        hope_B = self.score_BW[:, 0] / self.divisors[self.limits_B]
        # Enough have ended: go on only while one that runs would win if it ended now.
        enough_B = (self.num_ended_B >= width) & (self.best_B >= self.score_BW[:, 0] / self.divisors[step + 1])
        self.done_B = self.done_B | enough_B | last_B | (self.best_B >= hope_B)
        return parent_BW + torch.arange(0, num * width, width, device=scores_NV.device)[:, None]

    def _take_best(self, total_BC: Tensor, parent_BC: Tensor, word_BC: Tensor, final_BW: Tensor, step: int) -> None:
        """The best of the texts that end with this step, where it is better than what there was."""
        score_B, at_B = total_BC[:, : self.width].masked_fill(~final_BW, LOW).max(1)
        at_B1 = at_B[:, None]
        score_B, total_B = score_B / self.divisors[step + 1], score_B
        better_B = (score_B > self.best_B) & ~self.done_B
        self.num_ended_B = self.num_ended_B + final_BW.sum(1)
        text_BL = self.generated_BWL[torch.arange(len(at_B), device=at_B.device), parent_BC.gather(1, at_B1).squeeze(1)]
        word_B = word_BC.gather(1, at_B1).squeeze(1)
        text_BL[:, step] = word_B
        self.best_BL = torch.where(better_B[:, None], text_BL, self.best_BL)
        self.best_B = torch.where(better_B, score_B, self.best_B)
        self.best_total_B = torch.where(better_B, total_B, self.best_total_B)
        self.best_length_B = self.best_length_B.masked_fill(better_B, step + 1)
        self.best_ended_B = torch.where(better_B, word_B == self.end, self.best_ended_B)

    def without_done(self) -> tuple[list[tuple[int, Generated]], list[int]]:
        """What is done leaves: the place and text of each; and which sequences stay."""
        done = self.done_B.tolist()
        kept = [at for at, is_done in enumerate(done) if not is_done]
        away = [at for at, is_done in enumerate(done) if is_done]
        if not away:
            return [], kept
        columns = (self.sequence_B, self.best_BL, self.best_length_B, self.best_total_B, self.best_ended_B)
        texts = [
            (place, _checked(ids[: length - ended], total, ended))
            for place, ids, length, total, ended in zip(*(x[away].tolist() for x in columns), strict=True)
        ]
        for name in self.PER_SEQUENCE:
            setattr(self, name, getattr(self, name)[kept])
        return texts, kept


def _looks(step: int, device: torch.device) -> bool:
    """Whether the host looks at what has ended after this step: on a GPU it would wait for it."""
    return device.type == "cpu" or step % EVERY == EVERY - 1


def _checked(ids: list[int], score: float, ended: bool) -> Generated:
    if not math.isfinite(score):
        raise InputError("the model gives no token a finite score; check its weights for values that are not numbers.")
    return Generated(tuple(ids), score, ended)
