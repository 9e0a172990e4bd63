"""A local stand-in of a server: an aiohttp application on a port of its own, in a thread of its own."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

with suppress(ModuleNotFoundError):  # a file that needs it is skipped
    from aiohttp import web


class Server:
    """Serves an application until the test ends."""

    def __init__(self, application, tls: ssl.SSLContext | None = None) -> None:
        self.port = 0
        self._tls = tls
        self._started = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, args=(application,), daemon=True)
        self._thread.start()
        assert self._started.wait(10)

    @property
    def url(self) -> str:
        return f"http{'s' if self._tls else ''}://127.0.0.1:{self.port}/v1"

    def _serve(self, application) -> None:
        asyncio.set_event_loop(self._loop)
        runner = web.AppRunner(application, handler_cancellation=True)
        self._loop.run_until_complete(runner.setup())
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=self._tls)
        self._loop.run_until_complete(site.start())
        self.port = runner.addresses[0][1]
        self._started.set()
        self._loop.run_forever()
        self._loop.run_until_complete(runner.cleanup())
        self._loop.close()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    """serve(handler) answers POST of both APIs with it; an application is served as it is."""
    servers = []

    def start(handler) -> Server:
        application = handler
        if not isinstance(handler, web.Application):
            application = web.Application(client_max_size=2**26)
            application.router.add_post("/v1/completions", handler)
            application.router.add_post("/v1/chat/completions", handler)
        servers.append(Server(application))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()
