"""Prefill on several workers, decode on several others, on the virtual clock (DistServe; serving/disaggregated.py has
one of each).

A prompt goes, when it arrives, to the prefill worker with the lowest 4 x waiting + running, the first of several
(replicas.py). Once it is done, its keys and values go to the decode worker with the fewest requests among those that
have blocks for all of it. Each prefill worker sends the keys and values of one request at a time.

Worked example: two of each, and requests 0, 1 and 2 at 0 s: the prefill workers take 0 and 2, and 1; 0 decodes on the
first decode worker, 1 on the second one.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pytest_npubench.errors import MeasurementError
from pytest_npubench.extensions.planning.replicas import WAITING_WEIGHT
from pytest_npubench.extensions.planning.slo_watch import SloWatch
from pytest_npubench.extensions.planning.virtual.executor import VirtualExecutor
from pytest_npubench.serving.batch import Batch
from pytest_npubench.serving.disaggregated import DisaggregatedResult
from pytest_npubench.serving.iteration import IterationPlan
from pytest_npubench.serving.log import IterationLog, merged
from pytest_npubench.serving.loop import end_unfinished
from pytest_npubench.serving.member import BatchMember
from pytest_npubench.serving.metrics import RequestRecord
from pytest_npubench.serving.request import ServingRequest, check_load
from pytest_npubench.serving.result import record_of, token_times
from pytest_npubench.serving.schedulers.disaggregated import DisaggregatedScheduler


@dataclass(slots=True, eq=False)
class PoolWorker:
    """One side of a scheduler, which prefills or decodes, and the devices that do so."""

    scheduler: DisaggregatedScheduler
    executor: VirtualExecutor
    decodes: bool
    log: IterationLog = field(default_factory=IterationLog)
    is_running: bool = False
    is_sending: bool = False

    @property
    def batch(self) -> Batch:
        return self.scheduler.decode_batch if self.decodes else self.scheduler.batch

    @property
    def load(self) -> int:
        return WAITING_WEIGHT * len(self.batch.waiting) + len(self.batch.admitted)

    def plan(self) -> IterationPlan | None:
        self.batch.make_room()
        return self.scheduler.plan_decode() if self.decodes else self.scheduler.plan()


class Pools:
    """Serves one load. transfer_s: seconds of so many bytes from a prefill to a decode worker."""

    def __init__(
        self,
        prefill: Sequence[PoolWorker],
        decode: Sequence[PoolWorker],
        *,
        transfer_s: Callable[[int], float],
        watch: SloWatch | None = None,
    ) -> None:
        self._prefill, self._decode, self._transfer_s, self._watch = prefill, decode, transfer_s, watch
        self._now_s = 0.0
        self._ends: list[tuple[float, int, Callable[[], None]]] = []  # a heap; equal ends in the order of their starts
        self._num_started = 0
        self._moved: list[tuple[float, int]] = []

    def serve(self, requests: Sequence[ServingRequest]) -> DisaggregatedResult:
        """Raises WorkloadError for a request that a worker cannot hold, MeasurementError where some are left over."""
        check_load(requests)
        for request in requests:
            for worker in (self._prefill[0], self._decode[0]):
                worker.batch.check(request)
        coming = deque(requests)
        while True:
            is_lost = self._watch is not None and self._watch.is_lost
            if not is_lost:
                self._take_arrivals(coming)
                self._start_idle()
            times_s = [self._ends[0][0]] if self._ends else []
            if coming and not is_lost:
                times_s.append(coming[0].arrival_s)
            if not times_s:
                break
            self._now_s = max(self._now_s, min(times_s))
            while self._ends and self._ends[0][0] <= self._now_s:
                heapq.heappop(self._ends)[2]()
        return self._result(requests, is_lost=is_lost)

    def _take_arrivals(self, coming: deque[ServingRequest]) -> None:
        while coming and coming[0].arrival_s <= self._now_s:
            request = coming.popleft()
            worker = min(self._prefill, key=lambda each: each.load)
            worker.batch.add(request, self._now_s)
            worker.executor.begin(request.id, request.prompt_tokens, request.output_tokens)
        for worker in self._prefill:
            worker.batch.expects_more = bool(coming)

    def _start_idle(self) -> None:
        for worker in self._prefill:
            if not worker.is_sending and worker.scheduler.batch.leaving:
                self._send(worker, worker.scheduler.batch.leaving[0])
        for worker in (*self._prefill, *self._decode):
            if not worker.is_running and (plan := worker.plan()) is not None:
                self._run(worker, plan)

    def _ends_in(self, duration_s: float | None, done: Callable[[], None]) -> float:
        assert duration_s is not None
        self._num_started += 1
        heapq.heappush(self._ends, (self._now_s + duration_s, self._num_started, done))
        return self._now_s + duration_s

    def _run(self, worker: PoolWorker, plan: IterationPlan) -> None:
        batch, start_s = worker.batch, self._now_s
        num_running, num_waiting = len(batch.admitted), len(batch.waiting)
        outcome = worker.executor.run(plan)
        worker.is_running = True

        def done() -> None:
            worker.is_running = False
            worker.log.append(start_s, end_s, plan, outcome, num_running=num_running, num_waiting=num_waiting)
            if self._watch and worker.decodes:
                self._watch.decoded(plan, start_s, end_s)
            elif self._watch:
                self._watch.ran(batch, plan, start_s, end_s)
            batch.complete(plan)
            for member in batch.take_ended():
                worker.executor.end(member.id)

        end_s = self._ends_in(outcome.duration_s, done)

    def _send(self, sender: PoolWorker, member: BatchMember) -> None:
        by_load = sorted(self._decode, key=lambda worker: worker.load)
        receiver = next((each for each in by_load if each.scheduler.decode_batch.reserve(member)), None)
        if receiver is None:
            return
        sender.is_sending = True
        num_bytes, kv = sender.executor.export_kv(member.id)
        request, start_s = member.request, self._now_s

        def done() -> None:
            sender.is_sending = False
            receiver.executor.begin(request.id, request.prompt_tokens, request.output_tokens)
            receiver.executor.import_kv(request.id, kv)
            sender.executor.end(request.id)
            sender.scheduler.batch.let_go(member)
            receiver.scheduler.joins(member)
            self._moved.append((end_s - start_s, num_bytes))

        end_s = self._ends_in(self._transfer_s(num_bytes), done)

    def _result(self, requests: Sequence[ServingRequest], *, is_lost: bool) -> DisaggregatedResult:
        workers = (*self._prefill, *self._decode)
        left = sum(len(worker.batch.waiting) + len(worker.batch.admitted) for worker in workers)
        if left and not is_lost:
            raise MeasurementError(f"nothing more is planned, but {left} requests have not ended")
        for worker in self._decode if left else ():
            end_unfinished(worker.batch, worker.executor)
        records = {record.id: record for worker in self._prefill for record in self._records(worker)}
        logs = [tuple(worker.log for worker in side) for side in (self._prefill, self._decode)]
        prefill_log, decode_log = (side[0] if len(side) == 1 else merged(side) for side in logs)
        scheduler = self._prefill[0].scheduler
        numbers = {"prefill_replicas": len(self._prefill), "decode_replicas": len(self._decode)}
        return DisaggregatedResult(
            records=tuple(records[request.id] for request in requests if request.id in records),
            log=merged((*logs[0], *logs[1])),
            clock="virtual",
            policy=scheduler.name,
            settings=scheduler.settings | {name: number for name, number in numbers.items() if number > 1},
            started_s=0.0,
            ended_s=self._now_s,
            num_layers=scheduler.batch.num_layers,
            prefill_log=prefill_log,
            decode_log=decode_log,
            handover_s=tuple(seconds for seconds, _ in self._moved),
            handover_bytes=tuple(num_bytes for _, num_bytes in self._moved),
        )

    def _records(self, worker: PoolWorker) -> list[RequestRecord]:
        records = []
        for member in worker.batch.members.values():
            parts = [(member.segments, worker.log.end_s)]
            for other in self._decode:
                if (decoding := other.batch.members.get(member.id)) is not None:
                    parts.append((decoding.segments, other.log.end_s))
            records.append(record_of(member, worker.log.start_s, token_times(*parts)))
        return records
