"""A text written from a text: pairs in, packed batches and the loss of an encoder-decoder, or what it writes, out.

One vocabulary serves both sides. The source is read as [CLS] … [SEP]; the writer gets [CLS] … and learns what comes
next, the last of it [SEP], from the right text so far (teacher forcing). Sources and targets are two packs without
padding; that of the targets travels among them as `into_…`.

Nothing is cut silently. A source longer than `max_length` is parted at ends of sentences, each stretch is translated by
itself, and the translations are joined; such pairs are not learnt, for nobody knows which part of the target belongs to
which stretch, and `remarks` tells of them. A task that `joins` (summarize, chat) reads the stretches by themselves too,
but its writer sees all of them as one memory, so they can be learnt.

Legend: T tokens of the sources, U tokens of the targets, B stretches in the pack, N items, D width, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from filbert.core.errors import InputError
from filbert.core.protocols import Batch, Decisions, Term
from filbert.core.records import Example, Packed, Prediction
from filbert.nn.ops import A, Host, Numbers
from filbert.pack import lay
from filbert.pack.cuts import Cuts
from filbert.pack.lay import Places
from filbert.tasks.task import Report
from filbert.tasks.translate import measure as metrics
from filbert.tasks.translate.spec import Config
from filbert.tasks.translate.spelling import spellings, spelt
from filbert.tasks.windowed import ranges
from filbert.tasks.written import Text, Written
from filbert.text.joining import joined
from filbert.text.sentences import sentences
from filbert.text.tokenizer import Pieces, Tokenizer, Tokens

if TYPE_CHECKING:
    from torch import Tensor

    from filbert.nn.encoder import Encoder
    from filbert.nn.generation import EncoderDecoder, State

CELLS = 2**27  # scores over the vocabulary that are held at a time: half a gigabyte

SPARE = 1.1  # of the sources' usual share of a batch, where packs are filled up to one size

CLOSE = 64  # that size is a multiple of it


@dataclass(frozen=True, slots=True)
class Learnt:
    """An epoch's plan: those of the items that can be learnt from."""

    chosen: Places
    lengths: Places  # tokens of each, source and target

    def orders(self, indices: Places) -> Places:
        """The items themselves."""
        return self.chosen[indices]


