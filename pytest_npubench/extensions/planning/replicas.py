"""The serving loop on a virtual clock, for one engine or for data-parallel replicas: copies that share a load.

A request goes, when it arrives, to the replica with the lowest 4 x waiting + running, the first of several (the
balancer of vLLM's data-parallel engines). Replicas iterate each at its own pace; those that share the experts of one
model do so in lock step: their iterations start together and end when the slowest has ended. Iterations that only
decode are taken at once where the policy allows it (virtual/stretch.py); one replica's times are those of
serving/loop.py. A replica of several stages is planning/pipeline.py's.

Worked example: two replicas, requests at 0.0, 0.1 and 0.2 s: the first goes to replica 0, the second to replica 1, and
the third to replica 0 again unless the first is still waiting there.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from pytest_npubench.extensions.planning.slo_watch import SloWatch
from pytest_npubench.extensions.planning.virtual.executor import VirtualExecutor
from pytest_npubench.extensions.planning.virtual.shared_blocks import SharedBlocks
from pytest_npubench.extensions.planning.virtual.stretch import num_steady, pass_over
from pytest_npubench.extensions.planning.virtual.stretch_log import StretchLog
from pytest_npubench.serving.iteration import IterationOutcome, IterationPlan
from pytest_npubench.serving.log import merged
from pytest_npubench.serving.loop import check_all_served, check_scheduler, end_unfinished
from pytest_npubench.serving.request import ServingRequest, check_load
from pytest_npubench.serving.result import ServingResult, records_of
from pytest_npubench.serving.schedulers.protocol import Scheduler

WAITING_WEIGHT = 4
RunTogether = Callable[[Sequence[IterationPlan | None]], Sequence[IterationOutcome | None]]
"""One iteration of every replica that has a plan; all their outcomes have one duration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedResult(ServingResult):
    """num_cached_tokens: of the prompts, in the KV cache when their requests were first admitted, where prompts share
    their beginnings."""

    num_cached_tokens: int = 0


class Replica:
    """One copy: its policy, its device, what was sent to it and what it has run; the watch is that of all copies."""

    def __init__(self, scheduler: Scheduler, executor: VirtualExecutor, watch: SloWatch | None = None) -> None:
        self.scheduler, self.executor, self.watch = scheduler, executor, watch
        self.batch = scheduler.batch
        self.is_steady = getattr(scheduler, "is_steady", False)
        self.log = StretchLog()
        self.sent: deque[ServingRequest] = deque()

    @property
    def load(self) -> int:
        batch = self.batch
        return WAITING_WEIGHT * (len(self.sent) + len(batch.waiting)) + len(batch.admitted)

    @property
    def num_cached_tokens(self) -> int:
        blocks = self.batch.blocks
        return blocks.num_cached_tokens if isinstance(blocks, SharedBlocks) else 0

    def send(self, request: ServingRequest) -> None:
        self.sent.append(request)

    def plan(self, noticed_s: float, now_s: float, expects_more: bool) -> IterationPlan | None:
        """The plan of an iteration that starts now, with the requests that had arrived when it was planned."""
        batch, sent = self.batch, self.sent
        while sent and sent[0].arrival_s <= noticed_s:
            request = sent.popleft()
            batch.add(request, now_s)
            self.executor.begin(request.id, request.prompt_tokens, request.output_tokens)
        batch.expects_more = expects_more or bool(sent)
        batch.make_room()
        return self.scheduler.plan()

    def ran(self, plan: IterationPlan, outcome: IterationOutcome, start_s: float, end_s: float) -> None:
        batch = self.batch
        num_running, num_waiting = len(batch.admitted) - len(batch.lingering), len(batch.waiting)
        self.log.append(start_s, end_s, plan, outcome, num_running=num_running, num_waiting=num_waiting)
        if self.watch:
            self.watch.ran(batch, plan, start_s, end_s)
        batch.complete(plan)
        self.end()

    def end(self) -> None:
        for member in self.batch.take_ended():
            self.executor.end(member.id)

    def rest(self) -> None:
        """Nothing was planned: who ended frees what it holds, and who was preempted holds nothing on the device."""
        self.batch.end_lingering()
        for request in self.batch.take_dropped():
            self.executor.drop(request)


