"""The connections to a server, and what is not done on them.

No proxy and no password file of the environment is used, no cookie is kept, nothing is unpacked; headers have limits,
and so has what is read at once.
"""

from __future__ import annotations

import socket
from typing import Any

import aiohttp

from pytest_npubench.engines.http.endpoint import Endpoint

LINE_BYTES, NUM_HEADERS, READ_BYTES = 8190, 128, 2**14


class _ShortReads(socket.socket):
    """Reads READ_BYTES at once, where an event loop asks for 256 KiB: what a flood of the smallest answers
    ("HTTP/1.1 100 Continue") unfolds to between two turns of the loop is twenty times its bytes, on each connection."""

    @classmethod
    def of_address(cls, address: aiohttp.AddrInfoType) -> _ShortReads:
        family, kind, protocol, _, _ = address
        return cls(family, kind, protocol)

    def recv(self, num_bytes: int, flags: int = 0, /) -> bytes:
        return super().recv(min(num_bytes, READ_BYTES), flags)

    def recv_into(self, buffer: Any, num_bytes: int = 0, flags: int = 0) -> int:
        return super().recv_into(buffer, min(num_bytes or len(buffer), READ_BYTES), flags)


def open_session(endpoint: Endpoint) -> aiohttp.ClientSession:
    """Connections are kept and used again, as many as there are requests at once. Inside a running loop only.
    Raises ConfigError where the API key or the certificates are not there."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(
            limit=0, ssl=endpoint.tls(), keepalive_timeout=60.0, socket_factory=_ShortReads.of_address
        ),
        headers=endpoint.headers(),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        trust_env=False,
        max_line_size=LINE_BYTES,
        max_field_size=LINE_BYTES,
        max_headers=NUM_HEADERS,
    )
