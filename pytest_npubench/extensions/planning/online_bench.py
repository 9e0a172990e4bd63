"""Measures an online campaign: requests served on slots as they arrive, and the profile points through the same loop.

A profile that is taken another way than the requests are served is a profile of something else: the loop between two
steps is part of both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pytest_npubench.backends.protocol import Runtime
from pytest_npubench.campaign.rounds import failure_reason
from pytest_npubench.campaign.served_block import ServedBlock
from pytest_npubench.campaign.served_load import block
from pytest_npubench.campaign.visits import Round, Visit
from pytest_npubench.core.clock import perf_counter
from pytest_npubench.core.measurement import TOKENS, Request
from pytest_npubench.engines.static_buckets import StaticBuckets
from pytest_npubench.extensions.planning.joining_pairs import JOINS_AT, PairVisit, pause_s
from pytest_npubench.extensions.planning.slots import SlotExecutor, serve_slots
from pytest_npubench.serving.arrivals import load_of
from pytest_npubench.serving.clock import WallClock
from pytest_npubench.serving.request import ServingRequest
from pytest_npubench.serving.result import ServingResult
from pytest_npubench.suites.buckets.bench import BucketBench
from pytest_npubench.suites.buckets.plan import UTILISATION, BucketPlan
from pytest_npubench.suites.buckets.points import BucketPoint

WARM_UP_ROUND = 99  # requests that no round serves
AT_ONCE_PER_S = 1e6


class OnlineBench(BucketBench):
    """campaign.protocol.Bench of one engine with its slots."""

    def __init__(self, runtime: Runtime, plan: BucketPlan, engine: StaticBuckets) -> None:
        super().__init__(runtime, plan, lambda *_: engine)
        self._slots = engine
        self._rates_per_s: dict[str, float] = {}
        self._joins_s: dict[str, float] = {}
        self._num_pairs = 0

    def load(
        self, points: Sequence[BucketPoint], earlier: Sequence[Round], stage: Callable[[str], None]
    ) -> Mapping[str, str]:
        failures = dict(super().load(points, earlier, stage))
        try:
            self._slots.load_slots()
        except Exception as error:  # noqa: BLE001 - a bucket that cannot be had: what is served needs all of them
            failures |= {point.name: failure_reason(point.name, error) for point in points if point.workload}
        return failures

    def warm_up(self, point: BucketPoint) -> tuple[float, bool]:
        """A block with all requests at once tells the rate at which those of the rounds arrive, and the first of a pair
        alone when the second one is to come."""
        if point.workload is None:
            return super().warm_up(point)
        started_s = perf_counter()
        if point.requests:
            for _ in range(2):
                (alone,) = self._serve_at((0.0,), point.requests).records
            self._joins_s[point.name] = JOINS_AT * alone.e2e_latency_s
        else:
            served = self._serve(self._block(point.workload, WARM_UP_ROUND, AT_ONCE_PER_S))
            self._rates_per_s[point.workload] = UTILISATION * len(served.records) / (served.ended_s - served.started_s)
        return perf_counter() - started_s, True

    def sample(self, point: BucketPoint, round_index: int) -> Visit:
        if point.workload is None:
            return super().sample(point, round_index)
        rate_per_s = self._rates_per_s[point.workload]
        if point.requests:
            at_s = pause_s(self._num_pairs, rate_per_s)
            self._num_pairs += 1
            served = self._serve_at((at_s, at_s + self._joins_s[point.name]), point.requests)
            first, second = ((one.arrival_s, *one.token_times_s) for one in served.records)
            return PairVisit(first_s=first, second_s=second)
        served = self._serve(self._block(point.workload, round_index, rate_per_s))
        return ServedBlock.of_result(served, rate_per_s=rate_per_s)

    def _block(self, workload: str, round_index: int, rate_per_s: float) -> Sequence[ServingRequest]:
        return block(
            workload,
            self._plan.num_requests,
            rate_per_s,
            round_index=round_index,
            max_total_tokens=self._plan.buckets[-1],
        )

    def _serve(self, requests: Sequence[ServingRequest]) -> ServingResult:
        return serve_slots(requests, SlotExecutor(self._slots, requests), WallClock())

    def _serve_at(self, times_s: Sequence[float], requests: Sequence[Request]) -> ServingResult:
        """As many of the requests as there are times, each at its own."""
        lengths = [(one.input_tokens, one.output_tokens) for one, _ in zip(requests, times_s, strict=False)]
        return self._serve(load_of(times_s, lengths))

    def _time(self, point: BucketPoint) -> tuple[float, Mapping[str, int]]:
        if not point.requests:
            return super()._time(point)
        served = self._serve_at((0.0,) * len(point.requests), point.requests)
        return served.ended_s - served.started_s, {TOKENS: sum(record.num_tokens for record in served.records)}