class Pace(Protocol):
    """Replicas whose iterations depend on one another. `free_s`: when one of them may plan next; infinite: they have
    nothing."""

    @property
    def replicas(self) -> Sequence[Replica]: ...

    @property
    def free_s(self) -> float: ...

    def wake(self, at_s: float) -> None:
        """Something was sent to one of them."""
        ...

    def step(self, until_s: float, expects_more: bool) -> None:
        """Plans an iteration, or several that start before until_s and only decode."""
        ...


class _Pace:
    """One replica by itself. `free_s` is when its next iteration starts; infinite: it has nothing."""

    def __init__(self, replicas: Sequence[Replica], *, is_asynchronous: bool, is_stamped: bool) -> None:
        self.replicas = replicas
        self._is_asynchronous = is_asynchronous
        self._is_stamped = is_stamped
        self._last_end_s = 0.0
        self._planned_s: float | None = None
        self.free_s = math.inf

    def wake(self, at_s: float) -> None:
        if self.free_s == math.inf:
            self.free_s = max(at_s, self._last_end_s)

    def step(self, until_s: float, expects_more: bool) -> None:
        """An iteration, or several that only decode, until something that was or will be sent may be noticed."""
        start_s, planned_s, replica = self.free_s, self._planned_s, self.replicas[0]
        plan = replica.plan(start_s if planned_s is None else planned_s, start_s, expects_more)
        if plan is None:
            self._rest()
            return
        batch, stretch = replica.batch, None
        if replica.is_steady and plan.passes is batch.no_prefill:
            if replica.sent:
                until_s = start_s
            may_admit = batch.waiting and (batch.lingering or batch.freed_early_at == batch.iteration)
            most = num_steady(batch) if until_s > start_s and not may_admit else 1
            stretch = replica.executor.run_decode(plan, start_s, until_s, most)
        num_running, num_waiting = len(batch.admitted) - len(batch.lingering), len(batch.waiting)
        if stretch is None:
            outcome = replica.executor.run(plan)
            end_s = start_s + (outcome.duration_s or 0.0)
            replica.log.append(start_s, end_s, plan, outcome, num_running=num_running, num_waiting=num_waiting)
        else:
            end_s = stretch.end_s
            replica.log.add_decode(stretch, start_s, len(plan.decode), num_running, num_waiting)
            if stretch.number > 1:
                pass_over(batch, stretch.number - 1)
                if self._is_asynchronous or replica.watch:
                    start_s = stretch.last_start_s(start_s)
        if replica.watch:
            replica.watch.ran(batch, plan, start_s, end_s)
        batch.complete(plan)
        if batch.ended:
            replica.end()
        self.free_s = end_s
        if self._is_asynchronous:
            self._planned_s = self._noticed_s(start_s, end_s)

    def _noticed_s(self, start_s: float, end_s: float) -> float:
        return (start_s + end_s) / 2 if self._is_stamped else start_s

    def _rest(self) -> None:
        """There is nothing to run; what came since the last plan was made is noticed at once, and who ended."""
        for replica in self.replicas:
            replica.rest()
        if self._planned_s is None:
            self._last_end_s, self.free_s = self.free_s, math.inf
        self._planned_s = None


class _LockStep(_Pace):
    """Replicas that iterate together, by `run`."""

    def __init__(self, replicas: Sequence[Replica], run: RunTogether, **how: bool) -> None:
        super().__init__(replicas, **how)
        self._run = run

    def step(self, until_s: float, expects_more: bool) -> None:
        del until_s
        now_s, planned_s = self.free_s, self._planned_s
        noticed_s = now_s if planned_s is None else planned_s
        plans = [replica.plan(noticed_s, now_s, expects_more) for replica in self.replicas]
        if not any(plans):
            self._rest()
            return
        outcomes = self._run(plans)
        end_s = now_s + next(outcome.duration_s or 0.0 for outcome in outcomes if outcome is not None)
        for replica, plan, outcome in zip(self.replicas, plans, outcomes, strict=True):
            if plan is not None and outcome is not None:
                replica.ran(plan, outcome, now_s, end_s)
            else:
                replica.rest()
        self.free_s = end_s
        if self._is_asynchronous:
            self._planned_s = self._noticed_s(now_s, end_s)


