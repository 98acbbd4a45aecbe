"""A model in, an HTTP application out: POST /predict with texts, GET /health, and at / a page that looks inside it.

Answers are those of `filbert predict`, word for word: the same engine, windows, decoder and records.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from filbert.core.errors import InputError, needed
from filbert.core.version import VERSION
from filbert.infer import explain, scene
from filbert.infer.model import Model
from filbert.infer.predict import record
from filbert.page import book
from filbert.serve.batcher import Batcher, FullError

BODY_LIMIT = 2 * 2**20  # bytes
TEXT_LIMIT = 1_000  # texts of one request
LOOK_LIMIT = 20_000  # characters that the page is shown
FORMS = {1: '{"texts": ["…", "…"]}', 2: '{"texts": [["first", "second"], …]}'}


def application(model: Model, name: str, task: str | None = None) -> Any:
    """The ASGI application of one model."""
    fastapi = needed("fastapi", "serve")
    responses = needed("fastapi.responses", "serve")
    called = task_of(model, task)
    batcher = Batcher(lambda texts: _records(model, called, texts))

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(batcher.close)  # what was accepted is answered

    # The usual page of an interface loads scripts from the network; there is none here.
    app = fastapi.FastAPI(title="filbert", version=VERSION, docs_url=None, redoc_url=None, lifespan=lifespan)

    def refused(status: int, message: str, **headers: str) -> Any:
        return responses.JSONResponse({"error": message}, status, headers)

    def health() -> dict[str, Any]:
        """Whether it answers, what it is, and how many requests wait."""
        return {"status": "ok", "model": name, "task": called, "waiting": batcher.num_waiting, "version": VERSION}

    async def predict(request: Any) -> Any:
        """What the model says of each text."""
        try:
            texts = _texts(await _body(request))
            found = await asyncio.wrap_future(batcher.ask(texts))
        except _TooLargeError as error:
            return refused(413, str(error))
        except FullError as error:
            return refused(429, str(error), **{"Retry-After": "1"})
        except InputError as error:
            return refused(422, str(error))
        # As predict writes them: Chinese as Chinese.
        return responses.Response(
            json.dumps({"model": name, "predictions": found}, ensure_ascii=False).encode("utf-8", "surrogatepass"),
            media_type="application/json",
        )

    async def look(request: Any) -> Any:
        """What the page shows of a text: attention, what the model says, and why."""
        try:
            asked = _asked(await _body(request))
            found = await asyncio.wrap_future(batcher.alone(lambda: scene.view(model, task=task, **asked)))
        except _TooLargeError as error:
            return refused(413, str(error))
        except FullError as error:
            return refused(429, str(error), **{"Retry-After": "1"})
        except InputError as error:
            return refused(422, str(error))
        return responses.Response(
            json.dumps({**found, "model": name}, ensure_ascii=False).encode("utf-8", "surrogatepass"),
            media_type="application/json",
        )

    def page() -> Any:
        """The page, as `filbert attend` writes it, with a place to type."""
        about = {"name": name, "task": called, "labels": list(model.labels), "methods": _methods(model, called)}
        shown = {"format": 1, "title": f"filbert: {name}", "language": None, "views": []}
        html = book.live({**shown, "live": {"models": [{**about, "fills": model.engine.fills}]}})
        return responses.HTMLResponse(html, headers={"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"})

    predict.__annotations__ = look.__annotations__ = {"request": fastapi.Request}
    app.get("/health")(health)
    app.post("/predict")(predict)
    app.get("/", include_in_schema=False)(page)
    app.post("/look")(look)
    return app


def task_of(model: Model, task: str | None) -> str | None:
    """What it was fine-tuned for; a pretrained model can be looked into, and asked nothing."""
    try:
        return model.task(task)
    except InputError:
        if task is not None:
            raise
        return None


def _methods(model: Model, called: str | None) -> list[str]:
    """How what it says can be explained."""
    from filbert.infer.attribute import METHODS

    return list(METHODS) if called is not None or model.engine.fills else []


def _asked(body: Any) -> dict[str, Any]:
    """What `scene.view` is to show: {"texts": ["…"], "layers": [0], "explain": {"method": "…", "target": "…"}}."""
    texts = body.get("texts") if isinstance(body, dict) else None
    if not isinstance(texts, list) or not 1 <= len(texts) <= 2 or not all(isinstance(text, str) for text in texts):
        raise InputError('the body must be an object with one text or two: {"texts": ["…"]}.')
    if sum(map(len, texts)) > LOOK_LIMIT:
        raise _TooLargeError(f"a text of more than {LOOK_LIMIT:,} characters cannot be looked at in a page.")
    layers = body.get("layers") or [0]
    if not isinstance(layers, list) or not all(type(layer) is int for layer in layers):
        raise InputError("layers must be a list of whole numbers from 0.")
    asked = texts[0] if len(texts) == 1 else tuple(texts)
    return {"asked": asked, "layers": layers, "reasons": _reasons(body.get("explain"))}


def _reasons(given: Any) -> list[Any]:
    if not given:
        return []
    if not isinstance(given, dict) or not isinstance(given.get("target"), str | type(None)):
        raise InputError('explain must be an object: {"method": "integrated-gradients", "target": "a label"}.')
    fields = {"method": given["method"]} if given.get("method") else {}
    return [(given.get("target") or None, explain.wanted(fields))]


class _TooLargeError(InputError):
    """More than is read."""


async def _body(request: Any) -> Any:
    """The request's JSON, read no further than the limit."""
    raw = bytearray()
    async for chunk in request.stream():
        raw += chunk
        if len(raw) > BODY_LIMIT:
            raise _TooLargeError(f"the body has more than {BODY_LIMIT:,} bytes; send the texts in several requests.")
    try:
        return json.loads(bytes(raw))
    except (ValueError, RecursionError):
        raise InputError(f"the body is not JSON; send {FORMS[1]}.") from None


def _texts(body: Any) -> list[Any]:
    """What is asked: "texts", or one "text"; each a string, or a list where the model reads several."""
    if not isinstance(body, dict) or ("texts" in body) == ("text" in body):
        raise InputError(f"the body must be an object with texts: {FORMS[1]}, or of pairs {FORMS[2]}.")
    texts = body["texts"] if "texts" in body else [body["text"]]
    if not isinstance(texts, list) or not texts:
        raise InputError(f"texts must be a list with one text or more: {FORMS[1]}.")
    if len(texts) > TEXT_LIMIT:
        raise _TooLargeError(f"{len(texts):,} texts are more than {TEXT_LIMIT:,}; send them in several requests.")
    return [tuple(text) if isinstance(text, list) else text for text in texts]


def _records(model: Model, task: str | None, texts: Sequence[Any]) -> list[dict[str, Any]]:
    """Each text's result as `predict` writes it."""
    if task is None:
        raise InputError("this model was fine-tuned for nothing, so it has no answers; the page at / looks into it.")
    answered = zip(model.examples(texts, task), model.predict(texts, task=task), strict=True)
    return [record(task, example, said) for example, said in answered]
