"""A request in; what makes its answer out: a handler for each path, in four protocols, and the page at /.

Answers are those of `filbert predict`, word for word: the same engine, windows, decoder and records. The protocols are
our own (protocols.own), text-embeddings-inference's (protocols.tei), OpenAI's (protocols.openai), huggingface_hub's
(protocols.hub) and that of Jina's and Cohere's rerankers (protocols.rerank).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar, cast

from filbert.core.version import VERSION
from filbert.draw import book
from filbert.serve import bodies, keys
from filbert.serve.answers import Build, Health, Waiting
from filbert.serve.bodies import Context, parse
from filbert.serve.limits import Limits, Receive, Refused, fields_of, overloaded, parsed, raw_body
from filbert.serve.metrics import Tally
from filbert.serve.openapi import check_names
from filbert.serve.protocols import hub, openai, own, rerank, tei
from filbert.serve.queue import Promised
from filbert.serve.shelf import Served, Shelf, cut

if TYPE_CHECKING:
    from starlette.requests import Request

SMALL = 65_536  # bytes of a request or an answer, about, up to which work on it does not keep other clients waiting
T = TypeVar("T")
Fields = Mapping[str, object]
Handler = Callable[["Request"], Awaitable[Build]]


class Routes:
    """What answers each path; a handler gives what makes the answer."""

    def __init__(self, shelf: Shelf, limits: Limits, tally: Tally) -> None:
        self.shelf, self.limits, self.tally = shelf, limits, tally
        self.context = Context(limits)
        self.started = int(time.time())

    async def read(self, request: Request) -> Fields:
        """The request's body, which every protocol has as an object, without a field that nobody reads."""
        held = request.scope["state"]["held"]
        raw = await raw_body(request.receive, dict(request.scope["headers"]), self.limits, held.take)
        return await apart(len(raw), lambda: _fields(raw, request.scope["route"].path))

    def model(self, request: Request, fields: Fields) -> Served:
        """The model that the path names, or the body, or the only one."""
        in_body, in_path = parse(bodies.Named, fields).model, request.path_params.get("name")
        if in_body is not None and in_path not in (None, in_body):
            raise Refused(422, "the path and the body's model name two models; name one.")
        return self.shelf.chosen(in_body if in_path is None else in_path)

    async def kept(self, request: Request, ask: Callable[[], Promised[T]]) -> T:
        """What a queue promises; given up when the deadline passes or the client leaves, so that its place is free."""
        held = request.scope["state"]["held"]
        promised = await apart(held.num_bytes, ask)
        answer = asyncio.wrap_future(promised)
        leaving = asyncio.ensure_future(_left(request.receive))
        try:
            held.take(promised.num_bytes)
            both = cast(Sequence[asyncio.Future[object]], (answer, leaving))
            await asyncio.wait(both, timeout=self.limits.deadline_s, return_when=asyncio.FIRST_COMPLETED)
            if answer.done():
                return answer.result()
            if leaving.done():
                raise Refused(499, "the client left.")
            if not promised.is_started:
                raise overloaded("it waited too long for its turn; ask again in a moment.")
            raise Refused(504, f"there is no answer after {self.limits.deadline_s:g} seconds; ask for less at once.")
        finally:
            answer.cancel()
            leaving.cancel()

    def wait(self, request: Request) -> hub.Wait:
        """The same for this request."""

        async def kept(ask: Callable[[], Promised[T]]) -> T:
            return await self.kept(request, ask)

        return kept

    async def predict(self, request: Request) -> Build:
        """What the model says of each text: {"texts": […]}, or as text-embeddings-inference asks: {"inputs": …}."""
        fields = await self.read(request)
        served = self.model(request, fields)
        if "inputs" in fields:
            if "texts" in fields or "text" in fields:
                raise Refused(422, "the body has inputs and texts; send one of them.")
            body = parse(bodies.Predict, fields, self.context)
            answered = await self.kept(request, lambda: served.predicted(body.texts))
            return lambda: tei.labels(answered, body.is_single, body.raw_scores)
        if ("texts" in fields) == ("text" in fields):
            raise Refused(422, f"the body must be an object with texts: {bodies.TEXTS_FORM}.")
        texts = fields if "texts" in fields else {"texts": [fields["text"]]}
        questions = parse(bodies.OwnTexts, texts, self.context).texts
        answered = await self.kept(request, lambda: served.predicted(questions))
        return lambda: own.predictions(served, answered)

    async def embed(self, request: Request) -> Build:
        """A vector for each text, as text-embeddings-inference has it."""
        fields = await self.read(request)
        served = self.model(request, fields)
        body = parse(bodies.Vectors, fields, Context(self.limits, served.model.widths[0]))
        width = tei.width(body.dimensions, served)
        vectors = await self.kept(request, lambda: served.vectors(body.inputs))
        return lambda: list(cut(vectors, width, body.normalize))

    async def scores(self, request: Request, served: Served, query: str, texts: list[str], raw: bool) -> list[float]:
        """How well texts fit a query: read in pairs where the model does, else by the cosine of vectors."""
        if served.wire.ranks:
            answered = await self.kept(request, lambda: served.predicted([[query, text] for text in texts]))
            return tei.pair_scores(served, answered, raw)
        tei.check_ranks(served)
        vectors = await self.kept(request, lambda: served.vectors([query, *texts]))
        return tei.cosines(cut(vectors, None, True))

    async def rerank(self, request: Request) -> Build:
        """Texts by how well they fit a query: read in pairs where the model does, else by the cosine of vectors."""
        fields = await self.read(request)
        served = self.model(request, fields)
        body = parse(bodies.Rerank, fields, self.context)
        scores = await self.scores(request, served, body.query, body.texts, body.raw_scores)
        return lambda: tei.ranked(body, scores)

    async def rerank_documents(self, request: Request) -> Build:
        """The same, as clients of Jina's and Cohere's rerankers ask for it."""
        fields = await self.read(request)
        served = self.model(request, fields)
        body = parse(bodies.RerankDocuments, fields, self.context)
        scores = await self.scores(request, served, body.query, body.documents, raw=False)
        return lambda: rerank.ranked(body, served, scores)

    async def similarity(self, request: Request) -> Build:
        """The cosine of each sentence to the source sentence."""
        fields = await self.read(request)
        served = self.model(request, fields)
        return await hub.answer(served, "sentence-similarity", fields, self.wait(request))

    async def embeddings(self, request: Request) -> Build:
        """Vectors of length 1, as OpenAI's clients ask for them."""
        fields = await self.read(request)
        body = parse(bodies.Embeddings, fields, self.context)
        served = self.model(request, fields)
        width = tei.width(body.dimensions, served)
        vectors = await self.kept(request, lambda: served.vectors(body.input))
        return lambda: openai.embeddings(body, served, cut(vectors, width, True))

    async def pipeline(self, request: Request) -> Build:
        """What `huggingface_hub`'s InferenceClient asks: the model's own pipeline, or the one that the path names."""
        fields = await self.read(request)
        served = self.model(request, fields)
        return await hub.answer(served, request.path_params.get("pipeline"), fields, self.wait(request))

    async def look(self, request: Request) -> Build:
        """What the page shows of a text: attention, what the model says, and why."""
        fields = await self.read(request)
        served = self.model(request, fields)
        look = own.look_of(parse(bodies.Look, fields, self.context))
        own.check_open(served)
        view = await self.kept(
            request, lambda: self.shelf.looks.ask(lambda: own.view(served, look), own.num_bytes(served, look))
        )
        return lambda: {**view, "model": served.name}

    async def models(self, request: Request) -> Build:
        """Every model: its task, its labels, its vectors."""
        return lambda: {"models": [self.shelf.chosen(name).about() for name in self.shelf.names]}

    async def one_model(self, request: Request) -> Build:
        """One of them."""
        return self.shelf.chosen(request.path_params["name"]).about

    async def openai_models(self, request: Request) -> Build:
        """The models as OpenAI's clients list them."""
        return lambda: openai.models(self.shelf.names, self.started)

    async def openai_model(self, request: Request) -> Build:
        """One of them, as OpenAI's clients ask for it."""
        name = request.path_params["name"]
        self.shelf.check_name(name)
        return lambda: openai.model(name, self.started)

    async def info(self, request: Request) -> Build:
        """The model as text-embeddings-inference describes it; of several, the first."""
        served = self.shelf.chosen(request.query_params.get("model") or self.shelf.names[0])
        return lambda: tei.info(served)

    async def health(self, request: Request) -> Build:
        """Whether it answers, what it is, and how many requests wait."""
        models: list[Waiting] = [
            {"name": name, "task": one.task, "waiting": one.batcher.num_waiting}
            for name, one in self.shelf.loaded.items()
        ]
        health: Health = {"status": "ok" if self.shelf.is_ready else "loading", "models": models, "version": VERSION}
        if len(models) == 1:  # its fields stand outside the list too, behind the status
            only = models[0]
            of_one = {"model": only["name"], "task": only["task"], "waiting": only["waiting"]}
            return lambda: {"status": health["status"], **of_one, **health}
        return lambda: health

    async def live(self, request: Request) -> Build:
        """That the process runs."""
        return lambda: {"status": "ok"}

    async def ready(self, request: Request) -> Build:
        """Whether every model of every process answers, and none of them is about to stop."""
        if not self.shelf.is_ready or not self.tally.are_ready():
            raise Refused(503, "not every model of every process is ready.", Retry_After="1")
        return lambda: {"status": "ok"}

    def page(self) -> str:
        """The page, as `filbert attend` writes it, with a place to type."""
        models = [
            {"name": one.name, "task": one.task, "labels": list(one.model.labels), "methods": own.methods(one),
             "fills": bool(one.model.engine.fills), "closed": own.why_closed(one)}
            for one in self.shelf.loaded.values()
        ]  # fmt: skip
        shown = {"format": 1, "title": f"filbert: {', '.join(self.shelf.names)}", "language": None, "views": []}
        return book.live({**shown, "live": {"models": models}})

    def posts(self) -> dict[str, Handler]:
        """What answers a POST at each path."""
        return {
            "/predict": self.predict, "/models/{name}/predict": self.predict,
            "/embed": self.embed, "/models/{name}/embed": self.embed,
            "/rerank": self.rerank, "/models/{name}/rerank": self.rerank,
            "/similarity": self.similarity, "/models/{name}/similarity": self.similarity,
            "/v1/embeddings": self.embeddings, "/v1/rerank": self.rerank_documents,
            "/look": self.look, "/": self.pipeline, "/models/{name}": self.pipeline,
            "/models/{name}/pipeline/{pipeline}": self.pipeline,
        }  # fmt: skip

    def gets(self) -> dict[str, Handler]:
        """What answers a GET."""
        return {
            "/models": self.models, "/models/{name}": self.one_model, "/v1/models": self.openai_models,
            "/v1/models/{name}": self.openai_model, "/info": self.info, "/health": self.health, "/live": self.live,
            "/ready": self.ready,
        }  # fmt: skip


def check_query(request: Request) -> None:
    """Refuses what is asked behind the path, where nobody reads it; but not of probes, which may write anything."""
    path = request.scope["route"].path
    for name in request.query_params:
        if path not in keys.OPEN and (path, name) != ("/info", "model"):
            advice = "; send it in the body" if request.method == "POST" else ""
            raise Refused(422, f"nothing behind a question mark is read here ({name[:40]!a}){advice}.")


async def apart(num_bytes: int, compute: Callable[[], T]) -> T:
    """What some work gives; on many bytes it is done by another thread, so that others are answered meanwhile."""
    return compute() if num_bytes <= SMALL else await asyncio.to_thread(compute)


def _fields(raw: bytes, path: str) -> Fields:
    """A body as an object of which every field is read at that path."""
    fields = fields_of(parsed(raw), bodies.TEXTS_FORM)
    check_names(fields, path)
    return fields


async def _left(receive: Receive) -> None:
    """Comes back when the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
