"""A server that means harm, on loopback: raw bytes at its own pace, one way of going wrong a case.

Nothing here is endless: an answer ends after MAX_BYTES and after MAX_S, whatever its reader does. Bytes go out as they
are, so that headers and framing can be wrong too. What each request brought is kept, and so is how many bytes left.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import repeat

MAX_BYTES = 768 * 2**20
MAX_S = 60.0
BLOCK = 2**16

Piece = bytes | float
"""Bytes to send, or seconds to wait."""
Answer = Callable[[], Iterable[Piece]]


def head(status: str = "200 OK", *lines: str) -> bytes:
    """The connection closes behind the answer, which is therefore of any length."""
    return "\r\n".join([f"HTTP/1.1 {status}", "Connection: close", *lines, "", ""]).encode("latin-1")


STREAM = head("200 OK", "Content-Type: text/event-stream")
JSON = head("200 OK", "Content-Type: application/json")
DONE = b"data: [DONE]\n\n"


def event(**changes: object) -> bytes:
    """One event of the completions API."""
    document = {"choices": [{"index": 0, "text": "a", "finish_reason": None}], **changes}
    return b"data: " + json.dumps(document).encode() + b"\n\n"


def raw_usage(number: str) -> bytes:
    """An event whose count is written as it stands, JSON or not."""
    return b'data: {"choices": [{"text": "a"}], "usage": {"completion_tokens": ' + number.encode() + b"}}\n\n"


def endless(start: bytes, piece: bytes) -> Answer:
    """`start`, then `piece` again and again in large blocks."""
    block = piece * max(1, BLOCK // len(piece))
    return lambda: _after(start, repeat(block))


def dripping(start: bytes, piece: bytes, every_s: float = 0.05) -> Answer:
    return lambda: _after(start, (part for _ in repeat(None) for part in (piece, every_s)))


def said(*pieces: Piece) -> Answer:
    return lambda: pieces


def bomb(start: bytes, size: int = 400 * 2**20) -> Answer:
    """`size` zeros, a thousandth of that in gzip."""
    packed = gzip.compress(bytes(2**20), compresslevel=9)
    return lambda: _after(start, repeat(packed, size // 2**20))


def _after(start: bytes, pieces: Iterable[Piece]) -> Iterator[Piece]:
    yield start
    yield from pieces


@dataclass(frozen=True)
class Asked:
    """What a request brought."""

    path: str
    headers: dict[str, str]
    body: bytes


def models(**changes: object) -> Answer:
    """The list of an honest server."""
    entry = {"id": "m", "owned_by": "hostile", "max_model_len": 4096, **changes}
    return said(JSON + json.dumps({"data": [entry]}).encode())


class Hostile:
    """Answers POST of completions with `post` and GET of /models, or of another list, with `listed`, until it is
    stopped."""

    def __init__(self, post: Answer, listed: Answer | None = None, list_path: str = "/models") -> None:
        self.asked: list[Asked] = []
        self.num_bytes = 0
        self.port = 0
        self._post, self._listed, self._list_path = post, listed or models(), list_path
        self._started = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        assert self._started.wait(10)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join(10)

    def _serve(self) -> None:
        self._loop.run_until_complete(self._until_stopped())
        self._loop.close()

    async def _until_stopped(self) -> None:
        self._stopped = asyncio.Event()
        tasks: set[asyncio.Task[None]] = set()

        def taken(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.create_task(self._one(reader, writer))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        server = await asyncio.start_server(taken, "127.0.0.1", 0, backlog=512)
        self.port = server.sockets[0].getsockname()[1]
        self._started.set()
        await self._stopped.wait()
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(OSError, asyncio.IncompleteReadError):
                asked = await _read(reader)
                self.asked.append(asked)
                if asked.path.endswith("/completions"):
                    answer = self._post
                elif asked.path.partition("?")[0].endswith(self._list_path):
                    answer = self._listed
                else:
                    answer = said(head("404 Not Found"))
                await self._write(writer, answer())
        finally:
            writer.transport.abort() if writer.transport.get_write_buffer_size() else writer.close()

    async def _write(self, writer: asyncio.StreamWriter, pieces: Iterable[Piece]) -> None:
        ends_s, left = time.monotonic() + MAX_S, MAX_BYTES
        for piece in pieces:
            if time.monotonic() > ends_s or left <= 0 or writer.transport.is_closing():
                return
            if isinstance(piece, bytes):
                writer.write(piece)
                await writer.drain()
                left -= len(piece)
                self.num_bytes += len(piece)
            else:
                await asyncio.sleep(piece)


async def _read(reader: asyncio.StreamReader) -> Asked:
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:] if line)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Asked(path=lines[0].split()[1], headers=headers, body=body)


RUNNING = [event(usage={"completion_tokens": number}) for number in (1, 2)]
WHOLE = event() + DONE
CHUNKED = head("200 OK", "Transfer-Encoding: chunked")
PACKED = "Content-Encoding: gzip"
GARBAGE = b"\x00\x01\x02 \xff\xfe\r\n\r\n\x1b[31m" * 20
RAW_STATUS = b"HTTP/1.1 500 \xff\xed\xa0\x80\x1b[31m\r\nConnection: close\r\n\r\n"

ANSWERS: dict[str, tuple[Answer, str]] = {
    # counts
    "count of 10^9": (said(STREAM, event(), raw_usage(str(10**9)), DONE), "^1000000000 tokens came, 2 were asked for$"),
    "count of 10^30": (said(STREAM, event(), raw_usage(str(10**30)), DONE), "^over 1000000000000 tokens came"),
    "running count to 10^9": (said(STREAM, RUNNING[0], raw_usage(str(10**9)), DONE), "^1000000000 tokens came"),
    "running count to 10^30": (said(STREAM, RUNNING[0], raw_usage(str(10**30)), DONE), "^over 1000000000000 tokens"),
    "count below 0": (said(STREAM, raw_usage("-5"), DONE), "completion_tokens is -5; want a whole number"),
    "count that is true": (said(STREAM, raw_usage("true"), DONE), "completion_tokens is true; want a whole number"),
    "count of 1e400": (said(STREAM, raw_usage("1e400"), DONE), "completion_tokens is Infinity; want"),
    "count of NaN": (said(STREAM, raw_usage("NaN"), DONE), "completion_tokens is NaN; want"),
    "count of 2.5": (said(STREAM, raw_usage("2.5"), DONE), "completion_tokens is 2.5; want"),
    "count in words": (said(STREAM, raw_usage('"two"'), DONE), 'completion_tokens is "two"; want'),
    "count of 5000 digits": (said(STREAM, raw_usage("9" * 5000), DONE), "^malformed stream: Exceeds the limit"),
    # sizes
    "endless 500": (endless(head("500 Oh"), b"x"), "^HTTP 500 Oh, of no type: x{200}$"),
    "endless line": (endless(STREAM + b"data: ", b"x"), "^an event of more than 262656 bytes"),
    "endless data lines": (endless(STREAM, b"data: " + b"x" * 1000 + b"\n"), "^an event of more than 262656 bytes"),
    "endless empty data lines": (endless(STREAM, b"data:\n"), "^an event of more than 262656 bytes"),
    "endless comments": (endless(STREAM, b": wait\n\n"), "an answer of more than 557056 bytes"),
    "endless events with text": (endless(STREAM, event()), "more than 72 events with text or counts"),
    "endless events without text": (endless(STREAM, b'data: {"choices": []}\n\n'), "an answer of more than 557056"),
    "endless running counts": (endless(STREAM + RUNNING[0], RUNNING[1]), "more than 72 events with text or counts"),
    "an event of 10^6 token ids": (
        said(STREAM, event(choices=[{"text": "a", "token_ids": [1] * 10**6}]), DONE),
        "^an event of more than 262656 bytes",
    ),
    "gzip bomb": (bomb(head("200 OK", PACKED)), "in the content coding gzip, which was not asked for"),
    "gzip bomb of a 500": (bomb(head("500 Oh", PACKED)), "^HTTP 500 Oh, of no type: words in the content coding gzip$"),
    "unknown coding": (said(head("200 OK", "Content-Encoding: magic"), event(), DONE), "in the content coding magic"),
    # headers and framing
    "endless header": (endless(b"HTTP/1.1 200 OK\r\nX: ", b"x"), "no answer in HTTP: Got more than 8190 bytes"),
    "endless headers": (
        endless(b"HTTP/1.1 200 OK\r\n", b"X-Y: " + b"z" * 1000 + b"\r\n"),
        "no answer in HTTP: Too many headers",
    ),
    "endless status line": (endless(b"HTTP/1.1 200 ", b"x"), "no answer in HTTP: Got more than 8190 bytes"),
    "endless 100 Continue": (endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n"), "^timed out"),
    "endless chunk extension": (endless(CHUNKED + b"1;", b"x"), "^timed out"),
    "endless trailers": (endless(CHUNKED + b"0\r\n", b"X-Y: zzz\r\n"), "Too many headers|disconnected"),
    "broken trailer": (
        said(CHUNKED, b"%x\r\n%s\r\n" % (len(WHOLE), WHOLE), 0.05, b"0\rx\n\r\n"),
        "^1 tokens came|no answer in HTTP",  # by whether its end was read first
    ),
    "cookies": (
        said(head("200 OK", *[f"Set-Cookie: c{index}={'v' * 4000}" for index in range(100)]), event(), DONE),
        "^1 tokens came",
    ),
    "a chunk of 10^30": (said(CHUNKED + b"f" * 25 + b"\r\n", event(), DONE), "no answer in HTTP: Chunk size|disconn"),
    "length below 0": (said(b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", event(), DONE), "no answer in HTTP"),
    "no HTTP": (said(GARBAGE), "no answer in HTTP"),
    "charset that is no text's": (
        said(head("500 Oh", "Content-Type: text/plain; charset=rot13"), b"words"),
        "^HTTP 500 Oh, text/plain; charset=rot13: words$",
    ),
    # JSON
    "nested event": (said(STREAM, b"data: " + b"[" * 100_000 + b"\n\n"), "nested deeper than any answer"),
    "nested error": (
        said(STREAM, b'data: {"error": ' + b'{"a":' * 800 + b"1" + b"}" * 800 + b"}\n\n"),
        r'^the server ended its answer: .*"a":.*\.\.\. \(HTTP 200 OK, text/event-stream\)$',
    ),
    "nested 500": (said(head("500 Oh"), b'{"a":' * 100_000), '^HTTP 500 Oh, of no type: {"a":'),
    "surrogates": (said(STREAM, b'data: {"choices": [{"text": "\\ud800"}]}\n\n', DONE), "^1 tokens came"),
    "surrogate error": (
        said(STREAM, b'data: {"error": {"message": "\\ud800\\u001b[31m"}}\n\n'),
        r"^the server ended its answer: .*\\ud800\\u001b\[31m",
    ),
    "no UTF-8": (said(STREAM, b"data: \xff\xfe\n\n"), "an event that is no UTF-8"),
    "status of raw bytes": (said(RAW_STATUS, b"\x1b]0;x\x07\xff"), r"^HTTP 500 \S*\\x1b\[31m, of no type: \\x1b\]0;x"),
    "choices of no list": (said(STREAM, event(choices={"text": "a"}), DONE), "no list of choices in"),
    "a choice of no object": (said(STREAM, event(choices=[3]), DONE), r"choices\[0\] is 3; want an object"),
    "text of no text": (said(STREAM, event(choices=[{"text": 3}]), DONE), "text is 3; want text"),
    "a delta of no object": (said(STREAM, event(choices=[{"delta": 3}]), DONE), "delta is 3; want an object"),
    "usage of no object": (said(STREAM, event(usage=[3]), DONE), r"usage is \[3\]; want an object"),
    "a reason of no text": (
        said(STREAM, event(choices=[{"text": "a", "finish_reason": {"a": 1}}]), DONE),
        'finish_reason is {"a": 1}; want text',
    ),
    # time
    "dripping 200": (dripping(STREAM, b": wait\n\n"), "^timed out: no whole answer in"),
    "dripping 500": (dripping(head("500 Oh"), b"x"), "^HTTP 500 Oh, of no type: xx"),
    "dripping header": (dripping(b"HTTP/1.1 200 OK\r\nX: ", b"x"), "^timed out: no whole answer in"),
}
"""How a completion of two tokens is answered, and how the client says that it failed."""

LISTS: dict[str, tuple[Answer, str]] = {
    "endless list": (endless(JSON, b"x"), "an answer of more than 4194304 bytes"),
    "endless headers": (endless(b"HTTP/1.1 200 OK\r\n", b"X-Y: " + b"z" * 1000 + b"\r\n"), "more than 100 headers"),
    "endless 100 Continue": (endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n"), "timed out"),
    "gzip bomb": (bomb(head("200 OK", PACKED)), "/models is in the content coding gzip, which was not asked for"),
    "nested list": (said(JSON, b'{"data": ' + b"[" * 200_000), "/models holds no list"),
    "list of numbers": (said(JSON, b'{"data": [1, 1e400, NaN, true]}'), "no entry of /models has an id of 1 to"),
    "dripping status": (dripping(b"", b"H"), "timed out"),
    "dripping header": (dripping(b"HTTP/1.1 200 OK\r\nX: ", b"x"), "timed out"),
    "dripping body": (dripping(head("200 OK", "Content-Length: 1000"), b" "), "timed out"),
    "dripping chunk size": (dripping(CHUNKED, b"0"), "timed out"),
    "surrogate name": (models(id="\ud800"), "no entry of /models has an id of 1 to 256 plain signs"),
    "long name": (models(id="m" * 10**6), "no entry of /models has an id of 1 to 256 plain signs"),
    "no UTF-8": (said(JSON, b'{"data": [{"id": "\xff"}]}'), "/models holds no list"),
    "no HTTP": (said(GARBAGE), "no server answers at"),
}
"""How the question for its models is answered, and how the client says that there are none."""
