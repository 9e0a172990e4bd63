"""What a campaign compiles: prefill and decode of each bucket, and the moves between neighbours, each once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from pytest_npubench.campaign.points import VisitedOnce
from pytest_npubench.campaign.visits import Visit
from pytest_npubench.core.measurement import Phase
from pytest_npubench.engines.binary_facts import BinaryFacts, BinaryRequest
from pytest_npubench.suites.buckets.plan import BucketPlan

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
