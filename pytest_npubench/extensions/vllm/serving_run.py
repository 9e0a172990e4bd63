"""Open-loop load on an engine in this process: each request is handed over when it is due, whether or not others were
answered.

vLLM takes requests up between iterations, so one that arrives during an iteration is handed over at its end; that lag
is in its TTFT, which counts from the arrival, and is reported beside it.

A request that vLLM refuses fails alone. Where the engine itself fails, every request that has not all its tokens fails
with the reason, those that had yet to arrive too: they count among the arrived ones.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Protocol

from pytest_npubench.core.clock import monotonic
from pytest_npubench.engines.no_collection import no_collection
from pytest_npubench.errors import ConfigError, NpubenchError
from pytest_npubench.extensions.vllm.answer import Iteration, NewTokens, Scheduled, VllmAnswer, VllmRequest, VllmRun

SPIN_S = 0.001  # sleep() comes back up to a millisecond late: the rest is spent looking at the clock


class SteppedEngine(Protocol):
    """The part of VllmEngine that a run needs."""

    @property
    def has_unfinished(self) -> bool: ...

    def add(self, request: VllmRequest) -> None: ...

    def step(self) -> tuple[NewTokens, ...]: ...

    def take_scheduled(self) -> Scheduled | None: ...


@dataclass(slots=True)
class _OpenRequests:
    """A request's answer as it grows."""

    request: VllmRequest
    dispatched_s: float | None = None
    scheduled_s: float | None = None
    token_times_s: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    logprobs: list[tuple[float, ...]] = field(default_factory=list)
    num_preemptions: int = 0
    failed: str | None = None

    def take(self, new: NewTokens, started_s: float) -> None:
        self.scheduled_s = new.scheduled_at_s - started_s
        self.num_preemptions = new.num_preemptions
        self.failed = new.failed
        self.token_times_s += [new.at_s - started_s] * len(new.tokens)
        self.tokens += new.tokens
        self.logprobs += new.logprobs

    def answer(self, lost: str | None) -> VllmAnswer:
        is_whole = len(self.tokens) == self.request.output_tokens
        unanswered = "the engine had no more work, and it has not all its tokens"
        return VllmAnswer(
            request=self.request,
            dispatched_s=self.dispatched_s,
            scheduled_s=self.scheduled_s,
            token_times_s=tuple(self.token_times_s),
            tokens=tuple(self.tokens),
            num_preemptions=self.num_preemptions,
            failed=self.failed or (None if is_whole else lost or unanswered),
            logprobs=tuple(self.logprobs),
        )


def serve(
    engine: SteppedEngine,
    requests: Sequence[VllmRequest],
    *,
    count_experts: Callable[[], int] | None = None,
    now_s: Callable[[], float] = monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> VllmRun:
    """Serve them all. `count_experts` gives the distinct experts since it was last asked. `now_s` is the clock that
    NewTokens are on. Raises ConfigError for requests that are out of order or share an id."""
    check_requests(requests)
    answers = {request.id: _OpenRequests(request) for request in requests}
    waiting, iterations, lost = deque(requests), list[Iteration](), None
    with no_collection():
        started_s = now_s()
        try:
            while waiting or engine.has_unfinished:
                _hand_over(engine, waiting, answers, lambda: now_s() - started_s)
                if not engine.has_unfinished:
                    if waiting:
                        _wait_until(started_s + waiting[0].arrival_s, now_s, sleep)
                    continue
                begun_s = now_s() - started_s
                for new in engine.step():
                    answers[new.request].take(new, started_s)
                if (ran := engine.take_scheduled()) is not None:
                    iterations.append(_iteration(ran, begun_s, now_s() - started_s, count_experts))
        except NpubenchError as error:
            lost = str(error)
        ended_s = now_s() - started_s
    return VllmRun(
        answers=tuple(answer.answer(lost) for answer in answers.values()),
        iterations=tuple(iterations),
        ended_s=ended_s,
        lost=lost,
    )


def check_requests(requests: Sequence[VllmRequest]) -> None:
    """Raises ConfigError where there is none, ids repeat or arrivals are out of order."""
    if not requests:
        raise ConfigError("no request arrives; want at least one")
    if len({request.id for request in requests}) < len(requests):
        raise ConfigError("two requests of one id; want each id once")
    if any(after.arrival_s < before.arrival_s for before, after in pairwise(requests)):
        raise ConfigError("requests are not in order of arrival")


def _hand_over(
    engine: SteppedEngine,
    waiting: deque[VllmRequest],
    answers: dict[int, _OpenRequests],
    elapsed_s: Callable[[], float],
) -> None:
    """Hands over every request that is due."""
    while waiting and waiting[0].arrival_s <= (at_s := elapsed_s()):
        request = waiting.popleft()
        answer = answers[request.id]
        answer.dispatched_s = at_s
        try:
            engine.add(request)
        except ConfigError as error:
            answer.failed = str(error)


def _wait_until(due_s: float, now_s: Callable[[], float], sleep: Callable[[float], None]) -> None:
    if (left_s := due_s - now_s() - SPIN_S) > 0:
        sleep(left_s)
    while now_s() < due_s:
        pass


def _iteration(ran: Scheduled, start_s: float, end_s: float, count_experts: Callable[[], int] | None) -> Iteration:
    activations = None if count_experts is None else count_experts()
    return Iteration(**asdict(ran), start_s=start_s, end_s=end_s, expert_activations=activations)
