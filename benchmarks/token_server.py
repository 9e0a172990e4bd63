"""A server of streamed tokens that costs little, so that a client is measured and not its server.

    python benchmarks/token_server.py --port 8001 --ttft-s 0.05 --itl-s 0.02

speaks the completions API: token k of a request is sent ttft + k itl after the request came, an event and a piece each.
It looks at the clock all the time and writes to its sockets by itself: some 10 us a token, where
known_answer.py, which is a whole web server, takes 60. GET /sent tells when each request came and when each of its
tokens was sent, in seconds of time.monotonic().
"""

from __future__ import annotations

import argparse
import gc
import json
import select
import socket
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field

SPIN_S = 0.0015
HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nKeep-Alive: timeout=600\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)
DONE = b"data: [DONE]\n\n"


@dataclass(slots=True)
class Stream:
    """One request and what was sent for it."""

    connection: socket.socket
    prompt: list[int]
    num_tokens: int
    came_s: float
    sent_s: list[float] = field(default_factory=list)


class TokenServer:
    """All of it in one thread. What is due next is at the head of one of two queues: times are given in advance, so
    each queue is in order by itself."""

    def __init__(self, port: int, ttft_s: float, itl_s: float) -> None:
        self._ttft_s, self._itl_s = ttft_s, itl_s
        self._first: deque[tuple[float, Stream]] = deque()
        self._next: deque[tuple[float, Stream]] = deque()
        self._streams: list[Stream] = []
        self._events: dict[tuple[int, bool], bytes] = {}
        self._received: dict[int, bytearray] = {}
        self._connections: dict[int, socket.socket] = {}
        self._epoll = select.epoll()
        self._listening = socket.create_server(("127.0.0.1", port), backlog=4096)
        self._listening.setblocking(False)
        self._epoll.register(self._listening, select.EPOLLIN)

    def serve(self) -> None:
        gc.disable()
        while True:
            due_s = min((queue[0][0] for queue in (self._first, self._next) if queue), default=float("inf"))
            early_s = due_s - time.monotonic()
            for number, _ in self._epoll.poll(min(0.1, early_s - SPIN_S) if early_s > SPIN_S else 0):
                self._accept() if number == self._listening.fileno() else self._receive(number)
            self._send_due()

    def _accept(self) -> None:
        with suppress(BlockingIOError):
            while True:
                connection, _ = self._listening.accept()
                connection.setblocking(False)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._connections[connection.fileno()] = connection
                self._received[connection.fileno()] = bytearray()
                self._epoll.register(connection, select.EPOLLIN)

    def _receive(self, number: int) -> None:
        connection, received = self._connections[number], self._received[number]
        try:
            part = connection.recv(2**20)
        except OSError:
            part = b""
        if not part:
            self._epoll.unregister(number)
            del self._connections[number], self._received[number]
            connection.close()
            return
        came_s = time.monotonic()
        received += part
        head, blank, body = bytes(received).partition(b"\r\n\r\n")
        if not blank:
            return
        if head.startswith(b"GET /sent"):
            self._tell(connection)
            received.clear()
            return
        length = next(int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
        if len(body) < length:
            return
        received.clear()
        asked = json.loads(body)
        stream = Stream(connection, asked["prompt"], int(asked["max_tokens"]), came_s)
        self._streams.append(stream)
        self._first.append((came_s + self._ttft_s, stream))

    def _send_due(self) -> None:
        for queue in (self._first, self._next):
            while queue and queue[0][0] <= time.monotonic():
                due_s, stream = queue.popleft()
                token = len(stream.sent_s)
                is_last = token + 1 == stream.num_tokens
                piece = self._event(token, is_last) if token else HEAD + self._event(token, is_last)
                stream.sent_s.append(time.monotonic())
                with suppress(OSError):  # a client that is gone
                    stream.connection.send(piece)
                if not is_last:
                    self._next.append((due_s + self._itl_s, stream))

    def _event(self, token: int, is_last: bool) -> bytes:
        """A chunk, and behind the last the end; as large as those of vLLM."""
        if (token, is_last) not in self._events:
            choice = {"index": 0, "text": f" {token}", "logprobs": None, "finish_reason": "length" if is_last else None}
            document = {
                "id": "cmpl-0123456789abcdef0123456789abcdef",
                "object": "text_completion",
                "created": 1700000000,
                "model": "known",
                "choices": [{**choice, "stop_reason": None}],
                "usage": {"prompt_tokens": 1, "total_tokens": token + 2, "completion_tokens": token + 1},
            }
            event = b"data: " + json.dumps(document).encode() + b"\n\n"
            end = b"%x\r\n%s\r\n0\r\n\r\n" % (len(DONE), DONE) if is_last else b""
            self._events[token, is_last] = b"%x\r\n%s\r\n%s" % (len(event), event, end)
        return self._events[token, is_last]

    def _tell(self, connection: socket.socket) -> None:
        told = [{"prompt": one.prompt, "came_s": one.came_s, "sent_s": one.sent_s} for one in self._streams]
        body = json.dumps(told).encode()
        connection.setblocking(True)
        connection.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(allow_abbrev=False, description="A server of streamed tokens that costs little.")
    parser.add_argument("--port", type=int, default=8001)
    parser.add_argument("--ttft-s", type=float, default=0.05)
    parser.add_argument("--itl-s", type=float, default=0.02)
    options = parser.parse_args()
    TokenServer(options.port, options.ttft_s, options.itl_s).serve()


if __name__ == "__main__":
    main()
