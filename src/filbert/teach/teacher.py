"""Distillation: a task and a teacher in, a task out whose loss also says how far a student is from that teacher.

The loop knows nothing of it: it gets a task. The teacher reads the very batch that the student reads, without dropout
or gradients, where the student is and as precisely: nothing hangs on workers, and a run that was killed goes on bit for
bit. What is compared is what the heads say (`Decisions`) and, where asked for, the vectors behind the layers (Sanh et
al. 2019) and how the tokens of a sequence relate in one layer (Wang et al. 2021).
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from filbert.core import settings
from filbert.core.errors import InputError, one_of
from filbert.core.protocols import Batch, Decisions, Plan, Term
from filbert.core.records import Example, Packed
from filbert.engine.reader import AnyReader
from filbert.folder.folder import Loaded
from filbert.nn import maps
from filbert.nn.encoder import Encoder, standing_in
from filbert.nn.layers import SelfAttention
from filbert.tasks.task import AnyItems, AnyTask, Items, Trait
from filbert.teach import losses
from filbert.train.scores import scored

FITTED = ("temperature", "threshold", "several")  # of a task's config: what dev data fit
TOKENS = 16_384  # that the teacher reads at a time to write what is missing
BRIDGE = "bridge"  # of the student while it learns: maps of its vectors to the teacher's width


@dataclass(frozen=True, kw_only=True)
class Config:
    """What a student learns from its teacher, and how much of it."""

    soft: float = 1.0  # weight of what the teacher's head says
    gold: float = 0.5  # weight of the data's own labels, where they have some
    temperature: float = 2.0  # that softens the scores of both
    hidden: float = 0.0  # weight of the vectors behind each layer
    relations: float = 0.0  # weight of how tokens relate in one layer
    pairs: str = "qq,kk,vv"  # of queries, keys and values; qk,vv are those of the first MiniLM
    relation_heads: int = 0  # 0: the most of 16 numbers or more into which both models can be parted
    teacher_layer: int = 0  # whose relations are learnt, from 1; 0: the last
    student_layer: int = 0  # that learns them

    def __post_init__(self) -> None:
        for name in ("soft", "gold", "hidden", "relations"):
            if not 0 <= getattr(self, name) <= 1_000:
                raise InputError(f"distil.{name} is {getattr(self, name)!r}, but must be from 0 to 1,000.")
        settings.check_positive("distil", self, temperature=100)
        settings.check_whole("distil", self, relation_heads=0, teacher_layer=0, student_layer=0)
        for pair in self.related:
            if pair not in losses.PAIRS:
                raise one_of("distil.pairs", pair, losses.PAIRS)
        if not (self.soft or self.hidden or (self.relations and self.related)):
            raise InputError("distil.soft, distil.hidden and distil.relations are all 0: the teacher teaches nothing.")

    @property
    def related(self) -> tuple[str, ...]:
        """The pairs of which relations are made."""
        named = (pair.strip() for pair in self.pairs.split(","))
        return tuple(dict.fromkeys(pair for pair in named if pair))

    @property
    def looks_inside(self) -> bool:
        """Whether more than the heads is compared: then no pass can be recorded."""
        return bool(self.hidden or self.relations)


@dataclass
class Inside:
    """What a pass left of a model: the outputs of layers, and what the compared attention got."""

    outputs: dict[int, Tensor] = dataclasses.field(default_factory=dict)
    attended: maps.Kept | None = None


class Distilled(Items[Any]):
    """A task whose student has a teacher; all but what is learnt is the task's own.

    inner: the task. theirs: the teacher's task, made of its labels and config; teacher: its model. share: of the
    examples that have gold, by which the task's own loss weighs: a rare label does not count for more than a frequent
    one.
    """

    one_graph = False  # the teacher is no part of a compiled graph

    def __init__(self, inner: AnyTask, theirs: AnyTask, teacher: Encoder, config: Config, share: float = 1.0) -> None:
        self.inner, self.config, self.distil = inner, inner.config, config
        self.theirs, self.teacher = theirs, teacher.eval().requires_grad_(False)
        self.gold_weight = config.gold * share if inner.has_gold else 0.0
        # Of the student: the task's heads, where anything is learnt by them.
        self.parts = tuple(inner.parts) if config.soft or self.gold_weight else ()
        self.longest, self.window_tokens = inner.longest, inner.window_tokens
        self.relation_heads = 0

    def __len__(self) -> int:
        return len(self.inner)

    def plan(self, epoch: int) -> Plan:
        """The task's own."""
        return self.inner.plan(epoch)

    def batch(self, orders: object, budget: int | None = None) -> Batch:
        """The task's own."""
        return self.inner.batch(orders, budget)

    def derived(self, means: Mapping[str, float]) -> Mapping[str, float]:
        """The task's own, of the losses that are left of it."""
        return self.inner.derived(means)

    def identity(self) -> dict[str, str]:
        """What a resumed run must find unchanged besides the task's own."""
        made = hashlib.sha256(repr((self.distil, self.gold_weight)).encode())
        for name, value in self.teacher.state_dict().items():
            made.update(name.encode())
            made.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
        return {"teacher": made.hexdigest()[:16]}

    # The student ------------------------------------------------------------------------------------------------------

    def adapt(self, student: Encoder) -> None:
        """Puts in what it needs while it learns: maps to the teacher's width. Refuses what cannot be compared."""
        width, teacher_width = student.width, self.teacher.width
        wanted = [f"layer{index}" for index in range(len(self._layers(student)))] if self.distil.hidden else []
        wanted += ["vector"] if not self.inner.parts and self.distil.soft else []
        if self.distil.relations:
            self._check_relations(student)
        if width != teacher_width and wanted and not _maps(student):
            made = {name: nn.Linear(width, teacher_width, bias=False) for name in wanted}
            student.add_module(BRIDGE, nn.ModuleDict(made))

    def begin(self, student: Encoder) -> None:
        """Tells a fresh student what its task knows beforehand, where it learns by that task's heads."""
        if self.parts:
            self.inner.begin(student)

    @staticmethod
    def release(student: Encoder) -> None:
        """Takes the maps away: a finished student has its own width."""
        if _maps(student):
            delattr(student, BRIDGE)

    def _layers(self, student: Encoder) -> list[tuple[nn.Module, nn.Module]]:
        """The student's layers, each with that of the teacher that stands as high."""
        layers, teacher_layers = student.stack, self.teacher.stack
        if not (layers and teacher_layers):
            raise InputError("distil.hidden compares layers, but one of the models has none; leave it out.")
        each = len(teacher_layers)
        return [(layer, teacher_layers[(at + 1) * each // len(layers) - 1]) for at, layer in enumerate(layers)]

    def _sites(self, student: Encoder) -> tuple[maps.Site, maps.Site]:
        """The attentions whose relations are compared: the student's and the teacher's."""
        chosen = []
        for model, layer, whose in (
            (student, self.distil.student_layer, "student"), (self.teacher, self.distil.teacher_layer, "teacher"),
        ):  # fmt: skip
            sites = [site for site in maps.sites(model) if site.kind == "self" and site.attention.heads]
            count = len(model.stack)
            fitting = sites[-1:] if not layer else [site for site in sites if site.layer == layer - 1]
            if not fitting:
                what = "it attends to nothing" if not sites else f"it has {count} layers, some perhaps without heads"
                raise InputError(f"distil.{whose}_layer is {layer}, but of the {whose} {what}.")
            chosen.append(fitting[0])
        return chosen[0], chosen[1]

    def _attentions(self, student: Encoder) -> list[SelfAttention]:
        return [site.attention for site in self._sites(student) if isinstance(site.attention, SelfAttention)]

    def _check_relations(self, student: Encoder) -> None:
        widths = [attention.qkv.out_features // 3 for attention in self._attentions(student)]
        heads = self.distil.relation_heads or losses.relation_heads(widths)
        if any(width % heads for width in widths):
            raise InputError(
                f"distil.relation_heads is {heads}, but must divide both models' widths of all heads, "
                f"{widths[0]} and {widths[1]}."
            )
        self.relation_heads = heads

    # The loss ---------------------------------------------------------------------------------------------------------

    def counts(self, batch: Batch) -> dict[str, float]:
        """Over how many things each loss of this batch sums."""
        counts: dict[str, float] = dict(self.inner.counts(batch)) if self.gold_weight else {}
        tokens = int(batch.packed.boundaries[len(batch.starts)])
        if self.distil.soft:
            counts["soft_loss"] = self.inner.num_decisions(batch)
        more = {"hidden_loss": self.distil.hidden, "relation_loss": self.distil.relations}
        return counts | {name: tokens for name, weight in more.items() if weight}

    def loss(self, model: Encoder, batch: Batch) -> Mapping[str, Term]:
        """The task's own losses by their weight, and how far the student is from its teacher."""
        self._settle(model)
        read, once = self._read(batch), standing_in(model, Once(model))
        with torch.no_grad(), self._looking(self.teacher, 1, model) as teacher_inside:
            taught = self._decisions(self.theirs, self.teacher, read)
        with self._looking(model, 0, model) as student_inside:
            decisions = self._decisions(self.inner, once, read)
        terms: dict[str, Term] = {}
        if self.gold_weight:
            for name, term in self.inner.loss(once, batch).items():
                weight = self.gold_weight if name.endswith("_loss") else 1
                terms[name] = Term(term.total * weight, term.count)
        if decisions is not None and taught is not None:
            off = losses.apart(decisions, taught, self.distil.temperature, _maps(model).get("vector"))
            terms["soft_loss"] = Term(self.distil.soft * off, self.inner.num_decisions(batch))
        return terms | self._insides(model, batch, student_inside, teacher_inside)

    def _decisions(self, task: AnyTask, model: Encoder, batch: Batch) -> Decisions | None:
        """The decisions of a model's head; without `distil.soft` only a forward pass, for the hooks."""
        if self.distil.soft:
            return task.decisions(model, batch)
        model(batch.packed)
        return None

    def _read(self, batch: Batch) -> Batch:
        """The batch as both read it: unmasked where masked words are not predicted."""
        return batch if self.distil.soft or self.gold_weight else self.inner.unhidden(batch)

    def _settle(self, student: Encoder) -> None:
        """The teacher where the student computes, and as precisely."""
        like, weight = next(student.parameters()), next(self.teacher.parameters())
        if (weight.device, weight.dtype) != (like.device, like.dtype):
            self.teacher.to(like.device, like.dtype)

    @contextlib.contextmanager
    def _looking(self, model: Encoder, side: int, student: Encoder) -> Iterator[Inside]:
        """Within it, a forward pass keeps what is compared: outputs by layer, and the attention's input."""
        inside = Inside()
        with contextlib.ExitStack() as stack:
            if self.distil.relations:
                site = self._sites(student)[side]
                kept = stack.enter_context(maps.kept([site]))
                stack.callback(lambda: setattr(inside, "attended", kept.get(site)))
            if self.distil.hidden:
                for index, pair in enumerate(self._layers(student)):
                    handle = pair[side].register_forward_hook(_keeping(inside, index))
                    stack.callback(handle.remove)
            yield inside

    def _insides(
        self, student: Encoder, batch: Batch, student_inside: Inside, teacher_inside: Inside
    ) -> dict[str, Term]:
        terms, edges = {}, batch.packed.boundaries
        tokens = edges[len(batch.starts)]
        if self.distil.hidden:
            bridge, total, layers = _maps(student), edges.new_zeros((), dtype=torch.float32), 0
            for index, one in student_inside.outputs.items():
                two = teacher_inside.outputs[index]
                if one.shape[0] != two.shape[0]:  # a last layer that was asked for other rows
                    continue
                total = total + losses.hidden_apart(one, two, bridge.get(f"layer{index}"))
                layers += 1
            terms["hidden_loss"] = Term(self.distil.hidden * total / max(1, layers), tokens)
        if self.distil.relations:
            attentions, lengths = self._attentions(student), batch.packed.lengths[: len(batch.starts)]
            both = []
            for attention, inside in zip(attentions, (student_inside, teacher_inside), strict=True):
                assert inside.attended is not None, "the attention was called in the pass"
                both.append([each.flatten(1) for each in attention.projected(inside.attended.x_TD, 0, 3)])
            off = losses.relations_apart(both[0], both[1], lengths, self.relation_heads, self.distil.related)
            terms["relation_loss"] = Term(self.distil.relations * off, tokens)
        return terms


class Once:
    """A student's vectors in a step, cached once: the passes for the teacher and for the gold share them."""

    def __init__(self, model: Encoder) -> None:
        self.model = model
        self.vectors: dict[tuple[Hashable, ...], Tensor] = {}

    def __call__(self, packed: Packed, rows: Tensor | str | None = None) -> Tensor:
        """As the model's own; an answer serves one more time, so that whoever wants two readings gets two."""
        key = packed.boundaries.data_ptr(), rows if not isinstance(rows, Tensor) else (rows.data_ptr(), rows.shape)
        if key in self.vectors:
            return self.vectors.pop(key)
        self.vectors[key] = vectors = self.model(packed, rows)
        return vectors  # type: ignore[no-any-return]


def _keeping(inside: Inside, index: int) -> Callable[[nn.Module, tuple[object, ...], Tensor], None]:
    def hook(module: nn.Module, args: tuple[object, ...], output: Tensor) -> None:
        inside.outputs[index] = output

    return hook


def _maps(student: Encoder) -> dict[str, nn.Module]:
    """The maps of its vectors to the teacher's width, while it has some."""
    return {
        name: piece for at, each in student.named_children() if at == BRIDGE for name, piece in each.named_children()
    }


# Teachers -------------------------------------------------------------------------------------------------------------


class Teacher:
    """The interface of a teacher; this base class teaches nothing and leaves the task as it is."""

    folder: str = ""  # where its model lies; "" without a teacher
    labels: tuple[str, ...] = ()
    sections: Mapping[str, type] = MappingProxyType({})  # of a recipe's settings

    @property
    def is_there(self) -> bool:
        """Whether there is a teacher."""
        return bool(self.folder)

    def task_fields(self, usual: Mapping[str, object], student: Encoder) -> dict[str, Any]:
        """The fields of the student's task, from those that it would have without a teacher."""
        return dict(usual)

    def filled(self, examples: Sequence[Example]) -> list[Example]:
        """The examples, with gold where the teacher can write some that is missing."""
        return list(examples)

    def labelled(self, examples: Sequence[Example]) -> list[Example]:
        """Those that have gold."""
        return list(examples)

    def teaches(self, items: AnyItems) -> bool:
        """Whether there is anything to learn from."""
        return items.teaches

    def wrapped(self, items: AnyTask, config: Config | None, examples: Sequence[Example] = ()) -> Items[Any]:
        """The task with its teacher; examples: what the task was made of."""
        return items

    def adapt(self, student: Encoder, *tasks: Items[Any]) -> None:
        """Puts into a student what it needs while it learns by these tasks."""

    def identity(self, items: AnyTask) -> dict[str, str]:
        """What a resumed run must find unchanged besides the task's own."""
        return {}

    def release(self, student: Encoder) -> None:
        """Takes out again what a student needed to learn."""


NO_TEACHER = Teacher()


class ReadingTeacher(Teacher):
    """Teaches its vectors and masked words of raw text."""

    sections: Mapping[str, type] = MappingProxyType({"distil": Config})

    def __init__(self, loaded: Loaded) -> None:
        self.folder, self.model = str(loaded.folder), loaded.model

    def teaches(self, items: AnyItems) -> bool:
        """Any text will do."""
        return len(items) > 0

    def wrapped(self, items: AnyTask, config: Config | None, examples: Sequence[Example] = ()) -> Distilled:
        """The task with its teacher, who reads it as the student does."""
        return Distilled(items, items, self.model, config or Config())

    def adapt(self, student: Encoder, *tasks: Items[Any]) -> None:
        """Puts in maps to the teacher's width."""
        for each in tasks:
            each.adapt(student)

    def identity(self, items: AnyTask) -> dict[str, str]:
        """The teacher's weights, and what is learnt from it."""
        return items.identity() if isinstance(items, Distilled) else {}

    def release(self, student: Encoder) -> None:
        """Takes the maps away."""
        Distilled.release(student)


class TaskTeacher(ReadingTeacher):
    """Teaches the task that it was fine-tuned for.

    reader: how it reads texts for that task. fits: whether dev data fix anew what they fix of a task.
    """

    def __init__(self, loaded: Loaded, reader: AnyReader, fits: bool) -> None:
        super().__init__(loaded)
        self.reader, self.config, self.labels, self.fits = reader, reader.config, reader.labels, fits

    @property
    def writes(self) -> bool:
        """Whether its answers are texts."""
        return Trait.WRITES in self.reader.spec.traits

    def task_fields(self, usual: Mapping[str, object], student: Encoder) -> dict[str, Any]:
        """As its teacher reads, but for what learning alone needs."""
        fields = dict(vars(self.config))
        names = tuple(fields)
        if self.fits and not self.writes:
            fresh = vars(self.reader.spec.config())
            fields |= {name: fresh[name] for name in FITTED if name in fields}
            fields |= {"several": True} if vars(self.config).get("several") else {}
        fields["max_length"] = min(self.config.max_length, student.config.max_length)
        fields["mask_prob"] = usual["mask_prob"]
        if fields.get("pool") == "own" or "pool" in usual:
            fields["pool"] = usual.get("pool", "mean")
        return {name: value for name, value in fields.items() if name in names}

    def labelled(self, examples: Sequence[Example]) -> list[Example]:
        """Those that have gold."""
        label = self.reader.spec.gold_label
        return [each for each in examples if label(each) is not None]

    def filled(self, examples: Sequence[Example]) -> list[Example]:
        """Where texts are written, what the teacher writes stands for a missing one (Kim & Rush 2016)."""
        places = [place for place, example in enumerate(examples) if example.gold is None] if self.writes else []
        filled = list(examples)
        if places:
            items = self.reader.items([examples[place] for place in places])
            answers = items.predictions(scored(self.model, items, TOKENS))
            for place, answer in zip(places, answers, strict=True):
                filled[place] = dataclasses.replace(filled[place], gold=answer.text or None)
        return filled

    def wrapped(self, items: AnyTask, config: Config | None, examples: Sequence[Example] = ()) -> Distilled:
        """The task with its teacher; its own loss weighs as much as there are labels."""
        share = len(self.labelled(examples)) / max(1, len(examples))
        if Trait.NEEDS_NO_GOLD in self.reader.spec.traits:
            share = 1.0  # the task itself says what of its data teaches
        return Distilled(items, self.reader.items([]), deepcopy(self.model), config or Config(), share)
