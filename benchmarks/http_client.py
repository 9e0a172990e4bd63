"""What the HTTP client adds to times that are known: python benchmarks/http_client.py [RATE_PER_S] [NUM_REQUESTS]

A server in a process of its own sends every token at a time given beforehand. Printed: how late requests were sent, and
how far the first tokens and the gaps that the client saw are from the ones given; the server's own lateness is in them.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

from pytest_npubench.engines.http.answer import HttpRequest
from pytest_npubench.engines.http.endpoint import Endpoint
from pytest_npubench.engines.http.load_run import run_load

TTFT_S, ITL_S, OUTPUT_TOKENS = 0.05, 0.02, 8


def main() -> None:
    rate = float(sys.argv[1]) if len(sys.argv) > 1 else 200.0
    number = int(sys.argv[2]) if len(sys.argv) > 2 else 2000
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    module = "pytest_npubench.engines.http.known_answer"
    options = ["--port", str(port), "--ttft-s", str(TTFT_S), "--itl-s", str(ITL_S)]
    server = subprocess.Popen([sys.executable, "-m", module, *options])
    try:
        _wait_for(port)
        endpoint = Endpoint(url=f"http://127.0.0.1:{port}/v1", model="known")
        requests = [
            HttpRequest(id=index, arrival_s=1 + index / rate, prompt=(1, 2, 3), output_tokens=OUTPUT_TOKENS)
            for index in range(number)
        ]
        run = run_load(endpoint, requests)
    finally:
        server.kill()
    answers = [answer for answer in run.answers if answer.failed is None]
    print(f"{len(answers)} of {number} answered at {rate:g} requests/s, {OUTPUT_TOKENS} tokens each")
    _show("dispatch lag", run.dispatch_lags_s)
    _show("TTFT beyond the known", [one.token_times_s[0] - one.dispatched_s - TTFT_S for one in answers])
    gaps = [
        later - earlier - ITL_S
        for one in answers
        for earlier, later in zip(one.token_times_s, one.token_times_s[1:], strict=False)
    ]
    _show("ITL off the known", [abs(gap) for gap in gaps])
    _show("event loop stalls", run.loop_stalls_s)


def _show(name: str, values_s: Sequence[float]) -> None:
    ordered = sorted(values_s)
    p50, p99 = (ordered[int(len(ordered) * level)] for level in (0.5, 0.99))
    print(f"{name:24} p50 {p50 * 1e6:7.0f} us   p99 {p99 * 1e6:7.0f} us")


def _wait_for(port: int) -> None:
    for _ in range(200):
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.1)
    raise SystemExit("the known-answer server did not start")


if __name__ == "__main__":
    main()
