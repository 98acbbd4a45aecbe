"""Models by name in, an ASGI application out: routes with their refusals, the page, and the numbers for Prometheus."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from filbert.core.errors import InputError, needed
from filbert.core.stopping import StoppedError
from filbert.core.version import VERSION
from filbert.serve import openapi
from filbert.serve.guard import Access, Guard, Watch
from filbert.serve.limits import Limits, Refused, as_json, as_json_in_pieces, overloaded, refusal
from filbert.serve.logs import Log
from filbert.serve.metrics import Tally, path_label
from filbert.serve.queue import FullError
from filbert.serve.routes import SMALL, Handler, Routes, apart, check_query
from filbert.serve.shelf import Shelf

if TYPE_CHECKING:
    from fastapi import FastAPI
    from starlette.exceptions import HTTPException
    from starlette.requests import Request
    from starlette.responses import HTMLResponse, PlainTextResponse, Response

CLOSE_S = 1.0  # that what is in work may take after the last answer went out, when the server ends
# The page allows itself nothing but what it holds (draw.book); only a header can say who may frame it.
PAGE = {"Content-Security-Policy": "frame-ancestors 'none'", "Referrer-Policy": "no-referrer"}


def application(
    shelf: Shelf,
    limits: Limits,
    *,
    access: Access | None = None,
    tally: Tally | None = None,
    log: Log | None = None,
) -> Guard:
    """The ASGI application; `access` says who may ask."""
    fastapi, responses = needed("fastapi", "serve"), needed("fastapi.responses", "serve")
    tally, log = tally or Tally(shelf.names), log or Log("none")
    routes = Routes(shelf, limits, tally)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(shelf.close, CLOSE_S)  # what was accepted is answered by now, or given up

    # The usual page of an interface loads scripts from the network; there is none here.
    app = fastapi.FastAPI(
        title="filbert", version=VERSION, docs_url=None, redoc_url=None, lifespan=lifespan, redirect_slashes=False
    )
    for method, listed in (("POST", routes.posts()), ("GET", routes.gets())):
        for path, handler in listed.items():
            about = openapi.route(path, method) | {"summary": (handler.__doc__ or "").partition(":")[0].rstrip(".")}
            answer = _endpoint(handler, fastapi.Request, responses.Response, log)
            app.add_api_route(path, answer, methods=[method], response_model=None, **about)

    def page() -> HTMLResponse:
        """The page to type into."""
        response: HTMLResponse = responses.HTMLResponse(routes.page(), headers=PAGE)
        return response

    def metrics() -> PlainTextResponse:
        """What Prometheus reads."""
        kind = "text/plain; version=0.0.4; charset=utf-8"
        response: PlainTextResponse = responses.PlainTextResponse(tally.text(), media_type=kind)
        return response

    async def missing(request: Request, error: HTTPException) -> Response:
        path, is_method = request.url.path, error.status_code == 405
        methods = [route.methods for route in app.routes if route.path_regex.match(path)]
        allow = {"Allow": ", ".join(sorted(set().union(*methods)))} if is_method else {}
        what = "this path is asked otherwise" if is_method else "there is no such path here"
        refused = Refused(error.status_code, f"{what}; /openapi.json lists them all.")
        content = refusal(path, refused, request.scope["state"]["request_id"])
        response: Response = responses.Response(content, error.status_code, allow, "application/json")
        return response

    for path, shown, kind in (("/", page, responses.HTMLResponse), ("/metrics", metrics, responses.PlainTextResponse)):
        app.get(path, response_class=kind, response_model=None, responses=openapi.refusals(path, 401))(shown)
    app.add_exception_handler(needed("starlette.exceptions", "serve").HTTPException, missing)
    return Guard(app, shelf, limits, access or Access(), Watch(tally, log))


def _endpoint(
    handler: Handler, request_type: type[Request], response_type: type[Response], log: Log
) -> Callable[[Request], Awaitable[Response]]:
    """A route's function: what a handler makes as JSON, what it refuses as a sentence."""

    async def answer(request: Request) -> Response:
        held, request_id = request.scope["state"]["held"], request.scope["state"]["request_id"]
        try:
            check_query(request)
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
        except Exception as error:  # a bug: the client gets a 500 without details
            log.error(error, path_label(request.url.path), request_id)
            refused = Refused(500, "the server made a mistake; its log has more.")
        content = refusal(request.url.path, refused, request_id)
        return response_type(content, refused.status, refused.headers, "application/json")

    answer.__name__, answer.__doc__ = handler.__name__, handler.__doc__
    answer.__annotations__ = {"request": request_type}
    return answer
