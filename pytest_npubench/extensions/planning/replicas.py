"""The serving loop for data-parallel replicas: copies of one engine that share a load, on a virtual clock.

A request goes, when it arrives, to the replica with the lowest 4 x waiting + running, the first of several (the
balancer of vLLM's data-parallel engines). Replicas iterate each at its own pace; those that share the experts of one
model do so in lock step: their iterations start together and end when the slowest has ended.

Worked example: two replicas, requests at 0.0, 0.1 and 0.2 s: the first goes to replica 0, the second to replica 1, and
the third to replica 0 again unless the first is still waiting there.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence

from pytest_npubench.serving.iteration import Executor, IterationOutcome, IterationPlan
from pytest_npubench.serving.log import IterationLog, merged
from pytest_npubench.serving.loop import check_all_served, check_scheduler, end_unfinished, planned_at
from pytest_npubench.serving.request import ServingRequest, check_load
from pytest_npubench.serving.result import ServingResult, records_of
from pytest_npubench.serving.schedulers.protocol import Scheduler
from pytest_npubench.serving.slo_watch import SloWatch
from pytest_npubench.serving.stretch import decode_stretch, run_decode_of

WAITING_WEIGHT = 4
RunTogether = Callable[[Sequence[IterationPlan | None]], Sequence[IterationOutcome | None]]
"""One iteration of every replica that has a plan; all their outcomes have one duration."""


class Replica:
    """One copy: its policy, its device, what was sent to it and what it has run; the watch is that of all copies."""

    def __init__(self, scheduler: Scheduler, executor: Executor, watch: SloWatch | None = None) -> None:
        self.scheduler, self.executor, self._watch = scheduler, executor, watch
        self._run_decode = run_decode_of(scheduler, executor)
        self.log = IterationLog()
        self._sent: deque[ServingRequest] = deque()

    @property
    def load(self) -> int:
        batch = self.scheduler.batch
        return WAITING_WEIGHT * (len(self._sent) + len(batch.waiting)) + len(batch.admitted)

    def send(self, request: ServingRequest) -> None:
        self._sent.append(request)

    def plan(self, noticed_s: float, now_s: float, *, expects_more: bool) -> IterationPlan | None:
        """Of an iteration that starts now, with the requests that had arrived when it was planned."""
        batch = self.scheduler.batch
        while self._sent and self._sent[0].arrival_s <= noticed_s:
            request = self._sent.popleft()
            batch.add(request, now_s)
            self.executor.begin(request.id, request.prompt_tokens, request.output_tokens)
        batch.expects_more = expects_more or bool(self._sent)
        batch.make_room()
        return self.scheduler.plan()

    def run_decode(self, plan: IterationPlan, start_s: float, until_s: float) -> tuple[float, float] | None:
        """Iterations that only decode, until something that was or will be sent may be noticed; when the last of them
        started and ended. None: the plan is to be run alone."""
        batch = self.scheduler.batch
        until_s = start_s if self._sent else until_s
        if not self._run_decode or plan.passes is not batch.no_prefill:
            return None
        stretch = decode_stretch(self._run_decode, batch, plan, start_s, until_s)
        if stretch is None:
            return None
        self.log.add_decode(
            stretch,
            start_s,
            num_decode=len(plan.decode),
            num_running=len(batch.admitted),
            num_waiting=len(batch.waiting),
        )
        last_start_s = stretch.last_start_s(start_s)
        self._complete(plan, last_start_s, stretch.end_s, stretch.number)
        return last_start_s, stretch.end_s

    def ran(self, plan: IterationPlan, outcome: IterationOutcome, start_s: float, end_s: float, waiting: int) -> None:
        batch = self.scheduler.batch
        self.log.append(start_s, end_s, plan, outcome, num_running=len(batch.admitted), num_waiting=waiting)
        self._complete(plan, start_s, end_s)

    def _complete(self, plan: IterationPlan, start_s: float, end_s: float, num_iterations: int = 1) -> None:
        """start_s and end_s: of the last of the iterations."""
        batch = self.scheduler.batch
        if self._watch:
            self._watch.ran(batch, plan, start_s, end_s)
        batch.complete(plan, num_iterations)
        for member in batch.take_ended():
            self.executor.end(member.id)


class _Pace:
    """Replicas that iterate together, by `run`, or one by itself. `free_s` is when their next iteration starts;
    infinite: they have nothing."""

    def __init__(
        self, replicas: Sequence[Replica], run: RunTogether | None, *, is_asynchronous: bool, is_stamped: bool
    ) -> None:
        self.replicas = replicas
        self._run = run
        self._is_asynchronous = is_asynchronous
        self._is_stamped = is_stamped
        self._last_end_s = 0.0
        self._planned_s: float | None = None
        self.free_s = math.inf

    def wake(self, at_s: float) -> None:
        if self.free_s == math.inf:
            self.free_s = max(at_s, self._last_end_s)

    def step(self, until_s: float, *, expects_more: bool) -> None:
        """An iteration, or several that start before until_s and only decode."""
        now_s = self.free_s
        noticed_s = now_s if self._planned_s is None else self._planned_s
        plans = [one.plan(noticed_s, now_s, expects_more=expects_more) for one in self.replicas]
        if not any(plans):
            if self._planned_s is None:
                self.free_s = math.inf
            self._planned_s = None  # what came since is noticed at once
            return
        if self._run is None:
            (one,), (plan,) = self.replicas, plans
            assert plan is not None
            last = one.run_decode(plan, now_s, until_s)
            if last is not None:
                self._ended(*last)
                return
        waiting = [len(one.scheduler.batch.waiting) for one in self.replicas]
        outcomes = self._run(plans) if self._run else [self.replicas[0].executor.run(plan) for plan in plans if plan]
        end_s = now_s + next(one.duration_s or 0.0 for one in outcomes if one is not None)
        for replica, plan, outcome, queued in zip(self.replicas, plans, outcomes, waiting, strict=True):
            if plan is not None and outcome is not None:
                replica.ran(plan, outcome, now_s, end_s, queued)
        self._ended(now_s, end_s)

    def _ended(self, start_s: float, end_s: float) -> None:
        self._planned_s = planned_at(start_s, end_s, self._is_stamped) if self._is_asynchronous else None
        self.free_s = self._last_end_s = end_s


def serve_replicas(
    requests: Sequence[ServingRequest],
    replicas: Sequence[Replica],
    *,
    together: RunTogether | None = None,
    is_asynchronous: bool = False,
    is_stamped: bool = False,
    watch: SloWatch | None = None,
) -> ServingResult:
    """Serve the requests to their end, or until `watch`, which the replicas have, says that the SLO is lost.

    together: runs an iteration of all replicas in lock step (None: each has its own pace). Times are the executors'
    modelled seconds. Raises as loop.serve.
    """
    check_load(requests)
    for one in replicas:
        check_scheduler(one.scheduler, one.executor, requests)
    groups = [[one] for one in replicas] if together is None else [replicas]
    paces = [_Pace(own, together, is_asynchronous=is_asynchronous, is_stamped=is_stamped) for own in groups]
    for request in requests:
        _advance(paces, request.arrival_s, watch, expects_more=True)
        if watch and watch.is_lost:
            break
        chosen = min(replicas, key=lambda one: one.load)
        chosen.send(request)
        next(pace for pace in paces if chosen in pace.replicas).wake(request.arrival_s)
    _advance(paces, math.inf, watch, expects_more=False)
    for one in replicas:
        if watch and watch.is_lost:
            end_unfinished(one.scheduler.batch, one.executor)
        else:
            check_all_served(one.scheduler)
    first = replicas[0].scheduler
    log = merged([one.log for one in replicas])
    records = [record for one in replicas for record in records_of(one.scheduler.batch.members.values(), one.log)]
    order = {request.id: place for place, request in enumerate(requests)}
    return ServingResult(
        records=tuple(sorted(records, key=lambda record: order[record.id])),
        log=log,
        clock="virtual",
        policy=first.name,
        settings=first.settings,
        started_s=0.0,
        ended_s=log.end_s[-1],
        num_layers=first.batch.num_layers,
        num_found_tokens=sum(one.scheduler.batch.num_found_tokens for one in replicas),
    )


def _advance(paces: Sequence[_Pace], until_s: float, watch: SloWatch | None, *, expects_more: bool) -> None:
    """Start all iterations that start before then, in order of time, unless the SLO is lost."""
    while not (watch and watch.is_lost) and (earliest := min(paces, key=lambda pace: pace.free_s)).free_s < until_s:
        earliest.step(until_s, expects_more=expects_more)
