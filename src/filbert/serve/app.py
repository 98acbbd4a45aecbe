"""Models by name in, an HTTP application out: their answers in four protocols, how the server is, and a page at /.

Answers are those of `filbert predict`, word for word: the same engine, windows, decoder and records. The protocols are
our own, text-embeddings-inference's (serve.tei), OpenAI's (serve.openai) and huggingface_hub's (serve.hub).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from filbert.core.errors import InputError, needed
from filbert.core.stopping import StoppedError
from filbert.core.version import VERSION
from filbert.draw import book
from filbert.serve import hub, keys, look, openai, reranker, schemas, tei
from filbert.serve.batcher import FullError, Promised
from filbert.serve.guard import Access, Guard, Watch
from filbert.serve.limits import (
    Limits,
    Refused,
    as_json,
    as_json_in_pieces,
    check_fields,
    fields_of,
    overloaded,
    parsed,
    raw_body,
    refusal,
    some_texts,
    word,
)
from filbert.serve.logs import Log
from filbert.serve.metrics import Tally, path_label
from filbert.serve.models import Served, Shelf, cut

FORM = '{"texts": ["…", "…"]}, or of pairs {"texts": [["first", "second"], …]}'
SMALL = 65_536  # bytes of a request or an answer, about, up to which work on it does not keep other clients waiting
CLOSE_S = 1.0  # that what is in work may take after the last answer went out, when the server ends
# The page allows itself nothing but what it holds (filbert.page); only a header can say who may frame it.
PAGE = {"Content-Security-Policy": "frame-ancestors 'none'", "Referrer-Policy": "no-referrer"}
Ask = Callable[[], Promised]
Build = Callable[[], Any]  # makes what is to be written as JSON
Handler = Callable[[Any], Awaitable[Build]]


class Routes:
    """What answers each path; a handler gives what makes the answer."""

    def __init__(self, shelf: Shelf, limits: Limits, tally: Tally) -> None:
        self.shelf, self.limits, self.tally = shelf, limits, tally
        self.begun = int(time.time())

    async def read(self, request: Any) -> dict[str, Any]:
        """The request's body, which every protocol has as an object."""
        held = request.scope["state"]["held"]
        raw = await raw_body(request.receive, dict(request.scope["headers"]), self.limits, held.take)
        given: dict[str, Any] = await apart(len(raw), lambda: _fields(raw, request.scope["route"].path))
        return given

    def model(self, request: Any, given: dict[str, Any]) -> Served:
        """The model that the path names, or the body, or the only one."""
        told, named = word(given, "model"), request.path_params.get("name")
        if told is not None and named not in (None, told):
            raise Refused(422, "the path and the body's model name two models; name one.")
        return self.shelf.chosen(told if named is None else named)

    async def kept(self, request: Any, ask: Ask) -> Any:
        """What a queue promises; given up when the deadline passes or the client leaves, so that its place is free."""
        held = request.scope["state"]["held"]
        promised = await apart(held.num_bytes, ask)
        answer = asyncio.wrap_future(promised)
        leaving = asyncio.ensure_future(_left(request.receive))
        try:
            held.take(promised.num_bytes)
            done, _ = await asyncio.wait(
                {answer, leaving}, timeout=self.limits.deadline_s, return_when=asyncio.FIRST_COMPLETED
            )
            if answer in done:
                return answer.result()
            if leaving in done:
                raise Refused(499, "the client left.")
            if not promised.is_begun:
                raise overloaded("it waited too long for its turn; ask again in a moment.")
            raise Refused(504, f"there is no answer after {self.limits.deadline_s:g} seconds; ask for less at once.")
        finally:
            answer.cancel()
            leaving.cancel()

    async def predict(self, request: Any) -> Build:
        """What the model says of each text: {"texts": […]}, or as text-embeddings-inference asks: {"inputs": …}."""
        given = await self.read(request)
        served = self.model(request, given)
        if "inputs" in given:
            if "texts" in given or "text" in given:
                raise Refused(422, "the body has inputs and texts; send one of them.")
            asked = tei.predict_asked(given, self.limits)
            found = await self.kept(request, lambda: served.predicted(asked.texts))
            return lambda: tei.predicted(asked, found)
        if ("texts" in given) == ("text" in given):
            raise Refused(422, f"the body must be an object with texts: {FORM}.")
        texts = some_texts(given["texts"] if "texts" in given else [given["text"]], "texts", self.limits)
        said = await self.kept(request, lambda: served.predicted(texts))
        return lambda: {"model": served.name, "predictions": served.records(said)}

    async def embed(self, request: Any) -> Build:
        """A vector for each text, as text-embeddings-inference has it."""
        given = await self.read(request)
        served = self.model(request, given)
        asked = tei.embed_asked(given, served)
        vectors = await self.kept(request, lambda: served.vectors(asked.texts))
        return lambda: tei.embedded(cut(vectors, asked.width, asked.normalize))

    async def scores(self, request: Any, served: Served, query: str, texts: list[str], raw: bool) -> list[float]:
        """How well texts fit a query: read in pairs where the model does, else by the cosine of vectors."""
        if served.task == "pair":
            said = await self.kept(request, lambda: served.predicted([[query, text] for text in texts]))
            return tei.pair_scores(served, said, raw)
        tei.check_head(served)
        return tei.cosines(cut(await self.kept(request, lambda: served.vectors([query, *texts])), None, True))

    async def rerank(self, request: Any) -> Build:
        """Texts by how well they fit a query: read in pairs where the model does, else by the cosine of vectors."""
        given = await self.read(request)
        served = self.model(request, given)
        asked = tei.rerank_asked(given, self.limits)
        scores = await self.scores(request, served, asked.query, asked.texts, asked.raw)
        return lambda: tei.reranked(asked, scores)

    async def rerank_documents(self, request: Any) -> Build:
        """The same, as clients of Jina's and Cohere's rerankers ask for it."""
        given = await self.read(request)
        served = self.model(request, given)
        asked = reranker.asked(given, self.limits)
        scores = await self.scores(request, served, asked.query, asked.texts, raw=False)
        return lambda: reranker.answer(asked, served, scores)

    async def similarity(self, request: Any) -> Build:
        """The cosine of each sentence to the source sentence."""
        given = await self.read(request)
        served = self.model(request, given)
        return await hub.answer(served, "sentence-similarity", given, lambda ask: self.kept(request, ask))

    async def embeddings(self, request: Any) -> Build:
        """Vectors of length 1, as OpenAI's clients ask for them."""
        given = await self.read(request)
        asked = openai.asked(given, self.limits)
        served = self.model(request, given)
        width = tei.known(asked.width, served)
        vectors = await self.kept(request, lambda: served.vectors(asked.texts))
        return lambda: openai.answer(asked, served, cut(vectors, width, True))

    async def pipeline(self, request: Any) -> Build:
        """What `huggingface_hub`'s InferenceClient asks: the model's own pipeline, or the one that the path names."""
        given = await self.read(request)
        served = self.model(request, given)
        name = request.path_params.get("pipeline")
        return await hub.answer(served, name, given, lambda ask: self.kept(request, ask))

    async def look(self, request: Any) -> Build:
        """What the page shows of a text: attention, what the model says, and why."""
        given = await self.read(request)
        served = self.model(request, given)
        asked = look.asked(given)
        look.check_open(served)

        def ask() -> Promised:
            return self.shelf.lane.ask(lambda: look.view(served, asked), look.num_bytes(served, asked))

        found = await self.kept(request, ask)
        return lambda: {**found, "model": served.name}

    async def models(self, request: Any) -> Build:
        """Every model: its task, its labels, its vectors."""
        return lambda: {"models": [self.shelf.chosen(name).about() for name in self.shelf.names]}

    async def one_model(self, request: Any) -> Build:
        """One of them."""
        served = self.shelf.chosen(request.path_params["name"])
        return served.about

    async def openai_models(self, request: Any) -> Build:
        """The models as OpenAI's clients list them."""
        return lambda: openai.models(self.shelf.names, self.begun)

    async def openai_model(self, request: Any) -> Build:
        """One of them, as OpenAI's clients ask for it."""
        name = request.path_params["name"]
        self.shelf.check_known(name)
        return lambda: openai.model(name, self.begun)

    async def info(self, request: Any) -> Build:
        """The model as text-embeddings-inference describes it; of several, the first."""
        served = self.shelf.chosen(request.query_params.get("model") or self.shelf.names[0])
        return lambda: tei.info(served)

    async def health(self, request: Any) -> Build:
        """Whether it answers, what it is, and how many requests wait."""
        told: list[dict[str, Any]] = [
            {"name": name, "task": one.task, "waiting": one.batcher.num_waiting}
            for name, one in self.shelf.loaded.items()
        ]
        one = {"model": told[0]["name"], **told[0]} if len(told) == 1 else {}
        one.pop("name", None)
        state = "ok" if self.shelf.is_ready else "loading"
        return lambda: {"status": state, **one, "models": told, "version": VERSION}

    async def live(self, request: Any) -> Build:
        """That the process runs."""
        return lambda: {"status": "ok"}

    async def ready(self, request: Any) -> Build:
        """Whether every model of every process answers, and none of them is about to stop."""
        if not self.shelf.is_ready or not self.tally.are_ready():
            raise Refused(503, "not every model of every process is ready.", Retry_After="1")
        return lambda: {"status": "ok"}

    def page(self) -> str:
        """The page, as `filbert attend` writes it, with a place to type."""
        told = [
            {"name": one.name, "task": one.task, "labels": list(one.model.labels), "methods": look.methods(one),
             "fills": bool(one.model.engine.fills), "closed": look.closed(one)}
            for one in self.shelf.loaded.values()
        ]  # fmt: skip
        shown = {"format": 1, "title": f"filbert: {', '.join(self.shelf.names)}", "language": None, "views": []}
        return book.live({**shown, "live": {"models": told}})

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


