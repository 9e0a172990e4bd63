"""Measures a campaign of several engines in one process: of batch sizes, bucket sets or numbers of layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pytest_npubench.backends.protocol import Runtime
from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.rounds import failure_reason
from pytest_npubench.campaign.visits import Round, Visit
from pytest_npubench.engines.protocol import Engine
from pytest_npubench.suites.buckets.bench import BucketBench, planned_visits
from pytest_npubench.suites.buckets.plan import BucketPlan
from pytest_npubench.suites.buckets.points import BucketPoint, Variant


class VariantBench:
    """campaign.protocol.Bench: each point is measured on the engine that it names, else on the plan's own."""

    def __init__(
        self,
        runtime: Runtime,
        plan: BucketPlan,
        make_engine: Callable[[Runtime, BucketPlan], Engine],
        folder: Path | None = None,
    ) -> None:
        self._folder = folder
        self._runtime, self._plan, self._make_engine = runtime, plan, make_engine
        self._benches: dict[Variant | None, BucketBench] = {}

    def load(
        self, points: Sequence[BucketPoint], earlier: Sequence[Round], stage: Callable[[str], None]
    ) -> Mapping[str, str]:
        failures: dict[str, str] = {}
        variants = dict.fromkeys(point.variant for point in points)
        for variant in sorted(variants, key=lambda each: each is not None):  # the plan's own before those beside it
            members = [point for point in points if point.variant == variant]
            failures |= self._load(variant, members, earlier, stage)
        return failures

    def _load(
        self,
        variant: Variant | None,
        points: Sequence[BucketPoint],
        earlier: Sequence[Round],
        stage: Callable[[str], None],
    ) -> Mapping[str, str]:
        """Its binaries' records have names of their own, as its points have."""
        if variant is None:
            self._benches[None] = BucketBench(self._runtime, self._plan, self._make_engine, self._folder)
            return self._benches[None].load(points, earlier, stage)
        before = len(self._runtime.compiles)
        try:
            self._benches[variant] = BucketBench(self._runtime, self._plan.of(variant), self._make_engine)
            return self._benches[variant].load(points, (), lambda text: stage(f"{variant.name}: {text}"))
        except Exception as error:
            if not all(point.beside for point in points):
                raise
            return dict.fromkeys((point.name for point in points), failure_reason(variant.name, error))
        finally:
            made = self._runtime.compiles[before:]
            self._runtime.compiles[before:] = [replace(one, name=variant.prefix + one.name) for one in made]

    def warm_up(self, point: BucketPoint) -> tuple[float, bool]:
        return self._benches[point.variant].warm_up(point)

    def visits(
        self, points: Sequence[BucketPoint], measured: Measured, durations_s: Mapping[str, float]
    ) -> Mapping[str, int]:
        return planned_visits(self._plan, points, measured, durations_s)

    def sample(self, point: BucketPoint, round_index: int) -> Visit:
        return self._benches[point.variant].sample(point, round_index)

    def close(self) -> None:
        for bench in self._benches.values():
            bench.close()
