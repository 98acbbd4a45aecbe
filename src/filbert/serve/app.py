"""Models by name in, an HTTP application out: their answers in four protocols, how the server is, and a page at /.

Answers are those of `filbert predict`, word for word: the same engine, windows, decoder and records. The protocols are
our own, text-embeddings-inference's (serve.tei), OpenAI's (serve.openai) and huggingface_hub's (serve.hub).
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from typing import Any

from filbert.core.errors import InputError, needed
from filbert.core.version import VERSION
from filbert.page import book
from filbert.serve import hub, openai, schemas, tei
from filbert.serve.batcher import FullError
from filbert.serve.guard import Guard
from filbert.serve.limits import Limits, Refused, as_json, body, fields_of, overloaded, refusal, some_texts, word
from filbert.serve.logs import Log
from filbert.serve.metrics import READY, Tally, path_label
from filbert.serve.models import NEEDS_TORCH, Served, Shelf, cut

LOOK_LIMIT = 20_000  # characters that the page is shown
FORM = '{"texts": ["…", "…"]}, or of pairs {"texts": [["first", "second"], …]}'
# The page allows itself nothing but what it holds (filbert.page); only a header can say who may frame it.
PAGE = {"Content-Security-Policy": "frame-ancestors 'none'", "Referrer-Policy": "no-referrer"}
Handler = Callable[[Any], Awaitable[Any]]


class Routes:
    """What answers each path; a handler gives what is to be written as JSON."""

    def __init__(self, shelf: Shelf, limits: Limits, tally: Tally) -> None:
        self.shelf, self.limits, self.tally = shelf, limits, tally
        self.begun = int(time.time())
        self._before = {name: tally.of_model(name) for name in shelf.names}  # of a process that this one replaces

    async def read(self, request: Any) -> dict[str, Any]:
        """The request's body, which every protocol has as an object."""
        given = await body(request.receive, dict(request.scope["headers"]), self.limits)
        return fields_of(given, FORM)

    def model(self, request: Any, given: dict[str, Any]) -> Served:
        """The model that the path names, or the body, or the only one."""
        told = word(given, "model")
        return self.shelf.chosen(request.path_params.get("name", told))

    async def kept(self, request: Any, promised: Future[Any]) -> Any:
        """What a queue promised; given up when the deadline passes or the client leaves, so that its place is free."""
        answer = asyncio.wrap_future(promised)
        leaving = asyncio.ensure_future(_left(request.receive))
        try:
            done, _ = await asyncio.wait(
                {answer, leaving}, timeout=self.limits.deadline_s, return_when=asyncio.FIRST_COMPLETED
            )
            if answer in done:
                return answer.result()
            if leaving in done:
                raise Refused(499, "the client left.")
            raise Refused(504, f"there is no answer after {self.limits.deadline_s:g} seconds; ask for less at once.")
        finally:
            answer.cancel()
            leaving.cancel()

    async def predict(self, request: Any) -> Any:
        """What the model says of each text: {"texts": […]}, or as text-embeddings-inference asks: {"inputs": …}."""
        given = await self.read(request)
        served = self.model(request, given)
        if "inputs" in given:
            if "texts" in given or "text" in given:
                raise Refused(422, "the body has inputs and texts; send one of them.")
            asked = tei.predict_asked(given, self.limits)
            return tei.predicted(asked, await self.kept(request, served.predicted(asked.texts)))
        if ("texts" in given) == ("text" in given):
            raise Refused(422, f"the body must be an object with texts: {FORM}.")
        texts = some_texts(given["texts"] if "texts" in given else [given["text"]], "texts", self.limits)
        said = await self.kept(request, served.predicted(texts))
        return {"model": served.name, "predictions": served.records(said)}

    async def embed(self, request: Any) -> Any:
        """A vector for each text, as text-embeddings-inference has it."""
        given = await self.read(request)
        served = self.model(request, given)
        asked = tei.embed_asked(given, served)
        return tei.embedded(cut(await self.kept(request, served.vectors(asked.texts)), asked.width, asked.normalize))

    async def rerank(self, request: Any) -> Any:
        """Texts by how well they fit a query: read in pairs where the model does, else by the cosine of vectors."""
        given = await self.read(request)
        served = self.model(request, given)
        asked = tei.rerank_asked(given, self.limits)
        if served.task == "pair":
            said = await self.kept(request, served.predicted([[asked.query, text] for text in asked.texts]))
            return tei.reranked(asked, tei.pair_scores(served, said, asked.raw))
        tei.check_head(served)
        vectors = await self.kept(request, served.vectors([asked.query, *asked.texts]))
        return tei.reranked(asked, tei.cosines(cut(vectors, None, True)))

    async def similarity(self, request: Any) -> Any:
        """The cosine of each sentence to the source sentence."""
        given = await self.read(request)
        served = self.model(request, given)
        return await hub.answer(served, "sentence-similarity", given, functools.partial(self.kept, request))

    async def embeddings(self, request: Any) -> Any:
        """Vectors of length 1, as OpenAI's clients ask for them."""
        given = await self.read(request)
        asked = openai.asked(given, self.limits)
        served = self.model(request, given)
        width = tei.known(asked.width, served)
        return openai.answer(asked, served, cut(await self.kept(request, served.vectors(asked.texts)), width, True))

    async def pipeline(self, request: Any) -> Any:
        """What `huggingface_hub`'s InferenceClient asks: the model's own pipeline, or the one that the path names."""
        given = await self.read(request)
        served = self.model(request, given)
        return await hub.answer(
            served, request.path_params.get("pipeline"), given, functools.partial(self.kept, request)
        )

    async def look(self, request: Any) -> Any:
        """What the page shows of a text: attention, what the model says, and why."""
        given = await self.read(request)
        served = self.model(request, given)
        asked = _look(given)
        if not served.has_torch:
            raise Refused(422, NEEDS_TORCH)
        found = await self.kept(request, served.batcher.alone(lambda: _view(served, asked)))
        return {**found, "model": served.name}

    async def models(self, request: Any) -> Any:
        """Every model: its task, its labels, its vectors."""
        return {"models": [self.shelf.chosen(name).about() for name in self.shelf.names]}

    async def one_model(self, request: Any) -> Any:
        """One of them."""
        return self.shelf.chosen(request.path_params["name"]).about()

    async def openai_models(self, request: Any) -> Any:
        """The models as OpenAI's clients list them."""
        return openai.models(self.shelf.names, self.begun)

    async def info(self, request: Any) -> Any:
        """The model as text-embeddings-inference describes it; of several, the first."""
        return tei.info(self.shelf.chosen(request.query_params.get("model") or self.shelf.names[0]))

    async def health(self, request: Any) -> Any:
        """Whether it answers, what it is, and how many requests wait."""
        told: list[dict[str, Any]] = [
            {"name": name, "task": one.task, "waiting": one.batcher.num_waiting}
            for name, one in self.shelf.loaded.items()
        ]
        one = {"model": told[0]["name"], **told[0]} if len(told) == 1 else {}
        one.pop("name", None)
        return {"status": "ok" if self.shelf.is_ready else "loading", **one, "models": told, "version": VERSION}

    async def live(self, request: Any) -> Any:
        """That the process runs."""
        return {"status": "ok"}

    async def ready(self, request: Any) -> Any:
        """Whether every model of every process answers."""
        if not self.shelf.is_ready or not self.tally.are_ready():
            raise Refused(503, "not every model of every process is ready.", Retry_After="1")
        return {"status": "ok"}

    def counts(self) -> str:
        """What Prometheus reads."""
        for name, one in self.shelf.loaded.items():
            queue, before = one.batcher, self._before[name]
            now = (queue.num_texts, queue.num_goes, queue.num_dropped)
            sums = [before[at] + value for at, value in enumerate(now)]
            self.tally.set_model(name, [*sums, queue.num_waiting])
        return self.tally.text()

    def page(self) -> str:
        """The page, as `filbert attend` writes it, with a place to type."""
        told = [
            {"name": one.name, "task": one.task, "labels": list(one.model.labels), "methods": _methods(one),
             "fills": bool(one.model.engine.fills)}
            for one in self.shelf.loaded.values()
        ]  # fmt: skip
        shown = {"format": 1, "title": f"filbert: {', '.join(self.shelf.names)}", "language": None, "views": []}
        return book.live({**shown, "live": {"models": told}})