class Items(Written[Config, list[Text]]):
    """Translation; a text whose translation is not known can be translated, not learnt from."""

    watched = "written_loss"
    one_graph = False  # packs of any number of targets

    def __init__(
        self, examples: Sequence[Example], labels: Sequence[str], tokenizer: Tokenizer, config: Config
    ) -> None:
        super().__init__(examples, (), tokenizer, config)
        self.mask_prob = config.mask_prob
        self.parts = ("writer", "copier") if self.copies else ("writer",)
        self.continues = tokenizer.continues
        if config.beam > tokenizer.vocab_size:
            raise InputError(
                f"task.beam is {config.beam}, but the vocabulary has only {tokenizer.vocab_size} tokens; take fewer."
            )
        self.gold = np.array([example.gold is not None for example in examples], dtype=bool)
        self.source_pieces = self._read([example.texts[0] for example in examples])
        self.ids = np.asarray(self.source_pieces.ids, dtype=np.int32)
        self.take(self._parted())
        self.targets = tokenizer.pieces([_target(example, at) for at, example in enumerate(examples)])
        self.left_out = self._left_out()
        self.is_learnt = self.gold & ~np.any(list(self.left_out.values()), axis=0)
        target_sizes: Places = np.diff(self.targets.boundaries) + 1  # with [SEP]
        self.num_sourced = self.lengths
        self.lengths = self.num_sourced + np.where(self.gold, target_sizes, 0)

    # The data ---------------------------------------------------------------------------------------------------------

    def _read(self, texts: Sequence[str]) -> Pieces:
        """The tokens of the sources."""
        return self.tokenizer.pieces(texts)

    def _unknown(self, pieces: Pieces) -> Places:
        """[N] how many tokens of each text are [UNK]."""
        totals = np.concatenate(([0], np.cumsum(pieces.ids == self.tokenizer.unk_id)))
        unknown: Places = np.diff(totals[pieces.boundaries])
        return unknown

    def _parted(self) -> Cuts:
        """The stretches of all sources; nearly all have one."""
        bounds, room = np.asarray(self.source_pieces.boundaries, dtype=np.int64), self.config.max_length - 2
        edges = {
            int(index): stretches(self.examples[index].texts[0], self.source_pieces[int(index)], room, self.continues)
            for index in np.flatnonzero(np.diff(bounds) > room)
        }
        counts = np.ones(len(self.examples), dtype=np.int64)
        counts[list(edges)] = [len(parts) - 1 for parts in edges.values()]
        places = np.concatenate(([0], np.cumsum(counts)))
        first = np.repeat(np.stack([bounds[:-1], bounds[1:]] * 2, axis=1), counts, axis=0)
        for index, parts in edges.items():
            pairs = np.stack([parts[:-1], parts[1:]] * 2, axis=1) + bounds[index]
            first[places[index] : places[index + 1]] = pairs
        return Cuts(places, first, np.zeros_like(first), specials=2)

    def _left_out(self) -> dict[str, npt.NDArray[np.bool_]]:
        """Why -> [N] which pairs are not learnt for it."""
        most, sizes = self.config.max_length, np.diff(self.targets.boundaries)
        several = np.diff(self.cuts.edges) > 1
        return {
            "have an empty side": (np.diff(self.source_pieces.boundaries) == 0) | (sizes == 0),
            f"have a source of more than {most - 2:,} tokens": several & (not self.joins),
            f"have a target of more than {most - 1:,} tokens": sizes > most - 1,
        }

    @property
    def has_unknown(self) -> bool:
        """Whether some text has no right one beside it."""
        return not bool(self.gold.all())

    @property
    def teaches(self) -> bool:
        """Whether there is anything to learn from."""
        return bool(self.is_learnt.any())

    def remarks(self) -> list[str]:
        """What of the data is not learnt as it stands."""
        remarks = []
        for why, which in self.left_out.items():
            if count := int((which & self.gold).sum()):
                advice = "; raise task.max_length, or part them" if "more than" in why else ""
                remarks.append(f"{count:,} pairs {why} and are not learnt{advice}.")
        for side, pieces in (("source", self.source_pieces), ("target", self.targets)):
            unknown = self._unknown(pieces)
            if total := int(unknown.sum()):
                index = int(unknown.argmax())
                where = self.examples[index].where(index)
                remarks.append(
                    f"{total:,} of {len(pieces.ids):,} {side} tokens are not in the vocabulary, e.g. "
                    f"{self._unknown_text(side, index)!r} in {where}; they are read as [UNK], which is never written."
                )
        return remarks

    def _unknown_text(self, side: str, index: int) -> str:
        """The first stretch of the text that is [UNK]."""
        example = self.examples[index]
        text, pieces = (example.texts[0], self.source_pieces) if side == "source" else (example.gold, self.targets)
        tokens = pieces[index]
        at = int((tokens.ids == self.tokenizer.unk_id).argmax())
        return str(text[tokens.starts[at] : tokens.ends[at]][:20])

    def arrays(self) -> tuple[Numbers, ...]:
        """All that is learnt from."""
        return self.ids, self.cuts.first, self.targets.ids, self.targets.boundaries, self.is_learnt

    # Batches ----------------------------------------------------------------------------------------------------------

    def plan(self, epoch: int) -> Learnt:
        """The pairs that can be learnt."""
        chosen = np.flatnonzero(self.is_learnt)
        return Learnt(chosen, self.lengths[chosen])

    def batch(self, orders: Places, budget: int | None = None) -> Batch:
        """The sources' stretches packed by length, and the targets as a pack of their own, by length too."""
        items = orders
        laid, chosen = self.laid(items, self._sourced(budget)), self.windows_of(items)
        sizes, counts = self.window_tokens[chosen], self.cuts.edges[items + 1] - self.cuts.edges[items]
        firsts = np.cumsum(counts) - counts
        places: Places = np.asarray(np.searchsorted(laid.packed.boundaries, laid.starts))  # of stretches, in the pack
        memory: dict[str, Any] = {}
        if self.joins and (counts > 1).any():
            memory, places = _joined_rows(laid.starts, sizes, firsts), np.arange(len(items))
        numbers, num_read = (items, self.num_sourced[items]) if self.joins else (chosen, sizes)
        owners = places if self.joins else places[firsts]
        rows = np.flatnonzero(self.is_learnt[items])
        on_host = {"places_host": places, "numbers_host": numbers, "limits_host": self._limits(num_read)}
        return Batch(laid.packed, laid.starts, laid.owners, memory | on_host | self._into(items[rows], owners[rows]))

    def _sourced(self, budget: int | None) -> int | None:
        """What of a batch's tokens sources usually have, so that packs of one size can be recorded (train.recorded)."""
        if budget is None:
            return None
        share = SPARE * float(self.num_sourced.sum() / max(1, self.lengths.sum()))
        return min(budget, -(-math.ceil(share * budget) // CLOSE) * CLOSE)

    def _limits(self, num_read: Places) -> Places:
        """Most tokens to write from so many, [CLS] and [SEP] among these."""
        most: Places = self.config.max_new + np.ceil(self.config.max_ratio * num_read).astype(np.int64)
        return np.asarray(np.minimum(most, self.config.max_length))

    def _into(self, items: Places, owners: Places) -> dict[str, Any]:
        """The targets of these items as a pack: what the writer gets, and what comes next."""
        bounds = self.targets.boundaries
        order = np.argsort(bounds[items + 1] - bounds[items], kind="stable")
        items, owners = items[order], owners[order]
        sizes: Places = bounds[items + 1] - bounds[items] + 1
        edges = np.concatenate(([0], np.cumsum(sizes)))
        positions = np.arange(edges[-1]) - np.repeat(edges[:-1], sizes)
        ids = np.asarray(self.targets.ids[ranges(bounds[items], sizes - 1)], dtype=np.int64)
        is_first, is_last = positions == 0, positions == np.repeat(sizes - 1, sizes)
        into, following = np.empty(len(positions), dtype=np.int64), np.empty(len(positions), dtype=np.int64)
        into[is_first], into[~is_first] = self.tokenizer.cls_id, ids
        following[is_last], following[~is_last] = self.tokenizer.sep_id, ids
        return {
            "into_ids": into, "into_next": following, "into_positions": positions,
            "into_boundaries": edges.astype(np.int32), "into_lengths_host": sizes, "into_owners_host": owners,
        }  # fmt: skip

    # Learning ---------------------------------------------------------------------------------------------------------

    def counts(self, batch: Batch) -> Mapping[str, int]:
        """How many target tokens the loss sums over."""
        return {"written_loss": len(batch.targets["into_next"])}

    def loss(self, model: Encoder, batch: Batch) -> Mapping[str, Term]:
        """The cross-entropy of each next token, smoothed only while the model learns."""
        writer = writing(model)
        memory_TD, source = self.memory(model, batch)
        following_U = batch.targets["into_next"]
        count = len(following_U)
        if not count:
            return {name: Term(memory_TD.new_zeros(()), 0) for name in ("written_loss", "token_accuracy")}
        read = into(batch), memory_TD, source, batch.targets["into_owners_host"]
        x_UD = writer.decoded(*read)
        smoothing = self.config.label_smoothing if model.training else 0.0
        total, right = _next_losses(writer, (x_UD, following_U), writer.copies(x_UD, *read), smoothing)
        return {"written_loss": Term(total, count), "token_accuracy": Term(right, count)}

    def num_decisions(self, batch: Batch) -> int:
        """How many target tokens."""
        return len(batch.targets["into_next"])

    def decisions(self, model: Encoder, batch: Batch) -> Decisions:
        """Which word follows in each place of the right text (Kim & Rush 2016, word-level)."""
        writer = writing(model)
        memory_TD, source = self.memory(model, batch)
        x_UD = memory_TD[:0]
        if len(batch.targets["into_next"]):
            read = into(batch), memory_TD, source, batch.targets["into_owners_host"]
            x_UD = writer.decoded(*read)
            if copies := writer.copies(x_UD, *read):
                from filbert.nn.copying import log_chances

                return Decisions("one", log_chances(writer.word_scores(x_UD).float(), copies))
        return Decisions("one", x_UD, head=writer.word_scores)

    def derived(self, means: Mapping[str, float]) -> dict[str, float]:
        """The perplexity of a token, which an evaluation's mean loss is the logarithm of."""
        return {"perplexity": math.exp(min(means.get("written_loss", 0.0), 700.0))}

    def memory(self, model: Encoder, batch: Batch) -> tuple[Tensor, Packed]:
        """[T, D] what the writer reads of the sources, and their pack: a sequence for each stretch, or each item."""
        from filbert.nn.torch_ops import TorchHost

        packed = self.read(TorchHost(model), batch.packed)
        memory_TD, rows = model(packed), batch.targets.get("memory_rows")
        if rows is None:
            return memory_TD, batch.packed
        lengths = batch.targets["memory_lengths_host"].tolist()
        positions, boundaries = batch.targets["memory_positions"], batch.targets["memory_boundaries"]
        return memory_TD[rows], lay.gathered(batch.packed, rows, positions, boundaries, lengths)

    # Writing ----------------------------------------------------------------------------------------------------------

    def raw(self, host: Host[A], batch: Batch) -> Sequence[list[Text]]:
        """Of each item, for every stretch that was written from by itself: (ids, log-probability, whether it ended)."""
        from filbert.nn.torch_ops import TorchHost

        if not isinstance(host, TorchHost):
            raise InputError("this model writes texts, which needs torch: pip install filbert[train].")
        model, writer = host.model, writing(host.model)
        memory_TD, source = self.memory(model, batch)
        places, limits, numbers = (batch.targets[f"{name}_host"].numpy() for name in ("places", "limits", "numbers"))
        order = np.argsort(places)  # the pack's places in what was asked
        limits, numbers = limits[order], numbers[order]
        texts: list[Text] = []
        each = max(1, CELLS // (self.config.beam * model.config.vocab_size))
        for begin in range(0, len(source.lengths), each):
            end = min(begin + each, len(source.lengths))
            rows, stretch = lay.stretch(source, begin, end)
            state = writer.started(memory_TD[rows], stretch)
            texts += self._generated(writer, state, limits[begin:end].tolist(), numbers[begin:end].tolist())
        in_order = [texts[place] for place in places]
        if self.joins:
            return [[one] for one in in_order]
        parts: list[list[Text]] = [[] for _ in range(int(batch.owners.max()) + 1)]
        for owner, one in zip(batch.owners.tolist(), in_order, strict=True):
            parts[owner].append(one)
        return parts

    def _generated(self, writer: EncoderDecoder, state: State, limits: list[int], numbers: list[int]) -> list[Text]:
        """The texts that the model generates from these states, by greedy search, a beam or sampling."""
        import torch

        from filbert.nn import generation

        config, tokenizer = self.config, self.tokenizer
        silent = (tokenizer.pad_id, tokenizer.unk_id, tokenizer.cls_id, tokenizer.mask_id)
        unnamed = tuple(range(tokenizer.vocab_size, writer.config.vocab_size))
        rules = generation.Rules(
            end=tokenizer.sep_id, max_new=limits, min_new=1, banned=silent + unnamed, no_repeat=config.no_repeat
        )
        starts = torch.full((len(limits),), tokenizer.cls_id, device=next(writer.parameters()).device)
        if config.temperature:
            drawing = generation.Drawing(
                temperature=config.temperature, top_k=config.top_k, top_p=config.top_p, seed=config.seed
            )
            texts = generation.sample(writer, starts, state, rules, drawing, numbers)
        elif config.beam == 1:
            texts = generation.greedy(writer, starts, state, rules)
        else:
            width, penalty = config.beam, config.length_penalty
            texts = generation.beam(writer, starts, state, rules, width=width, length_penalty=penalty)
        return [Text(one.ids, one.score, one.ended) for one in texts]

    def predictions(self, raw: Sequence[list[Text]]) -> list[Prediction]:
        """The texts.

        scores: "score", the mean probability of a token (geometric); and where they are not 0 "unknown", the share of
        the source's tokens that the vocabulary does not have, and "cut", that of stretches whose text had to stop. Of a
        text in which nothing can be read, nothing is written.
        """
        sizes, unknown = np.diff(self.source_pieces.boundaries), self._unknown(self.source_pieces)
        shares, is_read = unknown / np.maximum(1, sizes), unknown < sizes
        return [
            _prediction(self._tokens(at, parts), parts, float(share)) if is_read[at] else _nothing(float(share))
            for at, (parts, share) in enumerate(zip(raw, shares, strict=True))
        ]

    def _tokens(self, index: int, parts: Sequence[Text]) -> list[list[str]]:
        """What was written from each part of the item; where words are copied, spelt as the source has them."""
        tokenizer = self.tokenizer
        if not self.copies:
            return [[tokenizer.token_of(token) for token in ids] for ids, _, _ in parts]
        source, vocabulary, continues = self.source_pieces[index], tokenizer.vocabulary, self.continues
        spelling_of = spellings(self.examples[index].texts[0], source, continues, vocabulary)
        return [spelt(ids, spelling_of, continues, vocabulary) for ids, _, _ in parts]

    def evaluated(self, raw: Sequence[list[Text]]) -> Report:
        """BLEU and chrF (of a vocabulary without capitals also BLEU without them) and ROUGE-L, with intervals."""
        texts, right = self._pairs(raw)
        bleu, rouge = metrics.bleu_summary(texts, right, self.tokenizer.lowercase), metrics.rouge_summary(texts, right)
        edges = {**bleu["intervals"], "rouge_l": rouge["intervals"]["rouge_l"]}
        return bleu | {"rouge_l": rouge["rouge_l"], "intervals": edges}

    def _pairs(self, raw: Sequence[list[Text]]) -> tuple[list[str], list[str]]:
        """The generated texts, and the right ones."""
        texts = [prediction.text or "" for prediction in self.predictions(raw)]
        return texts, [str(example.gold) for example in self.examples]


def _target(example: Example, index: int) -> str:
    """The right text; nothing where it is not known."""
    if example.gold is not None and not isinstance(example.gold, str):
        where, kind = example.where(index), type(example.gold).__name__
        raise InputError(f"{where}: what is to be written is of type {kind}, but must be a text.")
    return example.gold or ""


def stretches(text: str, tokens: Tokens, room: int, continues: npt.NDArray[np.bool_]) -> list[int]:
    """Token places that part a text into stretches of at most `room`: at ends of sentences, else between words.

    continues: [V] whether a token goes on with the word before it.
    """
    begins = np.searchsorted(tokens.starts, [start for start, _ in sentences(text)])
    words = np.flatnonzero(~continues[tokens.ids])
    edges, total = [0], len(tokens.ids)
    while total - edges[-1] > room:
        last = edges[-1]
        for places in (begins, words):
            place = int(places[np.searchsorted(places, last + room, side="right") - 1])
            if place > last:
                break
        edges.append(place if place > last else last + room)
    return [*edges, total]


def into(batch: Batch) -> Packed:
    """The targets of a batch as the writer gets them, where the batch is."""
    arrays = (batch.targets[f"into_{name}"] for name in ("ids", "positions", "boundaries", "lengths_host"))
    return lay.restored(*arrays)


def _joined_rows(starts: Places, sizes: Places, firsts: Places) -> dict[str, Any]:
    """Token places that lay each item's stretches end to end, and where each item begins then."""
    lengths = np.add.reduceat(sizes, firsts)
    edges = np.concatenate(([0], np.cumsum(lengths)))
    return {
        "memory_rows": ranges(starts, sizes),
        "memory_positions": np.arange(edges[-1]) - np.repeat(edges[:-1], lengths),
        "memory_boundaries": edges.astype(np.int32),
        "memory_lengths_host": lengths,
    }


def _next_losses(
    model: EncoderDecoder, learnt: tuple[Tensor, Tensor], copies: tuple[Tensor, ...] | None, smoothing: float
) -> tuple[Tensor, Tensor]:
    """The summed cross-entropy and how many are right; many tokens in turn, whose scores are made anew on the way back.

    So no more than CELLS scores are there at any time. Of a writer that copies, the words that it writes are smoothed.
    """
    import torch
    import torch.nn.functional as F
    from torch.utils.checkpoint import checkpoint

    from filbert.nn.copying import Copies, likeliest, log_chance

    def losses(x_CD: Tensor, following_C: Tensor, *copied: Tensor) -> tuple[Tensor, Tensor]:
        scores_CV = model.word_scores(x_CD).float()
        if not copied:
            right = (scores_CV.detach().argmax(-1) == following_C).sum()
            return F.cross_entropy(scores_CV, following_C, reduction="sum", label_smoothing=smoothing), right
        logs_CV = scores_CV.log_softmax(1)
        smooth, each = -smoothing * logs_CV.mean(1).sum(), Copies(*copied)
        right = (likeliest(logs_CV, each) == following_C).sum()
        return smooth - (1 - smoothing) * log_chance(logs_CV, each, following_C).sum(), right

    each = (*learnt, *(copies or ()))
    size = max(1, CELLS // model.config.vocab_size)
    if len(learnt[0]) <= size:
        return losses(*each)
    again = partial(checkpoint, losses, use_reentrant=False, preserve_rng_state=False)
    parts = [again(*part) for part in zip(*(torch.split(whole, size) for whole in each), strict=True)]
    total, right = (torch.stack(column).sum() for column in zip(*parts, strict=True))
    return total, right


def _nothing(unknown: float) -> Prediction:
    """The prediction for a text that is empty, or has no character of the vocabulary."""
    return Prediction(text="", scores={"score": 0.0, **({"unknown": unknown} if unknown else {})})


def _prediction(tokens_of: Sequence[list[str]], parts: Sequence[Text], unknown: float) -> Prediction:
    text = ""
    for tokens in tokens_of:
        text += joined(tokens, after=text)
    length = sum(len(ids) + ended for ids, _, ended in parts)
    scores = {"score": math.exp(sum(score for _, score, _ in parts) / max(1, length))}
    more = {"unknown": unknown, "cut": sum(not ended for _, _, ended in parts) / len(parts)}
    return Prediction(text=text, scores=scores | {name: value for name, value in more.items() if value})


def writing(model: Encoder) -> EncoderDecoder:
    """The model as one that writes."""
    return model  # type: ignore[return-value]
