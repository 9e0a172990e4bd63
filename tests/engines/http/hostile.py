"""A server that means harm, on loopback: raw bytes at its own pace, one way of going wrong a case.

    python -m engines.http.hostile CASE     serves it until its input closes, and prints its address first

Nothing here is endless: an answer ends after MAX_BYTES and after MAX_S, whatever its reader does. Bytes go out as they
are, so that headers and framing can be wrong too. What each request brought is kept, and so is how many bytes left.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import sys
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


def dripping(start: bytes, piece: bytes, every_s: float = 1.0) -> Answer:
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
    """Answers POST with `post` and GET of /models with `listed` until it is stopped."""

    def __init__(self, post: Answer, listed: Answer | None = None) -> None:
        self.asked: list[Asked] = []
        self.num_bytes = 0
        self.port = 0
        self._post, self._listed = post, listed or models()
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
                elif asked.path.endswith("/models"):
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

POSTS: dict[str, Answer] = {
    # counts
    "count of 10^9": said(STREAM, event(), raw_usage(str(10**9)), DONE),
    "count of 10^30": said(STREAM, event(), raw_usage(str(10**30)), DONE),
    "running count to 10^9": said(STREAM, RUNNING[0], raw_usage(str(10**9)), DONE),
    "running count to 10^30": said(STREAM, RUNNING[0], raw_usage(str(10**30)), DONE),
    "count below 0": said(STREAM, raw_usage("-5"), DONE),
    "count that is true": said(STREAM, raw_usage("true"), DONE),
    "count of 1e400": said(STREAM, raw_usage("1e400"), DONE),
    "count of NaN": said(STREAM, raw_usage("NaN"), DONE),
    "count of 2.5": said(STREAM, raw_usage("2.5"), DONE),
    "count in words": said(STREAM, raw_usage('"two"'), DONE),
    "count of 5000 digits": said(STREAM, raw_usage("9" * 5000), DONE),
    # sizes
    "endless 500": endless(head("500 Oh"), b"x"),
    "endless 200 line": endless(STREAM + b"data: ", b"x"),
    "endless data lines": endless(STREAM, b"data: x\n"),
    "endless empty data lines": endless(STREAM, b"data:\n"),
    "endless comments": endless(STREAM, b": wait\n\n"),
    "endless events with text": endless(STREAM, event()),
    "endless events without text": endless(STREAM, b'data: {"choices": []}\n\n'),
    "endless running counts": endless(STREAM + RUNNING[0], RUNNING[1]),
    "an event of 10^6 token ids": said(STREAM, event(choices=[{"text": "a", "token_ids": [1] * 10**6}]), DONE),
    "gzip bomb": bomb(head("200 OK", "Content-Encoding: gzip", "Content-Type: text/event-stream")),
    "gzip bomb of a 500": bomb(head("500 Oh", "Content-Encoding: gzip")),
    "unknown coding": said(head("200 OK", "Content-Encoding: magic"), event(), DONE),
    # headers and framing
    "endless header": endless(b"HTTP/1.1 200 OK\r\nX: ", b"x"),
    "endless headers": endless(b"HTTP/1.1 200 OK\r\n", b"X-Y: " + b"z" * 1000 + b"\r\n"),
    "endless status line": endless(b"HTTP/1.1 200 ", b"x"),
    "endless 100 Continue": endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "endless chunk extension": endless(head("200 OK", "Transfer-Encoding: chunked") + b"1;", b"x"),
    "endless trailers": endless(head("200 OK", "Transfer-Encoding: chunked") + b"0\r\n", b"X-Y: zzz\r\n"),
    "cookies": said(head("200 OK", *[f"Set-Cookie: c{index}={'v' * 4000}" for index in range(100)]), event(), DONE),
    "a chunk of 10^30": said(head("200 OK", "Transfer-Encoding: chunked") + b"f" * 25 + b"\r\n", event(), DONE),
    "length below 0": said(b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", event(), DONE),
    "no HTTP": said(b"\x00\x01\x02 \xff\xfe\r\n\r\n\x1b[31m" * 20),
    "text before a status": said(b"hello, I am a\r\nmail server\r\n\r\n"),
    "charset that is no text's": said(head("500 Oh", "Content-Type: text/plain; charset=rot13"), b"words"),
    # JSON
    "nested event": said(STREAM, b"data: " + b"[" * 100_000 + b"\n\n"),
    "nested error": said(STREAM, b'data: {"error": ' + b'{"a":' * 800 + b"1" + b"}" * 800 + b"}\n\n"),
    "nested 500": said(head("500 Oh"), b'{"a":' * 100_000),
    "surrogates": said(STREAM, b'data: {"choices": [{"text": "\\ud800"}]}\n\n', DONE),
    "surrogate error": said(STREAM, b'data: {"error": {"message": "\\ud800\\u001b[31m"}}\n\n'),
    "no UTF-8": said(STREAM, b"data: \xff\xfe\n\n"),
    "status of raw bytes": said(
        b"HTTP/1.1 500 \xff\xed\xa0\x80\x1b[31m\r\nConnection: close\r\n\r\n", b"\x1b]0;x\x07\xff"
    ),
    "choices of no list": said(STREAM, event(choices={"text": "a"}), DONE),
    "a choice of no object": said(STREAM, event(choices=[3]), DONE),
    "text of no text": said(STREAM, event(choices=[{"text": ["a"]}]), DONE),
    "a delta of no object": said(STREAM, event(choices=[{"delta": 3}]), DONE),
    "usage of no object": said(STREAM, event(usage=[3]), DONE),
    "a reason of no text": said(STREAM, event(choices=[{"text": "a", "finish_reason": {"a": 1}}]), DONE),
    # time
    "dripping 200": dripping(STREAM, b": wait\n\n"),
    "dripping 500": dripping(head("500 Oh"), b"x"),
    "dripping header": dripping(b"HTTP/1.1 200 OK\r\nX: ", b"x"),
    "never ends behind its end": dripping(STREAM + event() + event() + DONE, b": wait\n\n"),
}
"""What a completion is answered with."""

LISTS: dict[str, Answer] = {
    "endless list": endless(JSON, b"x"),
    "endless headers": endless(b"HTTP/1.1 200 OK\r\n", b"X-Y: " + b"z" * 1000 + b"\r\n"),
    "endless 100 Continue": endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "gzip bomb": bomb(head("200 OK", "Content-Encoding: gzip")),
    "list of lists": said(JSON, b'{"data": [' + b"[]," * 1_300_000 + b"1]}"),
    "nested list": said(JSON, b'{"data": ' + b"[" * 200_000),
    "dripping status": dripping(b"", b"H"),
    "dripping header": dripping(b"HTTP/1.1 200 OK\r\nX: ", b"x"),
    "dripping body": dripping(head("200 OK", "Content-Length: 1000"), b" "),
    "dripping chunk size": dripping(head("200 OK", "Transfer-Encoding: chunked"), b"0"),
    "context of 10^400": said(JSON + b'{"data": [{"id": "m", "max_model_len": 1' + b"0" * 400 + b"}]}"),
    "context that is true": models(max_model_len=True),
    "context of NaN": models(max_model_len=float("nan")),
    "surrogate name": models(id="\ud800"),
    "long name": models(id="m" * 10**6),
    "owner of no text": models(owned_by=["vllm"]),
    "no UTF-8": said(JSON, b'{"data": [{"id": "\xff"}]}'),
    "no HTTP": said(b"\x00\x01\x02 \xff\xfe\r\n\r\n\x1b[31m" * 20),
    "redirect": said(head("302 Found", "Location: http://user:secret@127.0.0.1:1/v1/models?key=secret")),
}
"""What the question for its models is answered with."""


def main() -> None:
    kind, name = sys.argv[1:3]
    server = Hostile(POSTS[name]) if kind == "post" else Hostile(models(), LISTS[name])
    print(server.url, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