def serve_replicas(
    requests: Sequence[ServingRequest],
    replicas: Sequence[Replica],
    *,
    together: RunTogether | None = None,
    is_asynchronous: bool = False,
    is_stamped: bool = False,
    watch: SloWatch | None = None,
) -> SimulatedResult:
    """Serve the requests to their end, or until `watch`, which the replicas have, says that the SLO is lost.

    together: runs an iteration of all replicas in lock step (None: each has its own pace). Times are the executors'
    modelled seconds. Raises as loop.serve.

    Asynchronous: an iteration is planned when the one before it starts, as vLLM does by default, so that a request that
    arrives while an iteration runs has its first one after the next, and one that ends there keeps its slot and its
    blocks in the next. Stamped: such an engine noted the arrivals itself,
    between two of its iterations. In iterations that are simulated such a time lies anywhere, so it is taken as at the
    nearer end.
    """
    for replica in replicas:
        replica.scheduler.batch.lingers = is_asynchronous
    how = {"is_asynchronous": is_asynchronous, "is_stamped": is_stamped}
    paces = [_LockStep(replicas, together, **how)] if together else [_Pace([replica], **how) for replica in replicas]
    return serve_at_their_pace(requests, paces, watch)


def serve_at_their_pace(
    requests: Sequence[ServingRequest], paces: Sequence[Pace], watch: SloWatch | None = None
) -> SimulatedResult:
    """As serve_replicas, which makes the paces of replicas of one stage. Of equally loaded replicas a request goes to
    the first one of its pace, of the first of these paces."""
    replicas = [replica for alike in zip(*(pace.replicas for pace in paces), strict=True) for replica in alike]
    pace_of = {id(replica): pace for pace in paces for replica in pace.replicas}
    check_load(requests)
    for replica in replicas:
        check_scheduler(replica.scheduler, replica.executor, requests)
    for request in requests:
        _advance(paces, request.arrival_s, watch, True)
        if watch and watch.is_lost:
            break
        chosen = min(replicas, key=lambda replica: replica.load) if len(replicas) > 1 else replicas[0]
        chosen.send(request)
        pace_of[id(chosen)].wake(request.arrival_s)
    _advance(paces, math.inf, watch, False)
    for replica in replicas:
        if watch and watch.is_lost:
            end_unfinished(replica.scheduler.batch, replica.executor)
        else:
            check_all_served(replica.scheduler)
    first = replicas[0].scheduler
    log = replicas[0].log if len(replicas) == 1 else merged([replica.log for replica in replicas])
    records = [
        record for replica in replicas for record in records_of(replica.scheduler.batch.members.values(), replica.log)
    ]
    if len(replicas) > 1:
        order = {request.id: index for index, request in enumerate(requests)}
        records.sort(key=lambda record: order[record.id])
    return SimulatedResult(
        records=tuple(records),
        log=log,
        clock="virtual",
        policy=first.name,
        settings=first.settings,
        started_s=0.0,
        ended_s=log.end_s[-1],
        num_layers=first.batch.num_layers,
        num_cached_tokens=sum(replica.num_cached_tokens for replica in replicas),
    )


def _advance(paces: Sequence[Pace], until_s: float, watch: SloWatch | None, expects_more: bool) -> None:
    """Start all iterations that start before then, in order of time, unless the SLO is lost."""
    pace, are_several = paces[0], len(paces) > 1
    while not (watch and watch.is_lost):
        if are_several:
            pace = min(paces, key=lambda candidate: candidate.free_s)
        if pace.free_s >= until_s:
            return
        pace.step(until_s, expects_more)
