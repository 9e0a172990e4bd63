"""Measures a search campaign: an engine for each batch size and bucket set, in one process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from pytest_npubench.backends.protocol import Runtime
from pytest_npubench.campaign.visits import Round, Visit
from pytest_npubench.engines.protocol import Engine
from pytest_npubench.suites.buckets.bench import BucketBench
from pytest_npubench.suites.buckets.plan import BucketPlan
from pytest_npubench.suites.buckets.points import BucketPoint, Variant


class SearchBench:
    """campaign.protocol.Bench: each point is measured on the engine that it names."""

    def __init__(
        self, runtime: Runtime, plan: BucketPlan, make_engine: Callable[[Runtime, BucketPlan], Engine]
    ) -> None:
        self._runtime, self._plan, self._make_engine = runtime, plan, make_engine
        self._benches: dict[Variant | None, BucketBench] = {}

    def load(
        self, points: Sequence[BucketPoint], earlier: Sequence[Round], stage: Callable[[str], None]
    ) -> Mapping[str, str]:
        failures: dict[str, str] = {}
        for variant in dict.fromkeys(point.variant for point in points if point.variant):
            self._benches[variant] = BucketBench(self._runtime, self._plan.of(variant), self._make_engine)
            own = [point for point in points if point.variant == variant]
            failures |= self._benches[variant].load(own, (), partial(_tell, stage, variant))
        return failures

    def warm_up(self, point: BucketPoint) -> tuple[float, bool]:
        return self._benches[point.variant].warm_up(point)

    def sample(self, point: BucketPoint, round_index: int) -> Visit:
        return self._benches[point.variant].sample(point, round_index)

    def close(self) -> None:
        for bench in self._benches.values():
            bench.close()


def _tell(stage: Callable[[str], None], variant: Variant, text: str) -> None:
    stage(f"{variant.name}: {text}")
