"""The connections to one server: opened when a request finds none free, kept and used again.

A server closes what is idle, and a request that meets this is lost without its fault. So a connection is used again for
KEPT_SHARE of the time that the server keeps it: as its Keep-Alive header says, else as the first one that it closed was
idle, else UNKNOWN_KEPT_S. A request whose used connection is closed before a byte of its answer is sent again on a
fresh one, once.

No proxy and no password file of the environment is used, no cookie is kept, nothing is unpacked; headers have limits
(reply.py), and so has what is read at once. The server's name is looked up once.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast
from urllib.parse import urlsplit

import aiohappyeyeballs
import msgspec

from pytest_npubench.core.server_access import certificate_hint
from pytest_npubench.engines.http.answer import HttpRequest
from pytest_npubench.engines.http.arrived import Arrived
from pytest_npubench.engines.http.endpoint import Endpoint
from pytest_npubench.engines.http.reply import LEAST_S, AnswerError, Reply
from pytest_npubench.errors import ConfigError
from pytest_npubench.processes.file_limit import ran_out

RECEIVE_BYTES = 2**14  # Linux doubles it
CLOSING_TURNS = 100
KEPT_S, UNKNOWN_KEPT_S = 60.0, 1.0  # a free connection; where nothing tells how long its server keeps it
KEPT_SHARE = 0.8  # of the server's own time: a request takes a while to come to it
OTHER_FAMILY_S = 0.25  # RFC 8305, section 8: until an address of the other family is tried as well

Addresses = list[Any]  # aiohappyeyeballs.AddrInfoType: what is looked up has narrower types


def _socket(address: aiohappyeyeballs.AddrInfoType) -> socket.socket:
    """Holds little, and so little is read at once: an event loop asks for 256 KiB, and what a flood of the smallest
    answers ("HTTP/1.1 100 Continue") unfolds to between two turns of the loop is twenty times its bytes, on each
    connection. The system's own bound holds for any loop; one that reads by itself calls no method of a socket."""
    family, kind, protocol, _, _ = address
    opened = socket.socket(family, kind, protocol)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return opened


