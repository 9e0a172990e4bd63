"""What a campaign compiles: prefill and decode of each bucket, and the moves between neighbours, each once.

CompiledBuckets is the bucket suite there: the cases and ids are those of the device, their campaigns and digests are
not, so that nothing compiled is ever held against a measurement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_npubench.campaign.points import VisitedOnce
from pytest_npubench.campaign.visits import Visit
from pytest_npubench.core.measurement import Phase
from pytest_npubench.engines.compiled.facts import BinaryFacts, BinaryRequest
from pytest_npubench.suites.buckets.plan import BucketPlan, BucketService

if TYPE_CHECKING:
    from pytest_npubench.backends.protocol import Runtime
    from pytest_npubench.campaign.protocol import Bench, CaseKind

NUM_ROUNDS = 1  # a compiler says the same each time
QUALCOMM, INTEL = "qualcomm", "openvino"  # the families whose graphs are another plan's


@dataclass(frozen=True, slots=True, kw_only=True)
class BinaryPoint(VisitedOnce):
    """One binary: a step of a bucket, or the move of its cache into `larger`."""

    phase: Phase
    bucket: int
    larger: int | None = None

    @property
    def name(self) -> str:
        if self.larger is not None:
            return f"binary/move/{self.bucket}/{self.larger}"
        return f"binary/{self.phase.value}/{self.bucket}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BinaryVisit(BinaryFacts, Visit):
    """What the compiler said of a point's binary."""

    @classmethod
    def of(cls, facts: BinaryFacts) -> BinaryVisit:
        return cls(**{one.name: getattr(facts, one.name) for one in fields(facts)})


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledPlan(BucketPlan):
    """A bucket plan whose cases rest on binaries. Buckets, models, dtype and limits are the hardware file's."""

    @property
    def settings(self) -> dict[str, object]:
        return {
            **self.engine_settings,
            "buckets": self.buckets,
            "dtype": self.spec.dtype,
            "tensor_parallel": self.spec.tensor_parallel,
        }

    def request(self, point: BinaryPoint) -> BinaryRequest:
        """Raises RegistryError on an unknown model."""
        from pytest_npubench.engines.shapes import dense_shape

        return BinaryRequest(
            shape=dense_shape(self.model),
            dtype=self.spec.dtype,
            batch_size=self.batch_size,
            phase=point.phase,
            bucket=point.bucket,
            larger=point.larger,
        )

    def steps(self, buckets: Sequence[int]) -> tuple[BinaryPoint, ...]:
        """Prefill and decode of these buckets."""
        return tuple(BinaryPoint(phase=phase, bucket=bucket) for bucket in buckets for phase in Phase)

    def binaries(self, buckets: Sequence[int]) -> tuple[BinaryPoint, ...]:
        """All that an engine compiles for these buckets."""
        pairs = zip(self.buckets, self.buckets[1:], strict=False)
        return (
            *self.steps(buckets),
            *(
                BinaryPoint(phase=Phase.DECODE, bucket=small, larger=large)
                for small, large in pairs
                if {small, large} <= set(buckets)
            ),
        )

    def up_to(self, bucket: int) -> tuple[int, ...]:
        """The buckets whose caches are there when this one is loaded: small before large."""
        return tuple(one for one in self.buckets if one <= bucket)


class CompiledBuckets(BucketService):
    fills_memory = False  # what a compiler counts takes the place of what shapes tell

    def plan(self, plan: BucketPlan) -> BucketPlan:
        given = {one.name: getattr(plan, one.name) for one in fields(plan)}
        size = replace(plan.size, min_rounds=NUM_ROUNDS, max_rounds=NUM_ROUNDS)
        return _plan_class(plan.spec.family)(**{**given, "size": size, "active_band": None})

    def kind_for(self, plan: BucketPlan, kind: CaseKind[Any]) -> CaseKind[Any]:
        if plan.spec.family == QUALCOMM:
            from pytest_npubench.suites.buckets.htp.kinds import htp_kind_for

            return htp_kind_for(kind)
        from pytest_npubench.suites.buckets.compiled.kinds import kind_for

        return kind_for(kind)

    def bench(self, runtime: Runtime, plan: BucketPlan, folder: Path) -> Bench[Any]:
        from pytest_npubench.engines.compiled.runtime import CompilerRuntime
        from pytest_npubench.suites.buckets.compiled.bench import CompilerBench

        assert isinstance(runtime, CompilerRuntime)  # the engine's open() made it
        assert isinstance(plan, CompiledPlan)  # plan() made it
        if plan.spec.family == QUALCOMM:
            from pytest_npubench.suites.buckets.htp.bench import HtpBench

            return HtpBench(runtime, plan, folder / "compiled")
        if plan.spec.family == INTEL:
            from pytest_npubench.suites.buckets.compiled.npu import NpuBench

            return NpuBench(runtime, plan, folder / "compiled")
        return CompilerBench(runtime, plan, folder / "compiled")


def _plan_class(family: str) -> type[CompiledPlan]:
    if family == QUALCOMM:
        from pytest_npubench.suites.buckets.htp.plan import HtpPlan

        return HtpPlan
    if family == INTEL:
        from pytest_npubench.suites.buckets.compiled.npu import NpuPlan

        return NpuPlan
    return CompiledPlan
