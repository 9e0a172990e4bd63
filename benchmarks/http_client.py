"""What the HTTP client adds to times that are known.

    python benchmarks/http_client.py [RATE_PER_S] [NUM_REQUESTS] [TOKENS] [PROCESSES]

A server in a process of its own sends every token at a time given beforehand, and tells when it really did
(token_server.py). Printed: how late requests were sent; what the client adds to a first token (from its own start of a
request to the server's, and from the server's sending to its own reading) and to a gap between tokens; how far the
measured times are from those given, with the server's own lateness in them; and what a request takes of a core, its
events read and all. Requests that go ahead open the connections, which are then used again.
"""

from __future__ import annotations

import json
import os
import resource
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from pytest_npubench.engines.http.answer import HttpRequest
from pytest_npubench.engines.http.endpoint import Endpoint
from pytest_npubench.engines.http.load_run import HttpRun, run_load
from pytest_npubench.serving.arrivals import poisson

TTFT_S, ITL_S = 0.05, 0.02
RATE, NUMBER, OUTPUT_TOKENS, PROCESSES = (
    int(given) for given in [*sys.argv[1:], *("200", "2000", "8", "1")[len(sys.argv) - 1 :]]
)
NUM_CONNECTIONS = int(1.5 * RATE * (TTFT_S + ITL_S * OUTPUT_TOKENS)) + 10
OPENED_S = 2.0  # the time that they are opened in
AHEAD_S = OPENED_S + TTFT_S + ITL_S * OUTPUT_TOKENS + 1.0


def main() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = [sys.executable, str(Path(__file__).parent / "token_server.py")]
    server = subprocess.Popen([*program, "--port", str(port), "--ttft-s", str(TTFT_S), "--itl-s", str(ITL_S)])
    _part_cores(server.pid)
    try:
        _wait_for(port)
        endpoint = Endpoint(url=f"http://127.0.0.1:{port}/v1", model="known")
        ahead_s = [OPENED_S * index / NUM_CONNECTIONS for index in range(NUM_CONNECTIONS)]
        arrivals_s = ahead_s + [AHEAD_S + at_s for at_s in poisson(RATE, NUMBER, seed=0)]
        requests = [
            HttpRequest(id=index, arrival_s=arrival_s, prompt=(index,), output_tokens=OUTPUT_TOKENS)
            for index, arrival_s in enumerate(arrivals_s)
        ]
        before_s = _core_s()
        run = _sent(endpoint, requests)
        core_s = (_core_s() - before_s) / len(requests)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/sent") as response:
            sent = {record["prompt"][0]: record for record in json.load(response)}
    finally:
        server.kill()
    answers = [answer for answer in run.answers[NUM_CONNECTIONS:] if answer.failed is None]
    print(
        f"{len(answers)} of {NUMBER} answered at {RATE} requests/s, {OUTPUT_TOKENS} tokens each, {PROCESSES} processes"
    )
    print(f"{'a request takes of a core':27} {core_s * 1e6:7.0f} us")
    _show("dispatch lag", run.dispatch_lags_s[NUM_CONNECTIONS:])
    ttft_s = [one.token_times_s[0] - (one.dispatched_s or 0.0) for one in answers]
    theirs_s = [_first_s(sent[one.request.id]) for one in answers]
    _show("client adds to TTFT", [mine - server for mine, server in zip(ttft_s, theirs_s, strict=True)])
    gaps_s = [_gaps(one.token_times_s) for one in answers]
    their_gaps_s = [_gaps(sent[one.request.id]["sent_s"]) for one in answers]
    pairs = [pair for one in zip(gaps_s, their_gaps_s, strict=True) for pair in zip(*one, strict=True)]
    _show("client moves ITL by", [abs(mine - server) for mine, server in pairs])
    _show("TTFT beyond the given", [one - TTFT_S for one in ttft_s])
    _show("the server's part of it", [one - TTFT_S for one in theirs_s])
    _show("ITL off the given", [abs(mine - ITL_S) for mine, _ in pairs])
    _show("the server's part of it", [abs(server - ITL_S) for _, server in pairs])
    _show("event loop stalls", run.loop_stalls_s)


def _sent(endpoint: Endpoint, requests: Sequence[HttpRequest]) -> HttpRun:
    if PROCESSES == 1:
        return run_load(endpoint, requests)
    from pytest_npubench.engines.http.shared_load import run_shared_load

    return run_shared_load(endpoint, requests, PROCESSES)


def _core_s() -> float:
    """Taken by this process, and by those that it started and that have ended."""
    taken = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in taken)


def _first_s(record: dict[str, list[float]]) -> float:
    """From the request's coming to the server's first token."""
    return record["sent_s"][0] - record["came_s"]  # type: ignore[operator]


def _gaps(times_s: Sequence[float]) -> list[float]:
    return [later - earlier for earlier, later in pairwise(times_s)]


def _show(name: str, values_s: Sequence[float]) -> None:
    ordered = sorted(values_s)
    p50, p99 = (ordered[int(len(ordered) * level)] for level in (0.5, 0.99))
    print(f"{name:24} p50 {p50 * 1e6:7.0f} us   p99 {p99 * 1e6:7.0f} us")


def _part_cores(server: int) -> None:
    """One for the server, the others for the client: on one core each would time the other's turn."""
    if hasattr(os, "sched_getaffinity") and len(cores := sorted(os.sched_getaffinity(0))) > 1:
        os.sched_setaffinity(server, cores[-1:])
        os.sched_setaffinity(0, cores[:-1])


def _wait_for(port: int) -> None:
    for _ in range(200):
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.1)
    raise SystemExit("the known-answer server did not start")


if __name__ == "__main__":
    main()
