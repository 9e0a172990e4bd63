"""One load from several processes, where one core is not enough for a client: the same requests at the same times.

Process i of n sends requests i, i + n, i + 2 n... of the schedule, each when it is due on one clock (time.monotonic is
the machine's). Answers come back in the order of arrival. A process that is lost takes its requests along: they are
failures that are told apart from all that a server can be blamed for.

Worked example: of requests 0 to 4 in two processes the first sends 0, 2 and 4, the second 1 and 3.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from pytest_npubench.core.clock import monotonic
from pytest_npubench.engines.http.answer import HttpAnswer, HttpRequest
from pytest_npubench.engines.http.client import answer_limits
from pytest_npubench.engines.http.endpoint import Endpoint
from pytest_npubench.engines.http.load_run import HttpRun, run_load
from pytest_npubench.errors import UnitLostError
from pytest_npubench.processes.child import Child, hosted

MADE_BY = "pytest_npubench.engines.http.shared_load:part"
BATCH = 500  # requests, or answers, of one message
BEFORE_S = 0.5  # from the word to start until the first time of the schedule: names, certificates, a collection
PATIENCE_S = 60.0  # for a part that is over by its limits


def run_shared_load(endpoint: Endpoint, requests: Sequence[HttpRequest], num_processes: int) -> HttpRun:
    """Runs a load as run_load does, from num_processes processes but this one, at most one a request. Raises as
    run_load, and UnitLostError where a process is lost before the start; a later loss is in HttpRun.lost."""
    number = min(num_processes, len(requests))
    with ExitStack() as stack:
        parts = []
        for index in range(number):
            child = hosted(MADE_BY, {}, name=f"process {index + 1} of {number} of the client")
            stack.callback(child.close)
            parts.append(child)
        for child in parts:  # they start all at once
            child.started()
        for index, child in enumerate(parts):
            for batch in _batches(requests[index::number]):
                child.call("take", endpoint, batch)
        return _run(endpoint, requests, parts)


def _run(endpoint: Endpoint, requests: Sequence[HttpRequest], parts: Sequence[Child]) -> HttpRun:
    longest_s = max(item.arrival_s + answer_limits(endpoint, item.output_tokens).time_s for item in requests)
    answers: list[HttpAnswer] = [_lost(request, "") for request in requests]
    stalls: list[float] = []
    lost: list[str] = []
    ended_s = 0.0
    starts_at_s = monotonic() + BEFORE_S
    for child in parts:
        child.send("run", (starts_at_s,), {})
    for index, child in enumerate(parts):
        share = slice(index, None, len(parts))
        try:
            report: Told = child.answer(BEFORE_S + longest_s + PATIENCE_S)
            starts = range(0, report.num_answers, BATCH)
            arrived = [each for start in starts for each in child.call("answers", start, start + BATCH)]
        except UnitLostError as error:
            lost.append(str(error))
            answers[share] = [_lost(request, str(error)) for request in requests[share]]
            continue
        answers[share] = [each.answer(request) for each, request in zip(arrived, requests[share], strict=True)]
        stalls += report.loop_stalls_s
        ended_s = max(ended_s, report.ended_s)
    return HttpRun(
        answers=tuple(answers),
        loop_stalls_s=tuple(sorted(stalls)),
        started_s=starts_at_s,
        ended_s=ended_s,
        lost=tuple(lost),
    )


def _lost(request: HttpRequest, why: str) -> HttpAnswer:
    """Nobody knows whether it was sent."""
    return HttpAnswer(request=request, dispatched_s=None, failed=f"lost with {why}")


def _batches(requests: Sequence[HttpRequest]) -> Iterator[tuple[HttpRequest, ...]]:
    for start in range(0, len(requests), BATCH):
        yield tuple(requests[start : start + BATCH])


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a part's run was like, without its answers."""

    num_answers: int
    loop_stalls_s: tuple[float, ...]
    ended_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Came:
    """An answer without its request, which the owner has."""

    dispatched_s: float | None
    token_times_s: tuple[float, ...]
    counted_by: str
    remarks: Mapping[str, int]
    failed: str | None

    @classmethod
    def of(cls, answer: HttpAnswer) -> Came:
        return cls(
            dispatched_s=answer.dispatched_s,
            token_times_s=answer.token_times_s,
            counted_by=answer.counted_by,
            remarks=answer.remarks,
            failed=answer.failed,
        )

    def answer(self, request: HttpRequest) -> HttpAnswer:
        return HttpAnswer(
            request=request,
            dispatched_s=self.dispatched_s,
            token_times_s=self.token_times_s,
            counted_by=self.counted_by,
            remarks=self.remarks,
            failed=self.failed,
        )


@dataclass(slots=True)
class Part:
    """The child's side: what its owner calls by name."""

    _endpoint: Endpoint | None = None
    _requests: list[HttpRequest] = field(default_factory=list)
    _answers: tuple[HttpAnswer, ...] = ()

    def take(self, endpoint: Endpoint, requests: Sequence[HttpRequest]) -> None:
        self._endpoint = endpoint
        self._requests += requests

    def run(self, starts_at_s: float) -> Told:
        """Raises as run_load does."""
        assert self._endpoint is not None
        run = run_load(self._endpoint, self._requests, starts_at_s=starts_at_s)
        self._answers = run.answers
        return Told(num_answers=len(run.answers), loop_stalls_s=run.loop_stalls_s, ended_s=run.ended_s)

    def answers(self, start: int, stop: int) -> tuple[Came, ...]:
        return tuple(Came.of(answer) for answer in self._answers[start:stop])


def part(arguments: Mapping[str, object]) -> Part:
    """Makes a part for processes.owner."""
    return Part()
