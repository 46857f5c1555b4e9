"""The application: routes, refusals, and the document that describes them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException

from nautile import __version__
from nautile.errors import NautileError
from nautile.store import Store

from . import catalogue, front, health, optimizations, outcomes, tokens
from .context import Context
from .gate import Gate
from .problems import Place, Problem, answered, of_http, of_validation
from .reading import Readers
from .settings import Settings
from .streams import News

__all__ = ["application", "context_of"]

_ABOUT = """\
Tensor mathematics in index notation in, certified CUDA kernels out. Submit a program, follow its
events, fetch the record and the bundle. Refusals are RFC 9457 problems whose `code` is stable.
"""
_ROUTERS = (
    optimizations.router,
    outcomes.router,
    outcomes.public,
    catalogue.router,
    health.router,
    front.router,
)


def context_of(settings: Settings, store: Store, *, authenticated: bool) -> Context:
    """What the handlers share, on an open store."""
    database = store.database
    everybody = None if authenticated else tokens.local(database, concurrency=settings.queue)
    return Context(
        settings=settings,
        store=store,
        readers=Readers(
            settings.readers, seconds=settings.read_seconds, memory=settings.read_memory
        ),
        news=News(database, settings.poll_seconds),
        ticket_key=tokens.shared_secret(database, "tickets"),
        everybody=everybody,
    )


def application(context: Context) -> FastAPI:
    """The application on this context."""
    app = FastAPI(
        title="Nautile",
        version=__version__,
        description=_ABOUT,
        docs_url=None,
        redoc_url=None,
        lifespan=_lifespan,
        redirect_slashes=False,
        exception_handlers={
            NautileError: answered,
            HTTPException: of_http,
            RequestValidationError: of_validation,
        },
    )
    app.state.context = context
    for router in _ROUTERS:
        app.include_router(router)
    app.state.every_route = [route for router in _ROUTERS for route in router.routes]
    app.add_middleware(Gate, context=context)
    app.openapi = lambda: _described(app, context)  # type: ignore[method-assign]
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    context: Context = app.state.context
    beside = [asyncio.create_task(work) for work in (context.news.run(), context.readers.warm())]
    try:
        yield
    finally:
        for task in beside:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        await context.readers.close()


def _described(app: FastAPI, context: Context) -> dict[str, Any]:
    """The OpenAPI document; made once."""
    if app.openapi_schema is None:
        made = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes
        )
        schemas = made["components"]["schemas"]
        for model in (Place, Problem):
            reference = "#/components/schemas/{model}"
            schema = model.model_json_schema(ref_template=reference)
            schema.pop("$defs", None)
            schemas[model.__name__] = schema
        if context.everybody is not None:
            _without_tokens(made)
        app.openapi_schema = made
    return app.openapi_schema


def _without_tokens(made: dict[str, Any]) -> None:
    made["components"].pop("securitySchemes", None)
    for path in made["paths"].values():
        for operation in path.values():
            operation.pop("security", None)
