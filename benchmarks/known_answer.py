"""A server that answers at times given beforehand, to find out what the client adds to them.

    python benchmarks/known_answer.py --port 8001 --ttft-s 0.05 --itl-s 0.01

speaks the completions and the chat API and generates nothing: token k of a request is sent ttft + k itl after the
request came. It serves to test and to calibrate a client; no figure of it says anything about a device.

No machine sends at the very time: GET /sent tells when each request came and when each of its tokens was sent, in
seconds of time.monotonic(), so that a client on the same machine can tell its own lateness from the server's.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count

from aiohttp import web

from pytest_npubench.core.clock import monotonic

SPIN_S = 0.0015
SENT = web.AppKey("sent", list[dict[str, object]])


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownAnswer:
    """ttft_s and itl_s of every answer; `merge` tokens go into one event; usage: "running", "last" or "none".

    A chat is answered with a tool's arguments in the place of content where `calls_tools` says so.
    """

    ttft_s: float
    itl_s: float
    merge: int = 1
    usage: str = "running"
    calls_tools: bool = False


class Pacer:
    """Wakes whoever waits for a time. One task looks at the clock for all: many that spin hold each other up."""

    def __init__(self) -> None:
        self._waiting: list[tuple[float, int, asyncio.Future[None]]] = []
        self._numbers = count()
        self._new = asyncio.Event()

    async def until(self, due_s: float) -> None:
        """Seconds of time.monotonic()."""
        future = asyncio.get_running_loop().create_future()
        heappush(self._waiting, (due_s, next(self._numbers), future))
        self._new.set()
        await future

    async def run(self) -> None:
        """An event loop's timers are rounded up to milliseconds: the rest is spent giving way to others."""
        while True:
            self._new.clear()
            early_s = self._waiting[0][0] - monotonic() if self._waiting else None
            if early_s is None or early_s > SPIN_S:
                with suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._new.wait(), None if early_s is None else early_s - SPIN_S)
                continue
            if early_s <= 0:
                future = heappop(self._waiting)[-1]
                if not future.done():
                    future.set_result(None)
                continue
            await asyncio.sleep(0)


KNOWN = web.AppKey("known", KnownAnswer)

PACER = web.AppKey("pacer", Pacer)


def application(answer: KnownAnswer) -> web.Application:
    """Serves both APIs, and whatever model is named."""
    app = web.Application(client_max_size=64 * 2**20)
    app[KNOWN] = answer
    app[SENT] = []
    app.cleanup_ctx.append(_paced)
    app.router.add_post("/v1/completions", _answer)
    app.router.add_post("/v1/chat/completions", _answer)
    app.router.add_get("/sent", _sent)
    return app


async def _paced(app: web.Application) -> AsyncIterator[None]:
    app[PACER] = Pacer()
    task = asyncio.create_task(app[PACER].run())
    yield
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def _sent(request: web.Request) -> web.Response:
    return web.json_response(request.app[SENT])


async def _answer(request: web.Request) -> web.StreamResponse:
    came_s = monotonic()
    answer: KnownAnswer = request.app[KNOWN]
    asked = await request.json()
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    total = int(asked.get("max_tokens") or asked["max_completion_tokens"])
    sent_s: list[float] = []
    request.app[SENT].append({"prompt": asked.get("prompt", asked.get("messages")), "came_s": came_s, "sent_s": sent_s})
    for first in range(0, total, answer.merge):
        stop = min(first + answer.merge, total)
        event = _event(answer, "messages" in asked, first, stop, total)
        await request.app[PACER].until(came_s + answer.ttft_s + (stop - 1) * answer.itl_s)
        sent_s.extend([monotonic()] * (stop - first))
        await response.write(event)
    if answer.usage == "last":
        await response.write(_data({"choices": [], "usage": {"completion_tokens": total}}))
    await response.write(b"data: [DONE]\n\n")
    return response


def _event(answer: KnownAnswer, chat: bool, first: int, stop: int, total: int) -> bytes:
    text = "".join(f" {token}" for token in range(first, stop))
    delta = {"tool_calls": [{"index": 0, "function": {"arguments": text}}]} if answer.calls_tools else {"content": text}
    choice: dict[str, object] = {"delta": delta} if chat else {"text": text}
    choice |= {"index": 0, "finish_reason": "length" if stop == total else None}
    document: dict[str, object] = {
        "object": "chat.completion.chunk" if chat else "text_completion",
        "choices": [choice],
    }
    if answer.usage == "running":
        document["usage"] = {"completion_tokens": stop}
    return _data(document)


def _data(document: dict[str, object]) -> bytes:
    return b"data: " + json.dumps(document).encode() + b"\n\n"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(allow_abbrev=False, description="A server that answers at times given beforehand.")
    parser.add_argument("--port", type=int, default=8001)
    parser.add_argument("--ttft-s", type=float, default=0.05)
    parser.add_argument("--itl-s", type=float, default=0.01)
    parser.add_argument("--merge", type=int, default=1, help="tokens in one event")
    parser.add_argument("--usage", choices=("running", "last", "none"), default="running")
    parser.add_argument("--calls-tools", action="store_true", help="a chat gets a tool's arguments")
    options = vars(parser.parse_args())
    port = options.pop("port")
    web.run_app(application(KnownAnswer(**options)), host="127.0.0.1", port=port, print=None)


if __name__ == "__main__":
    main()
