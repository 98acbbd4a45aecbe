"""What every task is: its record (a spec), and its items: data in, batches, losses, predictions and metrics out.

A task lives in a folder of its own, `tasks/NAME` or a package that names itself under the entry point
`filbert.tasks`: `spec.py` holds SPEC, a `TaskSpec` (or a `CorpusSpec`, of tasks that learn from plain text). Nobody
outside of it spells its name: whatever is true of it alone is a field of that record.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from filbert.core.protocols import Batch, Decisions, Objective, Plan, Term
from filbert.core.records import Example, Prediction
from filbert.nn.ops import A, Host
from filbert.tasks.wire import SPOKEN, Wire
from filbert.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from filbert.forms.spec import FileSpec
    from filbert.nn.encoder import Encoder
    from filbert.nn.heads import HeadSpec
    from filbert.tasks.probing import Probing
    from filbert.tasks.question import Question, Reading, Target
    from filbert.tasks.view import View

Places = npt.NDArray[np.int64]
Json = dict[str, Any]
Report = dict[str, Any]
Asked = str | tuple[Any, ...]  # a text, a pair of them, or what a task's record takes (`TaskSpec.asked`)
C = TypeVar("C")  # the task's config
R = TypeVar("R")  # what its head says of one example


class Trait(Enum):
    """What is true of some tasks, for code that serves them all."""

    WRITES = "writes"  # its answer is a text that a decoder writes
    AUGMENTS = "augments"  # a text with some words changed keeps its label
    NEEDS_NO_GOLD = "needs no gold"  # texts as they are can be learnt from
    RANKS = "ranks"  # it says several things of a text, of which the likeliest can be asked for alone
    ANY_TEXT = "any text"  # whatever a text holds, it can be asked, and the answer is short
    CHOOSES = "chooses"  # it always gives one of what there is, with a probability that dev data calibrate
    USUAL = "usual"  # it is meant where a text and a label are at hand, and nobody names a task
    UNTAUGHT = "untaught"  # it needs no example: a template with a blank, and words for each label, say all of it
    OPTIONS = "options"  # texts of an example are options to choose among


class FolderModel(Protocol):
    """The model of a folder, with torch or without: what its config and its parts tell."""

    @property
    def config(self) -> Reads:
        """Its shape."""
        ...

    @property
    def parts(self) -> tuple[str, ...]:
        """The heads that it has."""
        ...


class Reads(Protocol):
    """What the config of a model, or of a task, says of how texts are read."""

    @property
    def max_length(self) -> int:
        """Tokens of a window at most."""
        ...


@dataclass(frozen=True, slots=True)
class Fit:
    """A task's config with what dev data fix of it, and what is to be told of that."""

    config: Any
    note: str = ""


class Items(ABC, Generic[C]):
    """A task's data: what an epoch holds, batches of it, and the loss of a model on one.

    What is optional has a default here.
    """

    config: C
    parts: tuple[str, ...] = ()  # of a model that can be trained by it
    longest: int = 0  # tokens of a sequence at most, where a graph is compiled or recorded; 0: unbounded
    window_tokens: npt.NDArray[np.int64] = np.zeros(0, dtype=np.int64)  # of each sequence, where they are known
    has_gold: bool = True  # whether the data say more than a teacher does
    one_graph: bool = True  # false: some of the loss must stay outside of a compiled graph

    @abstractmethod
    def __len__(self) -> int:
        """How many items an epoch has."""

    @abstractmethod
    def plan(self, epoch: int) -> Plan:
        """Lengths of all items of an epoch, and orders to build any of them from, in whatever process."""

    @abstractmethod
    def batch(self, orders: Any, budget: int | None = None) -> Batch:
        """These items packed, with their targets; with `budget` every array but the boundaries is of one size."""

    @abstractmethod
    def counts(self, batch: Batch) -> Mapping[str, float]:
        """Over how many things each loss of this batch sums, known before it is computed: {"label_loss": 32, …}."""

    @abstractmethod
    def loss(self, model: Encoder, batch: Batch) -> Mapping[str, Term]:
        """The terms: those whose names end in `_loss` are descended, each as its mean; the others are logged."""

    def begin(self, model: Encoder) -> None:
        """Sets in a new model what follows from the data alone, such as how frequent each word is."""

    def adapt(self, model: Encoder) -> None:
        """Puts into a model what it needs only while it learns."""

    def derived(self, means: Mapping[str, float]) -> Mapping[str, float]:
        """What follows from the mean terms of an evaluation, such as a perplexity."""
        return {}

    def decisions(self, model: Encoder, batch: Batch) -> Decisions:
        """The head's scores of a batch, in a shape by which a student is compared with its teacher."""
        raise NotImplementedError(f"{type(self).__module__} cannot be distilled")

    def unhidden(self, batch: Batch) -> Batch:
        """The batch, on a device, as it was before any of its tokens were hidden."""
        return batch

    def num_decisions(self, batch: Batch) -> int:
        """Over how many things such a comparison sums."""
        raise NotImplementedError(f"{type(self).__module__} cannot be distilled")