def application(
    shelf: Shelf,
    limits: Limits,
    *,
    access: Access | None = None,
    tally: Tally | None = None,
    log: Log | None = None,
) -> Any:
    """The ASGI application; `access` says who may ask."""
    fastapi, responses = needed("fastapi", "serve"), needed("fastapi.responses", "serve")
    tally, log = tally or Tally(shelf.names), log or Log("none")
    routes = Routes(shelf, limits, tally)

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(shelf.close, CLOSE_S)  # what was accepted is answered by now, or given up

    # The usual page of an interface loads scripts from the network; there is none here.
    app = fastapi.FastAPI(
        title="filbert", version=VERSION, docs_url=None, redoc_url=None, lifespan=lifespan, redirect_slashes=False
    )
    for method, listed in (("POST", routes.posts()), ("GET", routes.gets())):
        for path, handler in listed.items():
            about = schemas.routed(path, method) | {"summary": (handler.__doc__ or "").partition(":")[0].rstrip(".")}
            answer = _written(handler, fastapi.Request, responses.Response, log)
            app.add_api_route(path, answer, methods=[method], response_model=None, **about)

    def page() -> Any:
        """The page to type into."""
        return responses.HTMLResponse(routes.page(), headers=PAGE)

    def metrics() -> Any:
        """What Prometheus reads."""
        return responses.PlainTextResponse(tally.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def missing(request: Any, error: Any) -> Any:
        path, is_method = request.url.path, error.status_code == 405
        known = [route.methods for route in app.routes if route.path_regex.match(path)]
        allow = {"Allow": ", ".join(sorted(set().union(*known)))} if is_method else {}
        what = "this path is asked otherwise" if is_method else "there is no such path here"
        told = Refused(error.status_code, f"{what}; /openapi.json lists them all.")
        content = refusal(path, told, request.scope["state"]["request_id"])
        return responses.Response(content, error.status_code, allow, "application/json")

    app.get("/", response_class=responses.HTMLResponse, responses=schemas.refusals("/", 401))(page)
    plain = responses.PlainTextResponse
    app.get("/metrics", response_class=plain, responses=schemas.refusals("/metrics", 401))(metrics)
    app.add_exception_handler(needed("starlette.exceptions", "serve").HTTPException, missing)
    return Guard(app, shelf, limits, access or Access(), Watch(tally, log))


async def apart(num_bytes: int, work: Callable[[], Any]) -> Any:
    """What some work gives; on many bytes it is done by another thread, so that others are answered meanwhile."""
    return work() if num_bytes <= SMALL else await asyncio.to_thread(work)


def _written(handler: Handler, request_type: Any, response_type: Any, log: Log) -> Any:
    """A route's function: what a handler makes as JSON, what it refuses as a sentence."""

    async def answer(request: Any) -> Any:
        held, request_id = request.scope["state"]["held"], request.scope["state"]["request_id"]
        try:
            _check_query(request)
            build = await handler(request)
            is_large = held.num_bytes > SMALL
            write = as_json_in_pieces if is_large else as_json
            content = await apart(held.num_bytes, lambda: write(build()))
            held.grow(len(content))
            return response_type(content, media_type="application/json")
        except Refused as error:
            refused = error
        except FullError as error:
            refused = overloaded(str(error), error.retry_s)
        except StoppedError:
            refused = Refused(503, "the server stops.", Retry_After="1")
        except InputError as error:
            refused = Refused(422, str(error))
        except Exception as error:  # a mistake of ours: the client is told so, and nothing of ours
            log.error(error, path_label(request.url.path), request_id)
            refused = Refused(500, "the server made a mistake; its log has more.")
        content = refusal(request.url.path, refused, request_id)
        return response_type(content, refused.status, refused.headers, "application/json")

    answer.__name__, answer.__doc__ = handler.__name__, handler.__doc__
    answer.__annotations__ = {"request": request_type}
    return answer


def _fields(raw: bytes, path: str) -> dict[str, Any]:
    """A body as an object of which every field is read at that path."""
    given = fields_of(parsed(raw), FORM)
    check_fields(given, schemas.BODIES[path][0])
    return given


def _check_query(request: Any) -> None:
    """Refuses what is asked behind the path, where nobody reads it; but not of probes, which may write anything."""
    path = request.scope["route"].path
    for name in request.query_params:
        if path not in keys.OPEN and (path, name) != ("/info", "model"):
            advice = "; send it in the body" if request.method == "POST" else ""
            raise Refused(422, f"nothing behind a question mark is read here ({name[:40]!a}){advice}.")


async def _left(receive: Any) -> None:
    """Comes back when the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
