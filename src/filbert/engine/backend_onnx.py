"""An exported model folder in; vectors of texts and outputs of heads out, by onnxruntime and NumPy, without torch.

Legend: T tokens in the pack, B sequences, D width.
It offers what `engine.backend_torch.Engine` offers, and packs as it does; it is the host of arrays that tasks ask
(nn.ops.Host).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from filbert.core import stopping
from filbert.core.errors import ONE_SEGMENT, InputError, needed, one_of
from filbert.core.records import Encoding, Floats, Packed, runs
from filbert.engine.threads import Done, Progress, check_finite, each, finite
from filbert.folder import graphs
from filbert.folder.runtime import ENCODER, FORMER_ENCODER, SMALL_ENCODER, Portable
from filbert.folder.weights import File
from filbert.nn import heads
from filbert.nn.ops import NUMPY, Numbers
from filbert.pack.lay import bins, pack
from filbert.tasks.task import AnyItems

if TYPE_CHECKING:
    from filbert.nn.crf_walk import Transitions

EXTRA = "runtime"
ACTIVATIONS = {"gelu": "gelu", "gelu-tanh": "gelu-tanh", "relu": "relu", "geglu": "gelu"}  # of a head, by the layers'
Kept = Sequence[npt.NDArray[np.bool_]]
BUDGET = 1_024  # tokens in one pack: what they become lies in the caches (experiments/2026-11-17-eight-bits.md)
PRECISIONS = ("float32", "int8")
COPIES = "add_external_initializers_from_files_in_memory"  # of SessionOptions; older ones have none
AGAIN = "export the folder again"
SEGMENTS = "token_type_embeddings.weight"


class Runtime:
    """The encoder of an exported folder in onnxruntime, and its heads in NumPy."""

    device, xp, is_training, has_torch = "cpu", NUMPY, False, False

    def __init__(self, exported: Portable, precision: str = "float32", threads: int | None = None) -> None:
        if precision not in PRECISIONS:
            raise one_of("dtype", precision, PRECISIONS)
        small = FORMER_ENCODER if (exported.folder / FORMER_ENCODER).exists() else SMALL_ENCODER
        name = ENCODER if precision == "float32" else small
        if not (exported.folder / name).exists():
            raise InputError(
                f"{exported.folder}: has no {name}; export it: filbert export MODEL --out DIR"
                f"{' --int8' if precision == 'int8' else ''}."
            )
        self.width, self.budget, self.precision = exported.config.width, BUDGET, precision
        tables = (table for name, table in exported.stored.items() if name.endswith(SEGMENTS))
        self.segments = next((table.shape[0] for table in tables), 0)  # kinds of segments that it has
        self.weights: dict[str, dict[str, Floats]] = {}  # of each head, under their names in it
        for named, array in exported.heads.items():
            part, _, rest = named.removeprefix("heads.").partition(".")
            self.weights.setdefault(part, {})[rest] = np.asarray(array, dtype=np.float32)
        self.eps, self.activation, self.pooler = exported.eps, ACTIVATIONS[exported.activation], exported.pooler
        self.threads = threads or _cores()
        self.on_progress: Progress | None = None  # called while `answers` works
        self.graph = exported.folder / name
        self.session = _session(graphs.checked(exported.folder, name, exported.stored))
        self.wanted = {node.name for node in self.session.get_inputs()}

    def keep(self) -> None:
        """Holds the weights in memory of its own. Else onnxruntime maps the folder's files for as long as it runs: one
        that is written over would change what it says, and one that is cut short would end the process."""
        self.session = _session(self.graph, is_kept=True)

    # As tasks ask it (nn.ops.Host) ------------------------------------------------------------------------------------

    def vectors(self, packed: Packed, rows: Numbers | Literal["first"] | None = None) -> Floats:
        """[T, D] the last layer's vectors, or those of some rows; "first": of each sequence's first token."""
        first = isinstance(rows, str)
        if rows is None:
            rows = np.arange(len(packed.ids))
        elif isinstance(rows, str):
            rows = np.asarray(packed.boundaries)[:-1]
        if not len(packed.ids) or not len(rows):
            return np.zeros((len(rows), self.width), dtype=np.float32)
        if self.segments == 1 and packed.segments.any():
            raise InputError(ONE_SEGMENT)
        inputs = {"ids": packed.ids, "positions": packed.positions, "segments": packed.segments, "rows": rows}
        inputs |= _stretches(packed)
        fed = {name: np.asarray(array, dtype=np.int64) for name, array in inputs.items() if name in self.wanted}
        # Folding asks of each sequence's first token, so every sequence must have one.
        fed |= {"first": np.array(first and 0 not in packed.lengths)} if "first" in self.wanted else {}
        try:
            vectors: Floats = self.session.run(None, fed)[0]
        except Exception as error:  # its own exceptions have no common parent but this
            raise InputError(f"{self.graph}: could not be run ({str(error)[:200]}); export the folder again.") from None
        if vectors.shape != (len(rows), self.width) or vectors.dtype != np.float32:
            raise InputError(f"{self.graph}: gives {vectors.shape} where {(len(rows), self.width)} is meant; {AGAIN}.")
        return finite(vectors)

    def summary(self, packed: Packed) -> Floats:
        """What a model that sums texts up in its own way makes of each: not without torch."""
        raise InputError("this model sums texts up in its own way, which needs torch: pip install filbert[train].")

    def head(self, part: str, x: Numbers) -> Floats:
        """The logits of a head for vectors, in float32; of the part `pooler` vectors."""
        if part == "pooler":
            if part not in self.weights:
                raise InputError(heads.NO_POOLER)
            mapped = heads.linear(NUMPY, self.weights[part], x)
            return NUMPY.tanh(mapped) if self.pooler == "tanh" else NUMPY.activation(self.pooler, mapped)
        if part == "mlm":
            if part not in self.weights:
                raise InputError(heads.NO_MASKED_HEAD)
            weights = {**self.weights[part], "words": self.weights["words"][""]}
            return heads.masked_words(NUMPY, weights, x, self.activation, self.eps)
        if part == "nsp" and part not in self.weights:
            raise InputError(heads.NO_PAIR_HEAD)
        spec = heads.every().get(part)
        return (spec.apply if spec is not None else heads.linear)(NUMPY, self.weights[part], x)

    def stretches(self, part: str, x_TD: Numbers, positions: Numbers, reach: int) -> Floats:
        """[T, J, C] a head's logits for every stretch of up to `reach` tokens."""
        return heads.pointer(NUMPY, self.weights[part], x_TD, positions, reach)

    def transitions(self, part: str) -> Transitions:
        """A CRF's scores of tags and of pairs of them."""
        from filbert.nn.crf_walk import Transitions

        weights = self.weights[part]
        return Transitions(weights["begin"], weights["transitions"], weights["end"])

    def dropout(self, x: Numbers) -> Numbers:
        """The same: nothing is learnt here."""
        return x

    def masked(self, packed: Packed, share: float, mask_id: int, never: Sequence[int]) -> Packed:
        """The same: nothing is learnt here."""
        return packed

    # As `embed` and `fill` ask it -------------------------------------------------------------------------------------

    def first(self, sequences: Sequence[Encoding]) -> Floats:
        """The last layer's vector of each sequence's first token ([CLS]), [B, D]."""
        return self._run(sequences, None, "first")

    def mean(self, sequences: Sequence[Encoding], kept: Kept | None = None) -> Floats:
        """The mean of each sequence's token vectors, [B, D]; with `kept`, of those tokens only."""
        return self._run(sequences, kept, None)

    def summaries(self, sequences: Sequence[Encoding]) -> Floats:
        """What a model that sums texts up in its own way makes of each: not without torch."""
        raise InputError("this model sums texts up in its own way, which needs torch: pip install filbert[train].")

    def pooled(self, first_BD: Floats) -> Floats:
        """BERT's tanh layer on first vectors, [B, D]."""
        return self.head("pooler", first_BD)

    @property
    def fills(self) -> bool:
        """Whether it can say what a blank should hold."""
        return "mlm" in self.weights

    def word_scores(self, sequence: Encoding, places: npt.NDArray[np.intp]) -> Floats:
        """Scores over the vocabulary for some tokens of one sequence, [R, V]."""
        stopping.current().check()
        packed, _ = pack([sequence])
        return self.head("mlm", self.vectors(packed, places))

    def answers(self, task: AnyItems) -> list[Any]:
        """The raw output of a task's head for each of its items, in order."""
        out: list[Any] = [None] * len(task)

        def answer_group(group: list[int]) -> None:
            for index, answer in zip(group, task.raw(self, task.batch(np.asarray(group))), strict=True):
                check_finite(answer)
                out[index] = answer
            if done is not None:
                done.add(sum(lengths[index] for index in group))

        lengths = task.lengths.tolist()
        done = None if self.on_progress is None else Done(sum(lengths), self.on_progress)
        each(answer_group, list(bins(lengths, self.budget))[::-1], self.threads)
        return out

    def _run(self, sequences: Sequence[Encoding], kept: Kept | None, rows: Literal["first"] | None) -> Floats:
        out = np.empty((len(sequences), self.width), dtype=np.float32)

        def run_group(group: list[int]) -> None:
            packed, starts = pack([sequences[index] for index in group])
            order = np.argsort(starts, kind="stable")
            places = np.asarray(group)[order]
            vectors: Numbers = self.vectors(packed, rows)
            lengths = np.diff(packed.boundaries)
            if rows is None and kept is None:
                vectors = NUMPY.float32(NUMPY.segment_sum(vectors, lengths) / lengths[:, None])
            elif rows is None and kept is not None:
                counted = np.concatenate([kept[index] for index in places]).astype(np.float32)[:, None]
                vectors = NUMPY.segment_sum(vectors * counted, lengths) / NUMPY.segment_sum(counted, lengths)
            out[places] = vectors

        each(run_group, list(bins([len(sequence) for sequence in sequences], self.budget))[::-1], self.threads)
        return out