class Connection(asyncio.Protocol):
    """reply: of the request that is being answered; None while it is free, when nothing may come. made(it) is called in
    the turn of the loop in which it is open: what is sent then waits for no other."""

    def __init__(self, made: Callable[[Connection], None], lost: Callable[[Connection], None]) -> None:
        self.reply: Reply | None = None
        self.free_since_s = 0.0
        self._made, self._lost = made, lost
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is of no class of asyncio's
        self._made(self)
        del self._made

    def data_received(self, data: bytes) -> None:
        if self.reply is None:
            self.abort()
        else:
            self.reply.feed(data)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._lost(self)
        if self.reply is not None:
            self.reply.lost(error)

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def begin(self, reply: Reply, message: bytes) -> None:
        self.reply = reply
        if self._transport is None:
            reply.lost(None)
        else:
            self._transport.write(message)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class Connections:
    """As many as there are requests at once. Use it in an `async with` of a running loop; raises ConfigError where the
    API key or the certificates are not there."""

    def __init__(self, endpoint: Endpoint, now_s: Callable[[], float]) -> None:
        parts = urlsplit(endpoint.address)
        assert parts.hostname is not None
        self._name = parts.hostname
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        try:
            host = f"[{self._name}]" if ":" in self._name else self._name.encode("idna").decode()
        except UnicodeError as error:
            raise ConfigError(f"{endpoint.url}: no name of a host: {error}") from error
        lines = {
            "Host": f"{host}:{parts.port}" if parts.port else host,
            "User-Agent": "pytest-npubench",
            **endpoint.all_headers(),
        }
        first = f"POST {endpoint.target} HTTP/1.1"
        self._head = "\r\n".join([first, *(f"{name}: {value}" for name, value in lines.items())])
        self._endpoint, self._now_s = endpoint, now_s
        tls = endpoint.tls()
        self._tls = tls if parts.scheme == "https" else None
        self._addresses: asyncio.Task[Addresses] | None = None
        self._free: list[Connection] = []
        self._open: set[Connection] = set()
        self._said_kept_s: float | None = None
        self._seen_kept_s: float | None = None

    async def __aenter__(self) -> Connections:
        with suppress(OSError, asyncio.TimeoutError):  # named where a request needs it
            await asyncio.wait_for(self._looked_up(), self._endpoint.connect_timeout_s)
        return self

    async def __aexit__(self, *raised: object) -> None:
        for connection in tuple(self._open):
            connection.abort()
        for _ in range(CLOSING_TURNS):  # of the loop, in which transports close their sockets
            if self._open:
                await asyncio.sleep(0)

    def message(self, request: HttpRequest) -> bytes:
        """All bytes that are sent for a request. Raises ConfigError as Endpoint.body does."""
        body = self._endpoint.body(request.prompt, request.output_tokens, request.history)
        try:
            encoded = msgspec.json.encode(body)
        except UnicodeEncodeError:  # half a pair of surrogates, which JSON may name
            encoded = json.dumps(body).encode()
        return f"{self._head}\r\nContent-Length: {len(encoded)}\r\n\r\n".encode("latin-1") + encoded

    async def exchange(self, message: bytes, arrived: Arrived, deadline_s: float, time_s: float) -> None:
        """Send and take in the answer until it is over. Raises AnswerError where it does not come, or not whole, and
        OSError where this process has no file left for a connection."""
        connection = self._taken()
        try:
            await self._exchange(connection, message, arrived, deadline_s, time_s)
        except AnswerError as error:
            if connection is None or not error.is_unheard:
                raise
            arrived.is_sent_again = True
            await self._exchange(None, message, arrived, deadline_s, time_s)

    async def _exchange(
        self, connection: Connection | None, message: bytes, arrived: Arrived, deadline_s: float, time_s: float
    ) -> None:
        """On this connection, or on a fresh one."""
        begun: list[Reply] = []

        def begin(connection: Connection) -> None:
            reply = Reply(
                arrived,
                now_s=self._now_s,
                deadline_s=deadline_s,
                time_s=time_s,
                idle_s=self._endpoint.idle_timeout_s,
                leave=lambda again: self._left(connection, reply, again),
            )
            begun.append(reply)
            connection.begin(reply, message)

        if connection is not None:
            begin(connection)
        else:
            try:
                await self._connected(begin, deadline_s, time_s)
            except AnswerError:
                if not begun:  # it is when the time for it ends in the turn in which it is open
                    raise
        (reply,) = begun
        try:
            await reply.over
        except asyncio.CancelledError:
            reply.abandon()
            raise

    def _taken(self) -> Connection | None:
        """The connection that was used last: its server closes one that was idle for long."""
        kept_s = self._said_kept_s if self._said_kept_s is not None else self._seen_kept_s
        longest_s = UNKNOWN_KEPT_S if kept_s is None else min(KEPT_SHARE * kept_s, KEPT_S)
        while self._free:
            connection = self._free.pop()
            if connection.is_open and self._now_s() - connection.free_since_s < longest_s:
                return connection
            connection.abort()
        return None

    def _lost(self, connection: Connection) -> None:
        """A free connection that its server closes tells how long it keeps one."""
        self._open.discard(connection)
        if connection in self._free:
            idle_s = self._now_s() - connection.free_since_s
            self._seen_kept_s = idle_s if self._seen_kept_s is None else min(self._seen_kept_s, idle_s)
            self._free.remove(connection)

    def _left(self, connection: Connection, reply: Reply, again: bool) -> None:
        connection.reply = None
        if reply.kept_s is not None:
            self._said_kept_s = reply.kept_s
        if again and connection.is_open:
            connection.free_since_s = self._now_s()
            self._free.append(connection)
        else:
            connection.abort()

    async def _connected(self, begin: Callable[[Connection], None], deadline_s: float, time_s: float) -> None:
        left_s, connect_s = deadline_s - self._now_s(), self._endpoint.connect_timeout_s
        try:
            await asyncio.wait_for(self._connect(begin), max(min(left_s, connect_s), LEAST_S))
        except asyncio.TimeoutError as error:
            late = f"connection to {self._name}:{self._port} in {connect_s:g}"
            whole = f"whole answer in {time_s:g}"
            raise AnswerError(f"timed out: no {late if connect_s < left_s else whole} s") from error
        except OSError as error:
            if ran_out(error):
                raise
            where = f"{self._name}:{self._port}"
            why = f"{error}{certificate_hint(error)}"
            raise AnswerError(f"no connection: cannot connect to {where}: {why}") from error

    async def _connect(self, begin: Callable[[Connection], None]) -> None:
        def made(connection: Connection) -> None:
            self._open.add(connection)
            begin(connection)

        loop = asyncio.get_running_loop()
        opened = await aiohappyeyeballs.start_connection(
            await self._looked_up(), happy_eyeballs_delay=OTHER_FAMILY_S, interleave=1, socket_factory=_socket
        )
        try:
            await loop.create_connection(
                lambda: Connection(made, self._lost),
                sock=opened,
                ssl=self._tls,
                server_hostname=self._name if self._tls else None,
            )
        except BaseException:
            opened.close()
            raise

    async def _looked_up(self) -> Addresses:
        """Raises OSError; then the next connection tries again."""
        if self._addresses is None or (self._addresses.done() and self._addresses.exception()):
            loop = asyncio.get_running_loop()
            self._addresses = asyncio.ensure_future(loop.getaddrinfo(self._name, self._port, type=socket.SOCK_STREAM))
        return await asyncio.shield(self._addresses)