class Labelled(Items[C], Generic[C, R]):
    """Labelled examples: what is learnt of them, the head's scores of each, predictions and metrics.

    An example without gold can be answered, not learnt from.
    """

    num_texts: int = 1  # of an example that is asked
    watched: str  # the term that says which state is best; losses low, all else high
    lengths: Places  # [N] tokens of each item
    examples: list[Example]
    labels: tuple[str, ...]
    tokenizer: Tokenizer

    @abstractmethod
    def batch(self, orders: Places, budget: int | None = None) -> Batch:
        """The items of these numbers, packed, with their targets."""

    @property
    @abstractmethod
    def tokens(self) -> npt.NDArray[np.int32]:
        """[U] the tokens of all examples, into which `sources` points."""

    @abstractmethod
    def sources(self, which: Places) -> Places:
        """[rows] the place among `tokens` of each row of these items' sequences, in order; -1: none of the texts'."""

    @abstractmethod
    def origins(self, example: Example) -> Places:
        """[U, 3] of items of this example alone, where each token stands: in which text (-1: none), start, end."""

    @property
    @abstractmethod
    def has_unknown(self) -> bool:
        """Whether some example has no gold."""

    @property
    @abstractmethod
    def teaches(self) -> bool:
        """Whether there is anything to learn from."""

    @abstractmethod
    def arrays(self) -> tuple[npt.NDArray[Any], ...]:
        """All that is learnt from: what a run that goes on must find unchanged."""

    def remarks(self) -> list[str]:
        """What of the data is not learnt as it stands."""
        return []

    @abstractmethod
    def raw(self, host: Host[A], batch: Batch) -> Sequence[R]:
        """The head's scores of each item of a batch; the same with torch and with NumPy."""

    @abstractmethod
    def predictions(self, raw: Sequence[R]) -> list[Prediction]:
        """In the user's own labels and characters, from what `raw` gave for all items in order."""

    @abstractmethod
    def evaluated(self, raw: Sequence[R]) -> Report:
        """How right they are: metrics with intervals."""

    @property
    def temperature(self) -> float:
        """What divides the head's scores before they are probabilities."""
        return 1.0

    def calibrated(self, raw: Sequence[R], fixed: Collection[str] = ()) -> Fit:
        """The config with what dev data fix of it, such as a threshold; `fixed`: fields that the user set."""
        return Fit(self.config)


AnyItems = Labelled[Any, Any]  # the items of some task
AnyTask = Items[Any]  # of some task, which may learn from plain text


# The record -----------------------------------------------------------------------------------------------------------


def longest_of(config: object) -> int:
    """Tokens of a sequence at most, as a task's config says; 0 where it sets no bound."""
    return int(vars(config).get("max_length", 0))


def one_document(config: object) -> int:
    """Any document teaches something by itself."""
    return 1


def as_is(config: C, examples: Sequence[Example]) -> C:
    """Nothing of the config follows from the training data."""
    return config


def from_data(config: object, examples: Sequence[Example]) -> None:
    """The labels are those of the data."""


def no_labels(config: object, examples: Sequence[Example]) -> tuple[str, ...]:
    """The head's outputs have no names."""
    return ()


def all_used(config: object) -> Mapping[str, str]:
    """Every field changes something."""
    return {}


def no_problem(config: object) -> str | None:
    """transformers takes such a head for granted."""
    return None


def no_widths(config: object) -> tuple[int, ...]:
    """Vectors are kept whole."""
    return ()


def usual_request(example: Example) -> Asked:
    """What `predict` takes for it: a text, a pair, or (first, second, the others)."""
    first, *others = example.texts
    if len(others) > 1:
        return first, others[0], others[1:]
    return (first, *others) if others else first


def gold_of(example: Example) -> object:
    """What is right, as it is."""
    return example.gold


def names_of(example: Example) -> tuple[str, ...]:
    """What is right, in words; a number has no name."""
    if example.gold is None:
        return ()
    if isinstance(example.gold, tuple | list):
        return tuple(map(str, example.gold))
    return (example.gold if isinstance(example.gold, str) else "",)


def usual_view(items: AnyItems, raw: Sequence[Any], report: Report) -> View[Any]:
    """Of items that give each example one label; of others only their own metrics."""
    from filbert.tasks.view import GivesLabel, Labels, View

    return Labels(items, raw, report) if isinstance(items, GivesLabel) else View(items, raw, report)


