"""Distillation: a task and a teacher in, a task out whose loss also says how far a student is from that teacher.

The loop knows nothing of it: it gets a task. The teacher reads the very batch that the student reads, without dropout
or gradients, where the student is and as precisely: nothing hangs on workers, and a run that was killed goes on bit for
bit. What is compared is what the heads say (`Decisions`) and, where asked for, the vectors behind the layers (Sanh et
al. 2019) and how the tokens of a sequence relate in one layer (Wang et al. 2021).
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from filbert.core import settings
from filbert.core.errors import InputError, one_of
from filbert.core.protocols import Batch, Decisions, Term
from filbert.nn import maps
from filbert.nn.layers import SelfAttention
from filbert.teach import losses

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


class Distilled:
    """A task whose student has a teacher; all but what is learnt is the task's own.

    inner: the task. taught: the teacher's, made of its labels and config, and its model. known: the share of the
    examples that have gold, by which its loss weighs: a rare label does not count for more than a frequent one.
    """

    one_graph = False  # the teacher is no part of a compiled graph

    def __init__(self, inner: Any, taught: tuple[Any, Any], config: Config, known: float = 1.0) -> None:
        self.inner, self.distil = inner, config
        self.asked, self.teacher = taught[0], taught[1].eval().requires_grad_(False)
        self.gold_weight = config.gold * known if getattr(inner, "has_gold", True) else 0.0
        self.relation_heads = 0

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "inner":  # whoever copies asks before there is anything
            raise AttributeError(name)
        return getattr(self.inner, name)

    def __len__(self) -> int:
        return len(self.inner)

    @property
    def teaches(self) -> bool:
        """Whether there is anything to learn from: any text will do."""
        return len(self) > 0

    @property
    def parts(self) -> tuple[str, ...]:
        """Of the student: the task's heads, where anything is learnt by them."""
        return tuple(self.inner.parts) if self.distil.soft or self.gold_weight else ()

    def identity(self) -> dict[str, str]:
        """What a resumed run must find unchanged besides the task's own."""
        made = hashlib.sha256(repr((self.distil, self.gold_weight)).encode())
        for name, value in self.teacher.state_dict().items():
            made.update(name.encode())
            made.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
        return {"teacher": made.hexdigest()[:16]}

    # The student ------------------------------------------------------------------------------------------------------

    def adapt(self, student: nn.Module) -> None:
        """Puts in what it needs while it learns: maps to the teacher's width. Refuses what cannot be compared."""
        own, theirs = int(student.width), int(self.teacher.width)  # type: ignore[arg-type]
        wanted = [f"layer{index}" for index in range(len(self._layers(student)))] if self.distil.hidden else []
        wanted += ["vector"] if not self.inner.parts and self.distil.soft else []
        if self.distil.relations:
            self._check_relations(student)
        if own != theirs and wanted and not hasattr(student, BRIDGE):
            made = {name: nn.Linear(own, theirs, bias=False) for name in wanted}
            setattr(student, BRIDGE, nn.ModuleDict(made))

    def begin(self, student: nn.Module) -> None:
        """Tells a fresh student what its task knows beforehand, where it learns by that task's heads."""
        if self.parts and hasattr(self.inner, "begin"):
            self.inner.begin(student)

    @staticmethod
    def release(student: nn.Module) -> None:
        """Takes the maps away: a finished student has its own width."""
        if hasattr(student, BRIDGE):
            delattr(student, BRIDGE)

    def _layers(self, student: nn.Module) -> list[tuple[nn.Module, nn.Module]]:
        """The student's layers, each with that of the teacher that stands as high."""
        both = [list(getattr(model, "layers", ())) for model in (student, self.teacher)]
        if not all(both):
            raise InputError("distil.hidden compares layers, but one of the models has none; leave it out.")
        own, theirs = both
        return [(layer, theirs[(at + 1) * len(theirs) // len(own) - 1]) for at, layer in enumerate(own)]

    def _sites(self, student: nn.Module) -> tuple[maps.Site, maps.Site]:
        """The attentions whose relations are compared: the student's and the teacher's."""
        found = []
        for model, layer, whose in (
            (student, self.distil.student_layer, "student"), (self.teacher, self.distil.teacher_layer, "teacher"),
        ):  # fmt: skip
            own = [site for site in maps.sites(model) if site.kind == "self" and site.attention.heads]
            count = len(getattr(model, "layers", ()))
            fitting = own[-1:] if not layer else [site for site in own if site.layer == layer - 1]
            if not fitting:
                what = "it attends to nothing" if not own else f"it has {count} layers, some perhaps without heads"
                raise InputError(f"distil.{whose}_layer is {layer}, but of the {whose} {what}.")
            found.append(fitting[0])
        return found[0], found[1]

    def _attentions(self, student: nn.Module) -> list[SelfAttention]:
        return [site.attention for site in self._sites(student) if isinstance(site.attention, SelfAttention)]

    def _check_relations(self, student: nn.Module) -> None:
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
        found: dict[str, float] = dict(self.inner.counts(batch)) if self.gold_weight else {}
        tokens = int(batch.packed.boundaries[len(batch.starts)])
        if self.distil.soft:
            found["soft_loss"] = self.inner.num_decisions(batch)
        more = {"hidden_loss": self.distil.hidden, "relation_loss": self.distil.relations}
        return found | {name: tokens for name, weight in more.items() if weight}

    def loss(self, model: Any, batch: Batch) -> Mapping[str, Term]:
        """The task's own losses by their weight, and how far the student is from its teacher."""
        self._settle(model)
        read, once = self._read(batch), Once(model)
        inside = getattr(model, "model", model) if not isinstance(model, nn.Module) else model
        with torch.no_grad(), self._looking(self.teacher, 1, inside) as theirs:
            taught = self._said(self.asked, self.teacher, read)
        with self._looking(inside, 0, inside) as own:
            said = self._said(self.inner, once, read)
        terms: dict[str, Term] = {}
        if self.gold_weight:
            for name, term in self.inner.loss(once, batch).items():
                weight = self.gold_weight if name.endswith("_loss") else 1
                terms[name] = Term(term.total * weight, term.count)
        if said is not None and taught is not None:
            bridge = getattr(model, BRIDGE, {})
            off = losses.apart(said, taught, self.distil.temperature, _piece(bridge, "vector"))
            terms["soft_loss"] = Term(self.distil.soft * off, self.inner.num_decisions(batch))
        return terms | self._insides(inside, batch, own, theirs)

    def _said(self, task: Any, model: Any, batch: Batch) -> Decisions | None:
        """What a model's head says; where that is not compared it reads all the same, for what is inside."""
        if self.distil.soft:
            found: Decisions = task.decisions(model, batch)
            return found
        model(batch.packed)
        return None

    def _read(self, batch: Batch) -> Batch:
        """The batch as both read it: without blanks where nobody is asked to fill them."""
        targets = batch.targets
        if "mask_ids" not in targets or self.distil.soft or self.gold_weight:
            return batch
        known = targets["mask_ids"] >= 0
        ids = batch.packed.ids.clone()
        ids[targets["mask_rows"][known]] = targets["mask_ids"][known].to(ids.dtype)
        return Batch(batch.packed.with_ids(ids), batch.starts, batch.owners, targets)

    def _settle(self, student: Any) -> None:
        """The teacher where the student computes, and as precisely."""
        like, own = next(student.parameters()), next(self.teacher.parameters())
        if (own.device, own.dtype) != (like.device, like.dtype):
            self.teacher.to(like.device, like.dtype)

    @contextlib.contextmanager
    def _looking(self, model: nn.Module, side: int, student: nn.Module) -> Iterator[dict[Any, Any]]:
        """Within it, a run of the model leaves what is compared: outputs by layer, and its attention's input."""
        found: dict[Any, Any] = {}
        with contextlib.ExitStack() as stack:
            if self.distil.relations:
                site = self._sites(student)[side]
                kept = stack.enter_context(maps.kept([site]))
                stack.callback(lambda: found.update(related=kept.get(site)))
            if self.distil.hidden:
                for index, pair in enumerate(self._layers(student)):
                    handle = pair[side].register_forward_hook(_keeping(found, index))
                    stack.callback(handle.remove)
            yield found

    def _insides(
        self, student: nn.Module, batch: Batch, own: Mapping[Any, Any], theirs: Mapping[Any, Any]
    ) -> dict[str, Term]:
        terms, edges = {}, batch.packed.boundaries
        tokens = edges[len(batch.starts)]
        if self.distil.hidden:
            bridge, total, layers = getattr(student, BRIDGE, {}), edges.new_zeros((), dtype=torch.float32), 0
            for index in (name for name in own if name != "related"):
                if own[index].shape[0] != theirs[index].shape[0]:  # a last layer that was asked for other rows
                    continue
                total = total + losses.hidden_apart(own[index], theirs[index], _piece(bridge, f"layer{index}"))
                layers += 1
            terms["hidden_loss"] = Term(self.distil.hidden * total / max(1, layers), tokens)
        if self.distil.relations:
            attentions, lengths = self._attentions(student), batch.packed.lengths[: len(batch.starts)]
            both = [
                [each.flatten(1) for each in attention.projected(got["related"].x_TD, 0, 3)]
                for attention, got in zip(attentions, (own, theirs), strict=True)
            ]
            off = losses.relations_apart(both[0], both[1], lengths, self.relation_heads, self.distil.related)
            terms["relation_loss"] = Term(self.distil.relations * off, tokens)
        return terms


class Once:
    """Stands for a student in a step: what it read for its teacher need not be read again for the gold."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.found: dict[Any, Tensor] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def __call__(self, packed: Any, rows: Any = None) -> Tensor:
        """As the model's own; an answer serves one more time, so that whoever wants two readings gets two."""
        key = packed.boundaries.data_ptr(), rows if not isinstance(rows, Tensor) else (rows.data_ptr(), rows.shape)
        if key in self.found:
            return self.found.pop(key)
        self.found[key] = found = self.model(packed, rows)
        return found  # type: ignore[no-any-return]


def _keeping(found: dict[Any, Any], index: int) -> Any:
    def hook(module: nn.Module, args: Any, output: Tensor) -> None:
        found[index] = output

    return hook


def _piece(bridge: Any, name: str) -> nn.Module | None:
    return next((piece for called, piece in bridge.items() if called == name), None)
