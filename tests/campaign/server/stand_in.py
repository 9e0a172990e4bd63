"""A stand-in of an OpenAI-compatible server: lists its models, tells its version, answers at times given beforehand.

It generates nothing, and goes wrong where a test says so.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web
from engines.http.conftest import Server

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))  # a run that a test starts has it not
from known_answer import KnownAnswer, application

TOKEN = json.dumps({"choices": [{"text": "a"}]})
Fault = Callable[[int, web.Request], Awaitable[web.StreamResponse | None]]


async def no_fault(number: int, request: web.Request) -> None:
    """Every request is answered."""


@dataclass(kw_only=True)
class StandIn:
    """fault(number, request) may answer the request of that number in the place of the known answer."""

    known: KnownAnswer = field(default_factory=lambda: KnownAnswer(ttft_s=0.01, itl_s=0.002))
    models: Iterable[str] = ("m",)
    entry: dict[str, Any] = field(default_factory=lambda: {"owned_by": "vllm", "max_model_len": 4096})
    version: dict[str, Any] | None = field(default_factory=lambda: {"version": "0.32.0"})
    version_path: str = "/version"
    header: str | None = None
    key: str | None = None
    fault: Fault = no_fault
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[str | None] = field(default_factory=list)

    def application(self) -> web.Application:
        app = application(self.known)
        app.middlewares.append(self._between)
        app.router.add_get("/v1/models", self._models)
        if self.version is not None:
            app.router.add_get(self.version_path, self._version)
        return app

    def start(self) -> Server:
        return Server(self.application())

    async def _models(self, request: web.Request) -> web.Response:
        return self._json({"object": "list", "data": [{"id": name, **self.entry} for name in self.models]})

    async def _version(self, request: web.Request) -> web.Response:
        return self._json(self.version)

    def _json(self, document: Any) -> web.Response:
        return web.json_response(document, headers={"Server": self.header} if self.header else {})

    @web.middleware
    async def _between(self, request: web.Request, handler: Callable[..., Any]) -> web.StreamResponse:
        self.headers.append(request.headers.get("Authorization"))
        if self.key is not None and self.headers[-1] != f"Bearer {self.key}":
            return web.Response(status=401, text=f"not authorised: {self.headers[-1]}")
        if request.method != "POST":
            return await handler(request)
        self.bodies.append(await request.json())
        return await self.fault(len(self.bodies) - 1, request) or await handler(request)


def refuses(status: int, text: str = "no") -> Fault:
    """Every request with this status."""

    async def fault(number: int, request: web.Request) -> web.StreamResponse:
        return web.Response(status=status, text=text)

    return fault


def streams(*events: str, cut: bool = False, wait_s: float = 0.0) -> Fault:
    """Every request with these events; `cut`: then the connection is gone."""

    async def fault(number: int, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for event in events:
            await response.write(f"data: {event}\n\n".encode())
        await asyncio.sleep(wait_s)
        if cut and request.transport is not None:
            request.transport.close()
        return response

    return fault


def after(first: int, fault: Fault) -> Fault:
    """Well for the first so many requests, then `fault`."""

    async def both(number: int, request: web.Request) -> web.StreamResponse | None:
        return None if number < first else await fault(number, request)

    return both


def sometimes(fault: Fault, every: int) -> Fault:
    """Every so-manieth request by `fault`."""

    async def some(number: int, request: web.Request) -> web.StreamResponse | None:
        return await fault(number, request) if number % every == every - 1 else None

    return some
