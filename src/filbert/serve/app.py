"""A fine-tuned model in, an HTTP application out: POST /predict with texts, GET /health.

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
from filbert.infer.model import Model
from filbert.infer.predict import record
from filbert.serve.batcher import Batcher, FullError

BODY_LIMIT = 2 * 2**20  # bytes
TEXT_LIMIT = 1_000  # texts of one request
FORMS = {1: '{"texts": ["…", "…"]}', 2: '{"texts": [["first", "second"], …]}'}


def application(model: Model, name: str, task: str | None = None) -> Any:
    """The ASGI application of one model."""
    fastapi = needed("fastapi", "serve")
    responses = needed("fastapi.responses", "serve")
    called = model.task(task)
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

    predict.__annotations__ = {"request": fastapi.Request}
    app.get("/health")(health)
    app.post("/predict")(predict)
    return app


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


def _records(model: Model, task: str, texts: Sequence[Any]) -> list[dict[str, Any]]:
    """Each text's result as `predict` writes it."""
    answered = zip(model.examples(texts, task), model.predict(texts, task=task), strict=True)
    return [record(task, example, said) for example, said in answered]