def application(
    shelf: Shelf,
    limits: Limits,
    *,
    known: Sequence[str] = (),
    origins: Sequence[str] = (),
    tally: Tally | None = None,
    log: Log | None = None,
) -> Any:
    """The ASGI application; `known` are hashes of keys, `origins` the other sites whose pages may ask."""
    fastapi, responses = needed("fastapi", "serve"), needed("fastapi.responses", "serve")
    tally, log = tally or Tally(shelf.names), log or Log("none")
    routes = Routes(shelf, limits, tally)

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(shelf.close)  # what was accepted is answered

    # The usual page of an interface loads scripts from the network; there is none here.
    app = fastapi.FastAPI(title="filbert", version=VERSION, docs_url=None, redoc_url=None, lifespan=lifespan)

    def written(handler: Handler) -> Any:
        return _written(handler, fastapi.Request, responses.Response, log)

    posts = {"/predict": routes.predict, "/models/{name}/predict": routes.predict, "/embed": routes.embed,
             "/rerank": routes.rerank, "/similarity": routes.similarity, "/v1/embeddings": routes.embeddings,
             "/look": routes.look, "/": routes.pipeline, "/models/{name}": routes.pipeline,
             "/models/{name}/pipeline/{pipeline}": routes.pipeline}  # fmt: skip
    gets = {"/models": routes.models, "/models/{name}": routes.one_model, "/v1/models": routes.openai_models,
            "/info": routes.info, "/health": routes.health, "/live": routes.live, "/ready": routes.ready}  # fmt: skip
    for method, listed in (("POST", posts), ("GET", gets)):
        for path, handler in listed.items():
            about = schemas.routed(path, method) | {"summary": (handler.__doc__ or "").partition(":")[0].rstrip(".")}
            app.add_api_route(path, written(handler), methods=[method], response_model=None, **about)

    def page() -> Any:
        """The page to type into."""
        return responses.HTMLResponse(routes.page(), headers=PAGE)

    def metrics() -> Any:
        """What Prometheus reads."""
        return responses.PlainTextResponse(routes.counts(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def missing(request: Any, error: Any) -> Any:
        path, is_method = request.url.path, error.status_code == 405
        known = [route.methods for route in app.routes if route.path_regex.match(path)]
        allow = {"Allow": ", ".join(sorted(set().union(*known)))} if is_method else {}
        what = "this path is asked otherwise" if is_method else "there is no such path here"
        content = refusal(path, Refused(error.status_code, f"{what}; /openapi.json lists them all."))
        return responses.Response(content, error.status_code, allow, "application/json")

    app.get("/", response_class=responses.HTMLResponse, responses=schemas.refusals("/", 401))(page)
    plain = responses.PlainTextResponse
    app.get("/metrics", response_class=plain, responses=schemas.refusals("/metrics", 401))(metrics)
    app.add_exception_handler(needed("starlette.exceptions", "serve").HTTPException, missing)
    if origins:
        cors = needed("starlette.middleware.cors", "serve").CORSMiddleware
        app.add_middleware(cors, allow_origins=list(origins), allow_methods=["GET", "POST"], allow_headers=["*"])
    return Guard(app, shelf, limits, known, tally, log)


def _written(handler: Handler, request_type: Any, response_type: Any, log: Log) -> Any:
    """A route's function: what a handler gives as JSON, what it refuses as a sentence."""

    async def answer(request: Any) -> Any:
        try:
            return response_type(as_json(await handler(request)), media_type="application/json")
        except Refused as error:
            refused = error
        except FullError as error:
            refused = overloaded(str(error))
        except InputError as error:
            refused = Refused(422, str(error))
        except Exception as error:  # a mistake of ours: the client is told so, and nothing of ours
            log.error(error, path_label(request.url.path))
            refused = Refused(500, "the server made a mistake; its log has more.")
        content = refusal(request.url.path, refused)
        return response_type(content, refused.status, refused.headers, "application/json")

    answer.__name__, answer.__doc__ = handler.__name__, handler.__doc__
    answer.__annotations__ = {"request": request_type}
    return answer


async def _left(receive: Any) -> None:
    """Comes back when the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _methods(served: Served) -> list[str]:
    """How what it says can be explained."""
    if not served.has_torch or not (served.task is not None or served.model.engine.fills):
        return []
    from filbert.infer.attribute import METHODS

    return list(METHODS)


def _view(served: Served, asked: dict[str, Any]) -> dict[str, Any]:
    """A look inside, which needs torch."""
    from filbert.infer import explain, scene

    reasons = [(target, explain.wanted(fields)) for target, fields in asked.pop("reasons")]
    return scene.view(served.model, task=served.asked_task, reasons=reasons, **asked)


def _look(given: dict[str, Any]) -> dict[str, Any]:
    """What `scene.view` is to show: {"texts": ["…"], "layers": [0], "explain": {"method": "…", "target": "…"}}."""
    texts = given.get("texts")
    if not isinstance(texts, list) or not 1 <= len(texts) <= 2 or not all(isinstance(text, str) for text in texts):
        raise Refused(422, 'the body must be an object with one text or two: {"texts": ["…"]}.')
    if sum(map(len, texts)) > LOOK_LIMIT:
        raise Refused(413, f"a text of more than {LOOK_LIMIT:,} characters cannot be looked at in a page.")
    layers = given.get("layers") or [0]
    if not isinstance(layers, list) or not all(type(layer) is int for layer in layers):
        raise Refused(422, "layers must be a list of whole numbers from 0.")
    asked = texts[0] if len(texts) == 1 else tuple(texts)
    return {"asked": asked, "layers": layers, "reasons": _reasons(given.get("explain"))}


def _reasons(given: Any) -> list[tuple[str | None, dict[str, str]]]:
    if not given:
        return []
    if not isinstance(given, dict) or not all(isinstance(given.get(n), str | None) for n in ("method", "target")):
        raise Refused(422, 'explain must be an object: {"method": "integrated-gradients", "target": "a label"}.')
    fields = {"method": given["method"]} if given.get("method") else {}
    return [(given.get("target") or None, fields)]


def announce(tally: Tally) -> None:
    """This process answers from now on."""
    tally.set_state(READY)
