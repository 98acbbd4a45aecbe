"""Every answer's body as a type: what makes an answer is checked by it, and OpenAPI describes the answer by it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import (
    Annotated,
    Literal,
    NotRequired,  # pydantic cannot read typing's before Python 3.12
)

from pydantic import GetPydanticSchema
from pydantic_core import core_schema
from typing_extensions import TypedDict

from filbert.core.records import Floats

Build = Callable[[], object]  # makes an answer, which may take a while
Record = dict[str, object]  # as `filbert predict` writes it
NUMBERS = core_schema.list_schema(core_schema.float_schema())
Vector = Annotated[Floats, GetPydanticSchema(lambda array, handler: NUMBERS)]  # an array is written as a list


class Refusal(TypedDict):
    """Why there is no answer, as text-embeddings-inference says it."""

    error: str
    error_type: str
    request_id: NotRequired[str]


class OpenAIError(TypedDict):
    """What OpenAI's clients read of a refusal."""

    message: str
    type: str
    code: int
    param: NotRequired[None]


class OpenAIRefusal(TypedDict):
    """Why there is no answer, as OpenAI's clients read it."""

    error: OpenAIError
    request_id: NotRequired[str]


class Predictions(TypedDict):
    """A record for each text."""

    model: str
    predictions: Sequence[Record]


class Label(TypedDict):
    """A label and how likely it is."""

    label: str
    score: float


class Ranked(TypedDict):
    """A text by its place among those sent, and how well it fits."""

    index: int
    score: float
    text: NotRequired[str]


class DocumentText(TypedDict):
    """A document that is sent back."""

    text: str


class RankedDocument(TypedDict):
    """The same, as clients of Jina's and Cohere's rerankers read it."""

    index: int
    relevance_score: float
    document: NotRequired[DocumentText]


class RerankUsage(TypedDict):
    """How many tokens were read."""

    total_tokens: int


class RankedDocuments(TypedDict):
    """Documents, the best first."""

    object: NotRequired[Literal["list"]]
    model: str
    results: Sequence[RankedDocument]
    usage: RerankUsage


class Embedding(TypedDict):
    """A vector, as numbers or as base64 of float32."""

    object: Literal["embedding"]
    index: int
    embedding: Vector | str


class EmbeddingUsage(TypedDict):
    """How many tokens were read."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingList(TypedDict):
    """The vectors of the texts sent, in order."""

    object: Literal["list"]
    data: Sequence[Embedding]
    model: str
    usage: EmbeddingUsage


class OpenAIModel(TypedDict):
    """A model as OpenAI's clients list it."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class OpenAIModels(TypedDict):
    """All of them."""

    object: Literal["list"]
    data: Sequence[OpenAIModel]


class Entity(TypedDict):
    """A stretch of a text with its label."""

    entity_group: str
    score: float
    word: str
    start: int
    end: int


class Candidate(TypedDict):
    """What could stand in a blank."""

    score: float
    token: int
    token_str: str
    sequence: str


class About(TypedDict):
    """A model, for whoever wants to know before asking."""

    name: str
    task: str | None
    labels: Sequence[str]
    width: int
    widths: Sequence[int]
    max_length: int
    fills_blanks: NotRequired[bool]
    runtime: NotRequired[str]
    waiting: NotRequired[int]


class Models(TypedDict):
    """Every model."""

    models: Sequence[About]


class Info(TypedDict):
    """A model as text-embeddings-inference describes it."""

    model_id: str
    model_type: dict[str, object]
    max_input_length: int
    model_sha: NotRequired[None]
    model_dtype: NotRequired[str]
    max_concurrent_requests: NotRequired[int]
    max_batch_tokens: NotRequired[int]
    max_client_batch_size: NotRequired[int]
    auto_truncate: NotRequired[bool]
    version: NotRequired[str]


class Waiting(TypedDict):
    """A model's task, and how many requests wait for it."""

    name: str
    task: str | None
    waiting: int


class Health(TypedDict):
    """Whether the server answers, what it is, and how many requests wait; of a single model also outside the list."""

    status: str
    models: Sequence[Waiting]
    version: str
    model: NotRequired[str]
    task: NotRequired[str | None]
    waiting: NotRequired[int]


class Status(TypedDict):
    """That all is well."""

    status: str
