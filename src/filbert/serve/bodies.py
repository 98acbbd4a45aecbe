"""Every request's body as a type; from it come parsing, checks, the sentences of refusals, and OpenAPI (answers.py).

A request is a pydantic model, whose fields are checked in the order in which they stand here; `parse` translates what
pydantic finds into the sentence of the first field that is wrong.
Which fields a body may have at all is checked by `serve.openapi.check_names`, before a model is chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal, TypeVar, cast, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, ValidationInfo
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticCustomError

from filbert.serve.limits import Limits, Refused, check_something, some_texts, strings

REFUSED = "refused"  # pydantic's errors that hold a status and a sentence
MOST_NUMBER, MOST_TOP = 1 << 20, 1_000
LOOK_CHARS = 20_000  # that the page is shown
TEXTS_FORM = '{"texts": ["…", "…"]}, or of pairs {"texts": [["first", "second"], …]}'
PREDICT_FORM = '{"inputs": "…"}, a pair {"inputs": ["…", "…"]}, or several {"inputs": [["…"], ["…"]]}'
SIMILARITY_FORM = '{"inputs": {"source_sentence": "…", "sentences": ["…"]}}'
RERANK_FORM = '{"query": "…", "texts": ["…", "…"]}'
DOCUMENTS_FORM = '{"query": "…", "documents": ["…", "…"]}'
HUB_FORM = '{"inputs": "…", "parameters": {}}'
EXPLAIN_FORM = '{"method": "integrated-gradients", "target": "a label"}'


@dataclass(frozen=True, slots=True)
class Context:
    """What the checks of a body depend on besides the body."""

    limits: Limits = field(default_factory=Limits)
    most_dimensions: int = MOST_NUMBER


@dataclass(frozen=True, slots=True)
class Otherwise:
    """The sentence for a field whose value does not fit, and where it is missing, if that is another one."""

    sentence: str
    missing: str | None = None


NO_SENTENCE = Otherwise("NAME does not fit.")  # of a field whose own checks say everything
USUAL = Context()


# Parsing --------------------------------------------------------------------------------------------------------------

B = TypeVar("B", bound=BaseModel)


def parse(body: type[B], fields: Mapping[str, object], context: Context = USUAL) -> B:
    """The fields as that body; Refused with the sentence of the first one that does not fit."""
    try:
        return body.model_validate(dict(fields), context=context)
    except ValidationError as error:
        status, sentence = _refusal(body, error.errors(include_url=False, include_input=False))
    raise Refused(status, sentence)


def _refusal(body: type[BaseModel], errors: Sequence[ErrorDetails]) -> tuple[int, str]:
    """The status and the sentence of the first error.

    A field without which there is nothing to read, and a name that a pipeline does not have, come before others.
    """
    lacks = [each for each in errors if each["type"] == "missing" and _otherwise(body, each["loc"])[1].missing]
    first = (lacks or errors)[0]
    beside = [each for each in errors if each["type"] == "extra_forbidden" and each["loc"][:-1] == first["loc"][:-1]]
    if beside:
        where = [str(part) for part in first["loc"][:-1]]
        name = min(str(each["loc"][-1]) for each in beside)
        names = sorted(_model(body, where).model_fields)
        there = f"there are: {', '.join(names)}" if names else "there are none for this pipeline"
        return 422, f"{where[-1]}: {name[:40]!a} is not known; {there}."
    if first["type"] == REFUSED:
        return int(first["ctx"]["status"]), str(first["ctx"]["sentence"])
    name, otherwise = _otherwise(body, first["loc"])
    return 422, ((lacks and otherwise.missing) or otherwise.sentence).replace("NAME", name)


def _otherwise(body: type[BaseModel], place: Sequence[int | str]) -> tuple[str, Otherwise]:
    """The name of the innermost field of a place, and its sentences."""
    name, info = _field(body, place)
    return name, next((each for each in info.metadata if isinstance(each, Otherwise)), NO_SENTENCE)


def _field(body: type[BaseModel], place: Sequence[int | str]) -> tuple[str, FieldInfo]:
    """The innermost field of a place, which may lie within a list, and its name."""
    name = str(place[0])
    info, inner = body.model_fields[name], _inner(body.model_fields[name])
    if inner is not None and len(place) > 1 and place[1] in inner.model_fields:
        return _field(inner, place[1:])
    return name, info


def _model(body: type[BaseModel], place: Sequence[str]) -> type[BaseModel]:
    """The body that stands at a place in another."""
    for name in place:
        inner = _inner(body.model_fields[name])
        assert inner is not None
        body = inner
    return body


def _inner(info: FieldInfo) -> type[BaseModel] | None:
    """The body that a field holds, which may also be null."""
    options = (info.annotation, *get_args(info.annotation))
    return next((each for each in options if isinstance(each, type) and issubclass(each, BaseModel)), None)


def _as_error(error: Refused) -> PydanticCustomError:
    return PydanticCustomError(REFUSED, "{sentence}", {"sentence": str(error), "status": error.status})


def _context(info: ValidationInfo) -> Context:
    return cast(Context, info.context)


# Fields ---------------------------------------------------------------------------------------------------------------


def _default(value: bool) -> Callable[[object], object]:
    """Null counts as left out."""
    return lambda sent: value if sent is None else sent


def _word(value: object, info: ValidationInfo) -> object:
    if value is not None and not isinstance(value, str):
        raise _as_error(Refused(422, f"{info.field_name} must be a string."))
    return value


def _needed_word(value: object, info: ValidationInfo) -> object:
    return "" if value is None else _word(value, info)


def _strings(value: object, info: ValidationInfo) -> list[str]:
    try:
        return strings(value, str(info.field_name), _context(info).limits)
    except Refused as error:
        raise _as_error(error) from None


def _list_of_strings(value: object, info: ValidationInfo) -> object:
    return _strings(value, info) if isinstance(value, list) else value


def _documents(value: object, info: ValidationInfo) -> object:
    if not isinstance(value, list):
        return value
    return _strings([each.get("text") if isinstance(each, dict) else each for each in value], info)


def _questions(value: object, info: ValidationInfo) -> object:
    try:
        return some_texts(value, str(info.field_name), _context(info).limits)
    except Refused as error:
        raise _as_error(error) from None


def _predict_inputs(value: object, info: ValidationInfo) -> object:
    """A text, a pair, or a list of lists of one or two texts; what is neither is left to pydantic."""
    try:
        if value == []:
            raise Refused(422, "inputs is empty; send a text.")
        if isinstance(value, str | list):
            check_something(value if isinstance(value, list) else [value], "inputs")
        if isinstance(value, list) and not isinstance(value[0], str):
            some_texts(value, "inputs", _context(info).limits)
    except Refused as error:
        raise _as_error(error) from None
    is_pair = isinstance(value, list) and len(value) <= 2 and all(isinstance(text, str) for text in value)
    if not (isinstance(value, str) or is_pair or (isinstance(value, list) and all(map(_is_one_or_two, value)))):
        raise _as_error(Refused(422, f"inputs must be {PREDICT_FORM}."))
    return value


def _is_one_or_two(value: object) -> bool:
    return isinstance(value, list) and 1 <= len(value) <= 2 and all(isinstance(text, str) for text in value)


def _dimensions(value: object, info: ValidationInfo) -> object:
    most = _context(info).most_dimensions
    if value is not None and (type(value) is not int or not 1 <= value <= most):
        raise _as_error(Refused(422, f"{info.field_name} must be a whole number from 1 to {most:,}."))
    return value


def _no_prompt(value: str | None) -> str | None:
    if value is not None:
        why = "prompt_name is not taken here; write what is to stand before the text into it."
        raise _as_error(Refused(422, why))
    return value


def _same(value: object) -> object:
    return value


def _no_targets(value: object) -> object:
    if value is not None:
        why = "targets: only the likeliest words are told, not those of a list; ask for more with top_k."
        raise _as_error(Refused(422, why))
    return value


def _look_texts(value: list[str]) -> list[str]:
    if sum(map(len, value)) > LOOK_CHARS:
        why = f"a text of more than {LOOK_CHARS:,} characters cannot be looked at in a page."
        raise _as_error(Refused(413, why))
    return value


Text = Annotated[str, Field(min_length=1)]  # as clients are asked to send it; an empty one among others is a text too
Many = Annotated[list[Text], Field(min_length=1, description="As many as the server allows; 413 says how many.")]
Pair = Annotated[list[Text], Field(min_length=1, max_length=2)]
TextOrMore = Text | Annotated[list[object], Field(min_length=1)]
MUST_BE_FLAG = Otherwise("NAME must be true or false.")
Flag = Annotated[bool | None, MUST_BE_FLAG]
On = Annotated[bool, BeforeValidator(_default(True), json_schema_input_type=bool | None), MUST_BE_FLAG]
Off = Annotated[bool, BeforeValidator(_default(False), json_schema_input_type=bool | None), MUST_BE_FLAG]
Word = Annotated[str | None, Otherwise("NAME must be a string.")]
Name = Annotated[Word, Field(description="Which model, where the server has several.")]
Query = Annotated[
    str, Field(min_length=1), BeforeValidator(_needed_word, json_schema_input_type=Text),
    Otherwise("NAME must be a text that is not empty."),
]  # fmt: skip
Number = Annotated[
    int | None, Field(ge=1, le=MOST_NUMBER), Otherwise(f"NAME must be a whole number from 1 to {MOST_NUMBER:,}.")
]
Top = Annotated[int | None, Field(ge=1, le=MOST_TOP), Otherwise(f"NAME must be a whole number from 1 to {MOST_TOP:,}.")]
Dimensions = Annotated[
    int | None,
    BeforeValidator(_dimensions, json_schema_input_type=Annotated[int, Field(ge=1)] | None),
    Field(description="One of the model's widths; see /models."),
]
Null = Annotated[None, Field(description="Not taken; null counts as left out.")]
Inputs = Annotated[
    list[str], BeforeValidator(_strings, json_schema_input_type=Text | Many),
    Otherwise('NAME must be a list with one text or more: {"NAME": ["…", "…"]}.'),
]  # fmt: skip


MUST_BE_PARAMETERS = Otherwise(f"parameters must be an object: {HUB_FORM}.")


# Requests -------------------------------------------------------------------------------------------------------------


class Body(BaseModel):
    """A request: what it means is checked strictly, so that no number is taken for a text."""

    model_config = ConfigDict(strict=True, extra="ignore", hide_input_in_errors=True)


class Named(Body):
    """A request that may name a model."""

    model: Name = None


class Cutting(Body):
    """How to cut texts, which clients of text-embeddings-inference may say; nothing is cut."""

    truncate: Annotated[Flag, Field(description="Accepted; long texts are read whole in any case.")] = None
    truncation_direction: Annotated[
        Literal["Right", "Left", "right", "left"] | None,
        BeforeValidator(_word, json_schema_input_type=Literal["Right", "Left", "right", "left"] | None),
        Otherwise("truncation_direction must be Right or Left."),
        Field(description="Accepted; nothing is cut."),
    ] = None
    prompt_name: Annotated[
        str | None, AfterValidator(_no_prompt), BeforeValidator(_word, json_schema_input_type=Null)
    ] = None


class OwnTexts(Named):
    """POST /predict: texts, or pairs, or whatever the task reads."""

    texts: Annotated[
        list[object],
        BeforeValidator(_questions, json_schema_input_type=Annotated[list[TextOrMore], Field(min_length=1)]),
    ]


class OwnText(Named):
    """POST /predict: one of them."""

    text: TextOrMore


class Predict(Cutting, Named):
    """POST /predict as text-embeddings-inference has it: a text, a pair, or several of either."""

    raw_scores: Off = False
    inputs: Annotated[
        str | list[str] | list[list[str]],
        BeforeValidator(
            _predict_inputs, json_schema_input_type=Text | Pair | Annotated[list[Pair], Field(min_length=1)]
        ),
    ]

    @property
    def is_single(self) -> bool:
        """Whether it asks for one text or pair, so that the answer is no list of answers."""
        return isinstance(self.inputs, str) or isinstance(self.inputs[0], str)

    @property
    def texts(self) -> list[str | list[str]]:
        """Each text, or pair."""
        every = [self.inputs] if self.is_single else self.inputs
        return [each[0] if isinstance(each, list) and len(each) == 1 else each for each in every]  # type: ignore[misc]


class OfVectors(Cutting):
    """What vectors are wanted."""

    encoding_format: Annotated[
        Literal["float"] | None,
        BeforeValidator(_word, json_schema_input_type=Literal["float"] | None),
        Otherwise("encoding_format must be float here; /v1/embeddings also has base64."),
    ] = None
    dimensions: Dimensions = None


class Vectors(OfVectors, Named):
    """POST /embed."""

    inputs: Inputs
    normalize: On = True


class Rerank(Cutting, Named):
    """POST /rerank."""

    query: Query
    texts: Annotated[
        list[str], BeforeValidator(_list_of_strings, json_schema_input_type=Many),
        Otherwise(f"texts must be a list: {RERANK_FORM}."),
    ]  # fmt: skip
    raw_scores: Off = False
    return_text: Off = False


class Document(Body):
    """A document of a client of Jina's or Cohere's rerankers."""

    model_config = ConfigDict(extra="allow", json_schema_extra={"description": "Of its fields text alone is read."})

    text: Text


class RerankDocuments(Named):
    """POST /v1/rerank."""

    query: Query
    documents: Annotated[
        list[str],
        BeforeValidator(_documents, json_schema_input_type=Annotated[list[Text | Document], Field(min_length=1)]),
        Otherwise(f"documents must be a list: {DOCUMENTS_FORM}."),
    ]
    top_n: Number = None
    return_documents: On = True


class Compared(Body):
    """A sentence, and those that it is compared with."""

    source_sentence: Annotated[
        str, Field(min_length=1), BeforeValidator(_needed_word, json_schema_input_type=Text),
        Otherwise(f"the body must be {SIMILARITY_FORM}."),
    ]  # fmt: skip
    sentences: Annotated[
        list[str], BeforeValidator(_list_of_strings, json_schema_input_type=Many),
        Otherwise(f"the body must be {SIMILARITY_FORM}."),
    ]  # fmt: skip


class Embeddings(Body):
    """POST /v1/embeddings."""

    encoding_format: Annotated[
        Literal["float", "base64"] | None,
        BeforeValidator(_word, json_schema_input_type=Literal["float", "base64"] | None),
        Otherwise("encoding_format must be one of: float, base64."),
    ] = None
    user: Annotated[Word, Field(description="Accepted; nothing depends on it.")] = None
    dimensions: Dimensions = None
    input: Annotated[
        list[str], BeforeValidator(_strings, json_schema_input_type=Text | Many),
        Otherwise("", missing='the body must have an input: {"input": "…", "model": "…"}.'),
    ]  # fmt: skip
    model: Name = None


class Explain(Body):
    """Which explanation a look shows."""

    method: Annotated[str | None, Otherwise(f"explain must be an object: {EXPLAIN_FORM}.")] = None
    target: Annotated[str | None, Otherwise(f"explain must be an object: {EXPLAIN_FORM}.")] = None


class Look(Named):
    """POST /look."""

    texts: Annotated[
        list[str], Field(min_length=1, max_length=2, fail_fast=True), AfterValidator(_look_texts),
        Otherwise('the body must be an object with one text or two: {"texts": ["…"]}.'),
    ]  # fmt: skip
    layers: Annotated[
        Annotated[list[int], Field(fail_fast=True)] | None, Otherwise("layers must be a list of whole numbers from 0.")
    ] = None
    explain: Annotated[Explain | None, Otherwise(f"explain must be an object: {EXPLAIN_FORM}.")] = None


# Requests of huggingface_hub: a pipeline each -------------------------------------------------------------------------


class Options(Body):
    """What a client says of how it wants to be answered."""

    wait_for_model: Annotated[
        Flag, Field(description="Accepted; a model that is being loaded answers 503 in any case.")
    ] = None
    use_cache: Annotated[Flag, Field(description="Accepted; nothing is cached.")] = None


class Parameters(Body):
    """Those of a pipeline; a name that it does not have is refused."""

    model_config = ConfigDict(extra="forbid")


class CuttingParameters(Cutting, Parameters):
    """Those of sentence-similarity."""


class ClassificationParameters(Parameters):
    """Those of text-classification."""

    function_to_apply: Annotated[Word, Field(description="That which the model was trained with, or null.")] = None
    top_k: Top = None


class TokenParameters(Parameters):
    """Those of token-classification."""

    aggregation_strategy: Annotated[
        Literal["simple", "first", "average", "max"] | None,
        BeforeValidator(_word, json_schema_input_type=Literal["simple", "first", "average", "max"] | None),
        Otherwise(
            "aggregation_strategy must be one of: simple, first, average, max; entities are told whole, not by token."
        ),
        Field(description="Accepted; entities are told whole, as the model's own decoder finds them."),
    ] = None
    stride: Annotated[Number, Field(description="Accepted; long texts are read whole.")] = None
    ignore_labels: Annotated[
        Annotated[list[str], Field(fail_fast=True)] | None, Otherwise("ignore_labels must be a list of labels.")
    ] = None


class FillParameters(Parameters):
    """Those of fill-mask."""

    targets: Annotated[object, AfterValidator(_no_targets), BeforeValidator(_same, json_schema_input_type=Null)] = None
    top_k: Top = None


class AllParameters(ClassificationParameters, TokenParameters, FillParameters, CuttingParameters):
    """Those of every pipeline."""


class Similarity(Named):
    """POST /similarity, and the pipeline sentence-similarity."""

    parameters: Annotated[CuttingParameters | None, MUST_BE_PARAMETERS] = None
    inputs: Annotated[Compared, Otherwise(f"the body must be an object: {SIMILARITY_FORM}.")]


class OfPipeline(Body):
    """What every pipeline of huggingface_hub takes besides its inputs."""

    options: Annotated[Options | None, Otherwise(f"options must be an object: {HUB_FORM}.")] = None


class WithoutParameters(OfPipeline):
    """A pipeline that has none."""

    parameters: Annotated[Parameters | None, MUST_BE_PARAMETERS] = None


class FeatureExtraction(Vectors, WithoutParameters):
    """The pipeline feature-extraction."""

    normalize: Off = False


class SentenceSimilarity(Similarity, OfPipeline):
    """The pipeline sentence-similarity."""


class Classification(OfPipeline):
    """The pipeline text-classification, but for its inputs."""

    parameters: Annotated[ClassificationParameters | None, MUST_BE_PARAMETERS] = None


class TokenClassification(OfPipeline):
    """The pipeline token-classification, but for its inputs."""

    parameters: Annotated[TokenParameters | None, MUST_BE_PARAMETERS] = None


class FillMask(OfPipeline):
    """The pipeline fill-mask, but for its inputs."""

    parameters: Annotated[FillParameters | None, MUST_BE_PARAMETERS] = None


class Texts(Body):
    """The inputs of a pipeline that reads texts."""

    inputs: Inputs


class Pipeline(OfPipeline, OfVectors, Named):
    """POST / and /models/NAME: whatever any pipeline takes; it is parsed as that pipeline's own body."""

    inputs: Text | Many | Compared
    parameters: Annotated[AllParameters | None, MUST_BE_PARAMETERS] = None
    normalize: Off = False
