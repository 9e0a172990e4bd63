"""A vLLM engine in a process of its own, so that pytest's process imports nothing of it and outlives it.

The child is a fresh interpreter: this one, or that of another environment (`NPUBENCH_VLLM_PYTHON`), since vLLM pins
torch and more and need not share an environment with the plugin. Settings, requests and answers go over a pipe; the
child ends with its owner, even one that was killed. A child that dies or hangs fails what it was serving, and the
session goes on.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pytest_npubench.errors import DeviceUnavailableError, MeasurementError, UnitLostError
from pytest_npubench.extensions.vllm.answer import VllmAnswer, VllmRequest, VllmRun
from pytest_npubench.extensions.vllm.buckets import DeclaredBuckets, declared_in_log
from pytest_npubench.extensions.vllm.serving_run import check_requests
from pytest_npubench.extensions.vllm.settings import EngineSettings, environment, map_policy
from pytest_npubench.extensions.vllm.version import supported_vllm
from pytest_npubench.processes.child import python_child

# Compiles that a vLLM log reports. One after warm-up makes a campaign's samples invalid: a request waited for
# it (process.num_late_compiles).
#
# vLLM on TPU logs each program ("Compilation of backbone finished in 3.20 [secs]."), on CUDA the capture of graphs and
# the compile of a range of lengths. On TPU, VLLM_XLA_CHECK_RECOMPILATION=1 makes the server itself refuse late ones.
#
# Worked example: warm-up's last line is the 40th; "Compilation of backbone finished in 3.20 [secs]." stands in line 57:
# one late compile of 3.2 s.
WARM_UP_ENDS = "init engine (profile, create kv cache, warmup model) took"
"""vLLM's engine core logs this once, when it has compiled and captured all that it means to."""
_COMPILES = (
    re.compile(r"Compilation(?: of (?P<name>.+?))? finished in (?P<seconds>[\d.]+) \[secs\]"),
    re.compile(r"(?P<name>Graph capturing) finished in (?P<seconds>[\d.]+) secs"),
    re.compile(r"(?P<name>Compiling a graph for compile range .+?) takes (?P<seconds>[\d.]+) s"),
)
PYTHON_VARIABLE = "NPUBENCH_VLLM_PYTHON"
START_S = 900.0  # importing takes half a minute, large weights and compilation minutes
SERVE_S = 3600.0
ASK_S = 120.0
WORKER = "pytest_npubench.extensions.vllm.worker"
LOGGING = {"VLLM_LOGGING_LEVEL": "INFO"}  # compiles are told at this level; the log goes to a file of its own
_late_compiles: dict[int, int] = {}  # by the child's pid


@dataclass(frozen=True, slots=True, kw_only=True)
class Compile:
    """A program that was compiled, or a graph captured, by line `line` of the log (from 1). name "": it has none."""

    name: str
    compile_s: float
    line: int


def compiles_in_log(lines: Iterable[str]) -> tuple[Compile, ...]:
    """Every compile and graph capture that a log reports as finished, in order."""
    compiles = []
    for number, line in enumerate(lines, start=1):
        match = next(filter(None, (pattern.search(line) for pattern in _COMPILES)), None)
        if match:
            compiles.append(Compile(name=match["name"] or "", compile_s=float(match["seconds"]), line=number))
    return tuple(compiles)


def late_compiles(lines: Iterable[str], *, warm_up_ends: str = WARM_UP_ENDS) -> tuple[Compile, ...]:
    """Returns the compiles behind the line that ends warm-up. Raises MeasurementError where no line ends it."""
    kept = tuple(lines)
    end = next((number for number, line in enumerate(kept, start=1) if warm_up_ends in line), None)
    if end is None:
        raise MeasurementError(
            f"the log of {len(kept)} lines has none with {warm_up_ends!r}; want one, to know its end"
        )
    return tuple(one for one in compiles_in_log(kept) if one.line > end)


def num_late_compiles() -> int:
    """Compiles after warm-up, over all engines that this process started, as far as their logs tell."""
    return sum(_late_compiles.values())