def _stretches(packed: Packed) -> dict[str, npt.NDArray[np.int64]]:
    """The runs of sequences of one length as the graph takes them (ship.encoder.RUN)."""
    starts, counts, lengths = np.array(list(runs(packed.lengths)), dtype=np.int64).T
    ends = np.cumsum(counts)
    return {
        "begins": starts[:, None], "ends": (starts + counts * lengths)[:, None],
        "shapes": np.column_stack((counts, lengths, np.full_like(counts, -1))),
        "places": np.column_stack((ends - counts, ends)),
        "starts": starts, "counts": counts, "lengths": lengths,  # what folders of the first export take
    }  # fmt: skip


def _session(path: Path, is_kept: bool = False) -> Any:
    """The graph, loaded: every run takes one thread, since packs are worked on side by side."""
    runtime = needed("onnxruntime", EXTRA)
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    if is_kept and hasattr(options, COPIES):
        files = sorted(path.parent.glob("*.safetensors"))
        raw = [File(file).bytes for file in files]
        getattr(options, COPIES)([file.name for file in files], raw, [len(data) for data in raw])
    try:
        return runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its own exceptions have no common parent but this
        raise InputError(f"{path}: onnxruntime cannot read it ({str(error)[:200]}); export the folder again.") from None


def _cores() -> int:
    """Threads to take: OMP_NUM_THREADS, of which a list speaks of nested levels, else one for each core."""
    value = os.environ.get("OMP_NUM_THREADS", "").strip()
    first = value.partition(",")[0].strip()
    if value and not first.isdecimal():
        raise InputError(f"OMP_NUM_THREADS is {value!r}, but must be a whole number, such as 4.")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return int(first or 0) or cores