def as_it_is(fields: Mapping[str, object]) -> list[str]:
    """transformers does with such a folder what filbert does."""
    return []


@dataclass(frozen=True, kw_only=True, eq=False)
class TaskSpec(Generic[C]):
    """The record of a task that learns from examples; `name` is that of its folder."""

    reads_examples: ClassVar[bool] = True

    name: str
    config: type[C]
    items: Callable[[Sequence[Example], Sequence[str], Tokenizer, C], AnyItems]
    record: Callable[[Example, Prediction, int | None], Json]  # a result as it is written; the likeliest so many
    files: Callable[[], FileSpec]  # what its labelled files look like
    card: Callable[[Sequence[str]], str]  # what a card calls such a model, by its labels
    part: str = ""  # the part of a model that it asks; "" none
    parts: tuple[str, ...] = ()  # of which a model has one, where there are several; else `part`
    heads: tuple[HeadSpec, ...] = ()  # that come with it from outside
    kept: tuple[str, ...] = ()  # fields of the config that a folder keeps; none: it is only asked, not learnt
    traits: frozenset[Trait] = frozenset()
    num_texts: int = 1
    texts: tuple[str, ...] = ("text", "second")  # what a result calls an example's texts
    later: tuple[str, ...] = ()  # fields that not every result has
    pool: str = ""  # how a text's vector is made with models whose first token has read all
    fit: Callable[[C, Sequence[Example]], C] = as_is  # what training data fix of the config
    labels: Callable[[C, Sequence[Example]], Sequence[str] | None] = from_data  # the head's outputs; None: the data's
    idle: Callable[[C], Mapping[str, str]] = all_used  # fields that change nothing beside others, and while what is so
    problem: Callable[[C], str | None] = no_problem  # what transformers calls such a head
    problems: Mapping[str, Mapping[str, object]] = field(default_factory=dict)  # and what its names say of the config
    number_fields: Mapping[str, object] = field(default_factory=dict)  # and for a head with one output, a number
    from_transformers: Callable[[FolderModel, Sequence[str]], dict[str, Any]] | None = None  # config of their folders
    asked: Callable[[Iterable[object]], list[Example]] | None = None  # what `predict` takes; None: texts, or pairs
    primed: Callable[..., C] | None = None  # what the model itself must be asked before anything else
    unasked: Callable[[Example], Asked] = usual_request  # what `predict` takes for an example
    gold_label: Callable[[Example], object] = gold_of  # without what a gold of its own says beside; None: not known
    gold_names: Callable[[Example], tuple[str, ...]] = names_of  # of which golden cases hold each once
    # How answers are measured beside baselines: of its items, what the head said of each, and how right that is.
    view: Callable[[Any, Sequence[Any], Report], View[Any]] = usual_view
    question: Callable[[Reading, Target], Question[Any]] | None = None  # its explanation; None: labels
    probe: Callable[[], type[Probing]] | None = None  # how a layer is asked for its labels; None: it cannot be
    widths: Callable[[C], tuple[int, ...]] = no_widths  # how many numbers of a vector are a vector too
    abroad: Callable[[Mapping[str, object]], list[str]] = as_it_is  # what transformers does otherwise, by task.json
    wire: Wire = SPOKEN  # over HTTP
    unranked: tuple[str, ...] = ()  # labels of a head that says one thing alone, whatever else the task ranks

    @property
    def pools(self) -> bool:
        """Whether its config says how a text's vector is made of its tokens'."""
        return "pool" in {each.name for each in fields(self.config)}  # type: ignore[arg-type]

    @property
    def can_learn(self) -> bool:
        """Whether it can be fine-tuned."""
        return bool(self.kept)

    @property
    def heads_of(self) -> tuple[str, ...]:
        """The parts of which a model for it has one."""
        return self.parts or (self.part,)

    def ranks(self, labels: Sequence[str]) -> bool:
        """Whether a text gets several labels with scores, of which the likeliest can be written alone."""
        return Trait.RANKS in self.traits and (not self.unranked or tuple(labels) != self.unranked)


AnySpec = TaskSpec[Any]  # the record of some task


@dataclass(frozen=True, kw_only=True, eq=False)
class CorpusSpec(Generic[C]):
    """The record of a task that learns from plain text."""

    reads_examples: ClassVar[bool] = False

    name: str
    config: type[C]
    items: Callable[[Sequence[Any], Any, C], Items[Any]]  # of shards, a vocabulary and a config
    objective: Objective
    least_documents: Callable[[C], int] = one_document  # without which there is nothing to ask
    idle: Callable[[C], Mapping[str, str]] = all_used  # fields that change nothing beside others