class VllmProcess:
    """One engine under one policy in a child of `python` (None: the variable's, else this interpreter).

    `about` has distribution, version, platform and family of what runs there. Raises UnsupportedPolicyError or
    ConfigError for settings that cannot be, before anything starts; then what VllmEngine raises, and UnitLostError
    where the child dies or gives no answer.
    """

    def __init__(
        self, settings: EngineSettings, *, python: str | None = None, start_timeout_s: float = START_S
    ) -> None:
        self.settings, self.mapping = settings, map_policy(settings)
        python = python or vllm_python()
        if python == sys.executable:
            supported_vllm()  # of another environment only the child can tell
        variables = {**LOGGING, **environment(settings)}
        self._child = python_child(WORKER, {}, name="the vLLM process", python=python, environment=variables)
        try:
            self.about: dict[str, str | None] = self._child.call("start", settings, timeout_s=start_timeout_s)
        except BaseException:
            self._child.close()
            raise

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def is_open(self) -> bool:
        return self._child.is_open

    def serve(
        self,
        requests: Sequence[VllmRequest],
        *,
        count_experts: bool = False,
        chunk_size_tokens: int | None = None,
        timeout_s: float = SERVE_S,
    ) -> VllmRun:
        """Open loop. A child that is lost on the way leaves a run in which every request failed, with the reason.

        chunk_size_tokens: of a chunked engine with room for more (EngineSettings.room_tokens), for this run alone.
        """
        check_requests(requests)
        try:
            run: VllmRun = self._child.call(
                "serve", tuple(requests), count_experts, chunk_size_tokens, timeout_s=timeout_s
            )
        except UnitLostError as error:
            answers = tuple(VllmAnswer(request=request, failed=str(error)) for request in requests)
            return VllmRun(answers=answers, iterations=(), ended_s=requests[-1].arrival_s, lost=str(error))
        self._count_compiles()
        if run.lost:
            self.close()  # an engine that failed may still hold anything
        return run

    def declared(self) -> tuple[DeclaredBuckets, ...]:
        """Returns the sets of lengths that this vLLM says it pads to, by its configuration and its log; of CUDA graphs
        only the configuration in force tells."""
        logged = (found for found in declared_in_log(self._child.log()) if found.kind != "cudagraph")
        configured: tuple[DeclaredBuckets, ...] = self._child.call("declared", timeout_s=ASK_S)
        return tuple({found.kind: found for found in (*logged, *configured)}.values())

    def time_canary(self, kernel: str) -> float:
        """Returns seconds of one call of a canary kernel in that process. Raises MeasurementError where it cannot run
        there."""
        duration_s: float = self._child.call("time_canary", kernel, timeout_s=ASK_S)
        return duration_s

    def _count_compiles(self) -> None:
        with suppress(MeasurementError):  # a log that does not say where warm-up ended tells nothing
            _late_compiles[self.pid] = len(late_compiles(self._child.log()))

    def close(self) -> None:
        """End the child and wait for it. May be called twice."""
        self._child.close()


class VllmProcesses:
    """Engines by their settings, at most `most` at a time: one a policy, since vLLM sets its policy when it starts.

    Idle engines take memory and no processor time. The one asked for longest ago ends for a new one.
    """

    def __init__(self, *, most: int = 2, python: str | None = None) -> None:
        self._most, self._python = most, python
        self._open: dict[EngineSettings, VllmProcess] = {}

    def get(self, settings: EngineSettings) -> VllmProcess:
        """Returns the engine of these settings, started where there is none or it was lost. Raises what VllmProcess
        raises."""
        process = self._open.pop(settings, None)
        if process is None or not process.is_open:
            while len(self._open) >= self._most:
                self._open.pop(next(iter(self._open))).close()
            process = VllmProcess(settings, python=self._python)
        self._open[settings] = process
        return process

    def close(self) -> None:
        while self._open:
            self._open.popitem()[1].close()


def vllm_python() -> str:
    """Returns the interpreter that vLLM runs in. Raises DeviceUnavailableError where the variable names none."""
    python = os.environ.get(PYTHON_VARIABLE) or sys.executable
    if not Path(python).is_file():
        raise DeviceUnavailableError(f"{PYTHON_VARIABLE} is {python!r}; want the python of an environment with vLLM")
    return python
