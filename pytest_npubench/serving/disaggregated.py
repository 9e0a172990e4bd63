"""The serving loop for prefill and decode on two devices: the same load, records and log as serving/loop.py.

A request's first token comes from the prefill device; its second one from the decode device, in the first iteration
that starts after its keys and values have arrived: the transfer is inside its first gap. Worked example: prefill ends
at 1.000 s, the transfer takes 20 ms, the decode device's running iteration ends at 1.030 s and its next one takes
15 ms: the second token comes at 1.045 s.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pytest_npubench.errors import ConfigError, MeasurementError
from pytest_npubench.serving.batch import Batch
from pytest_npubench.serving.iteration import IterationPlan
from pytest_npubench.serving.load import Load
from pytest_npubench.serving.log import IterationLog, merged
from pytest_npubench.serving.member import BatchMember
from pytest_npubench.serving.metrics import RequestRecord
from pytest_npubench.serving.result import ServingResult, record_of, token_times
from pytest_npubench.serving.schedulers.disaggregated import DisaggregatedScheduler
from pytest_npubench.serving.two_devices import DeviceRun, HandedOver, ServingSide, TwoDevices


@dataclass(frozen=True, slots=True, kw_only=True)
class DisaggregatedResult(ServingResult):
    """`log` holds the iterations of both devices in the order in which they ended; here they are apart as well.

    handover_s and handover_bytes have an entry for each request that moved, in order.
    """

    prefill_log: IterationLog
    decode_log: IterationLog
    handover_s: tuple[float, ...]
    handover_bytes: tuple[int, ...]


def serve_disaggregated(
    load: Load,
    scheduler: DisaggregatedScheduler,
    devices: TwoDevices,
    *,
    until_s: float | None = None,
    on_iteration: Callable[[int], None] | None = None,
) -> DisaggregatedResult:
    """Serve the load to its end, or start nothing at or after `until_s`.

    Raises as `serve` does.
    """
    return DisaggregatedRun(load, scheduler, devices).serve(until_s, on_iteration)


class DisaggregatedRun:
    """What is in progress on the two devices, and what has ended. Raises as `serve_disaggregated`."""

    def __init__(self, load: Load, scheduler: DisaggregatedScheduler, devices: TwoDevices) -> None:
        _check(load, scheduler, devices)
        self._load = load
        self._scheduler = scheduler
        self._devices = devices
        self.batches: dict[ServingSide, Batch] = {
            ServingSide.PREFILL: scheduler.batch,
            ServingSide.DECODE: scheduler.decode_batch,
        }
        self._logs = {side: IterationLog() for side in ServingSide}
        self._running: dict[ServingSide, tuple[int, int]] = {}  # admitted and waiting when its iteration started
        self._moving: BatchMember | None = None
        self._handovers: list[HandedOver] = []

    def serve(
        self, until_s: float | None = None, on_iteration: Callable[[int], None] | None = None
    ) -> DisaggregatedResult:
        self._devices.start()
        started_s = self._devices.now_s()
        while True:
            starts = self.starts_more(until_s)
            if starts:
                self.take_arrivals()
                self.start_idle()
            next_s = self.next_start_s(until_s) if starts else None
            if not self.busy and next_s is None:
                break
            for event in self._devices.wait(next_s):
                self.done(event)
                if on_iteration is not None and isinstance(event, DeviceRun):
                    on_iteration(self.num_iterations)
        if self.starts_more(until_s):
            self.check_all_served()
        return self.result(started_s)

    def starts_more(self, until_s: float | None) -> bool:
        """Whether iterations and handovers may still start."""
        return until_s is None or self._devices.now_s() < until_s

    @property
    def busy(self) -> bool:
        return bool(self._running) or self._moving is not None

    @property
    def num_iterations(self) -> int:
        return sum(len(log) for log in self._logs.values())

    def next_start_s(self, until_s: float | None) -> float | None:
        """When something may start without anything ending first."""
        next_arrival_s = self._load.next_arrival_s
        if next_arrival_s is None or until_s is None:
            return next_arrival_s
        return min(next_arrival_s, until_s)

    def take_arrivals(self) -> None:
        now_s = self._devices.now_s()
        for request in self._load.take(now_s):
            self._scheduler.batch.add(request, now_s)
            self._devices.begin(request)
        self._scheduler.batch.expects_more = self._load.next_arrival_s is not None

    def start_idle(self) -> None:
        """Whatever is idle and has something to do: the link, the prefill device, the decode device.

        The link first: a process that has begun an iteration sends nothing before its end.
        """
        if self._moving is None and (member := self._scheduler.next_handover()) is not None:
            self._moving = member
            self._devices.hand_over(member.request)
        self._start(ServingSide.PREFILL, self._scheduler.plan)
        self._start(ServingSide.DECODE, self._scheduler.plan_decode)

    def _start(self, side: ServingSide, make_plan: Callable[[], IterationPlan | None]) -> None:
        if side in self._running:
            return
        batch = self.batches[side]
        batch.make_room()
        plan = make_plan()
        if plan is not None:
            self._running[side] = len(batch.admitted), len(batch.waiting)
            self._devices.run(side, plan)

    def done(self, event: DeviceRun | HandedOver) -> None:
        if isinstance(event, DeviceRun):
            self.ran(event)
        else:
            assert self._moving is not None
            self._scheduler.handed_over(self._moving)
            self._moving = None
            self._handovers.append(event)

    def ran(self, event: DeviceRun) -> None:
        """An iteration has ended."""
        batch, log = self.batches[event.side], self._logs[event.side]
        num_running, num_waiting = self._running.pop(event.side)
        log.append(
            event.start_s, event.end_s, event.plan, event.outcome, num_running=num_running, num_waiting=num_waiting
        )
        for request, token in event.outcome.tokens.items():
            batch.members[request].tokens.append(token)
        batch.complete(event.plan)
        for member in batch.take_ended():
            self._devices.end(event.side, member.id)
            self._load.ended(member.id, event.end_s)

    def check_all_served(self) -> None:
        left = sum(len(batch.waiting) + len(batch.admitted) for batch in self.batches.values())
        if left:
            raise MeasurementError(f"nothing more is planned, but {left} requests have not ended")

    def result(self, started_s: float) -> DisaggregatedResult:
        self._end_unfinished()
        logs = self._logs
        return DisaggregatedResult(
            records=tuple(self._record(member) for member in self._scheduler.batch.members.values()),
            log=merged(tuple(logs.values())),
            clock=self._devices.clock,
            policy=self._scheduler.name,
            settings=self._scheduler.settings,
            started_s=started_s,
            ended_s=self._devices.now_s(),
            num_layers=self._scheduler.batch.num_layers,
            prefill_log=logs[ServingSide.PREFILL],
            decode_log=logs[ServingSide.DECODE],
            handover_s=tuple(event.end_s - event.start_s for event in self._handovers),
            handover_bytes=tuple(event.num_bytes for event in self._handovers),
        )

    def _record(self, member: BatchMember) -> RequestRecord:
        parts = [(member.segments, self._logs[ServingSide.PREFILL].end_s)]
        decoding = self._scheduler.decode_batch.members.get(member.id)
        if decoding is not None:
            parts.append((decoding.segments, self._logs[ServingSide.DECODE].end_s))
            member.tokens.extend(decoding.tokens)
        return record_of(member, self._logs[ServingSide.PREFILL].start_s, token_times(*parts))

    def _end_unfinished(self) -> None:
        batch, decode_batch = self._scheduler.batch, self._scheduler.decode_batch
        for member in (*decode_batch.running.values(), *decode_batch.in_flight.values()):
            member.close_segment(decode_batch.iteration)
            self._devices.end(ServingSide.DECODE, member.id)
        for member in (*batch.leaving, *batch.in_flight.values(), *batch.waiting):
            self._devices.end(ServingSide.PREFILL, member.id)


def _check(load: Load, scheduler: DisaggregatedScheduler, devices: TwoDevices) -> None:
    if scheduler.batch.members:
        raise ConfigError("this disaggregated scheduler has served a load already; want a new one for each run")
    batches = (scheduler.batch, scheduler.decode_batch)
    for side, batch, (num_layers, capacity_tokens, block_size_tokens) in zip(
        ServingSide, batches, devices.shapes(), strict=True
    ):
        planned = batch.num_layers, batch.blocks.block_size_tokens
        if planned != (num_layers, block_size_tokens) or batch.blocks.capacity_tokens > capacity_tokens:
            raise ConfigError(
                f"the scheduler plans {planned[0]} layers and {batch.blocks.capacity_tokens} KV tokens in blocks of "
                f"{planned[1]} on the {side.value} device, which has {num_layers}, {capacity_tokens} and "
                f"{block_size_tokens}; want the same layers and blocks, and at most its tokens"
            )
    for request in load.requests():
        for batch in batches:
            batch.check(request)
