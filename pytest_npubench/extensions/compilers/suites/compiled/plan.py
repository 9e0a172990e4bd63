"""What a campaign compiles: prefill and decode of each bucket, and the moves between neighbours, each once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from pytest_npubench.campaign.visits import Visit
from pytest_npubench.core.measurement import Phase
from pytest_npubench.engines.binary_facts import BinaryFacts, BinaryRequest
from pytest_npubench.extensions.compilers.compiled import INTEL
from pytest_npubench.extensions.compilers.suites.programs import ProgramPlan, ProgramPoint


@dataclass(frozen=True, slots=True, kw_only=True)
class BinaryPoint(ProgramPoint):
    """One binary: a step of a bucket, or the move of its cache into `larger`."""

    larger: int | None = None

    @property
    def name(self) -> str:
        if self.larger is not None:
            return f"binary/move/{self.bucket}/{self.larger}"
        return f"binary/{self.phase.value}/{self.bucket}"

    @property
    def step(self) -> object:
        return self.phase, self.larger is None

    @property
    def length(self) -> int:
        return self.larger or self.bucket


@dataclass(frozen=True, slots=True, kw_only=True)
class BinaryVisit(BinaryFacts, Visit):
    """What the compiler said of a point's binary."""

    @classmethod
    def of(cls, facts: BinaryFacts) -> BinaryVisit:
        return cls(**{field.name: getattr(facts, field.name) for field in fields(facts)})


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledPlan(ProgramPlan):
    suite = "compiled"
    kinds = ("profile", "steps", "prediction")
    engine: str = "compiled"

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

    def binaries(self, buckets: Sequence[int]) -> tuple[BinaryPoint, ...]:
        """All that an engine compiles for these buckets. On Intel's NPUs the host moves caches, so no binary does."""
        steps = tuple(BinaryPoint(phase=phase, bucket=bucket) for bucket in buckets for phase in Phase)
        if self.spec.family == INTEL:
            return steps
        pairs = zip(self.buckets, self.buckets[1:], strict=False)
        return (
            *steps,
            *(
                BinaryPoint(phase=Phase.DECODE, bucket=small, larger=large)
                for small, large in pairs
                if {small, large} <= set(buckets)
            ),
        )
