"""What the suites of compilers have in common: a plan whose buckets are programs of fixed shapes, each by itself.

Nothing runs from end to end, so there is no prediction to be held to and no limit but those of a case itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, TypeVar

from pytest_npubench.campaign.plan import EnginePlan
from pytest_npubench.campaign.points import Measured, VisitedOnce
from pytest_npubench.campaign.visits import Visit
from pytest_npubench.core.case import Axes, Case
from pytest_npubench.core.hardware import HardwareSpec, RunSize
from pytest_npubench.core.measurement import Phase
from pytest_npubench.errors import MeasurementError
from pytest_npubench.suites.buckets.points import BucketPoint
from pytest_npubench.suites.buckets.sampling import drawn_batches, touched_buckets
from pytest_npubench.verdict import Verdict, VerdictKind
from pytest_npubench.verdict.result import Judgement

NUM_ROUNDS = 1  # a compiler says the same each time, and a job on a phone is a hundred runs
REFUSED = ("does not compile", "not tried: ", "is not compiled: ")
"""What a compiler said of a program; any other reason is one of ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramPoint(VisitedOnce):
    """A program that a compiler makes of one step of a bucket."""

    phase: Phase
    bucket: int

    @property
    def step(self) -> object:
        """Programs of one step grow with `length`: where one does not fit the memory, no longer one does."""
        return self.phase

    @property
    def length(self) -> int:
        return self.bucket


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramPlan(EnginePlan):
    """One device, model and batch size under a run size. Buckets, models and dtype are the hardware file's.

    kinds: the kinds of its suite that have cases of such a plan.
    """

    kinds: ClassVar[tuple[str, ...]]
    size: RunSize

    @property
    def key(self) -> str:
        return f"{self.spec.name}-{self.model}-b{self.batch_size}{self.engine_suffix}"

    @property
    def limits(self) -> dict[str, float]:
        return {}

    def includes(self, kind: str) -> bool:
        return kind in self.kinds

    @property
    def buckets(self) -> tuple[int, ...]:
        """Ascending."""
        return self.size.buckets

    @property
    def settings(self) -> dict[str, object]:
        """What changes the meaning of a case, for its digest."""
        return {
            **self.engine_settings,
            "buckets": self.buckets,
            "dtype": self.spec.dtype,
            "tensor_parallel": self.spec.tensor_parallel,
        }

    def batches(self, workload: str) -> tuple[BucketPoint, ...]:
        """Those that the bucket suite would run of the workload."""
        return drawn_batches(
            workload,
            num_batches=self.size.num_draws,
            batch_size=self.batch_size,
            max_total_tokens=self.buckets[-1],
        )

    def touched(self, workload: str) -> tuple[int, ...]:
        """Returns the buckets that the workload's batches touch."""
        from pytest_npubench.core.buckets import SmallestBucket

        keys = SmallestBucket(prefill_buckets=self.buckets, decode_buckets=self.buckets)
        return touched_buckets(self.batches(workload), keys, self.buckets, self.batch_size)

    def edge(self, case: Case) -> tuple[int, ...]:
        """Returns the case's bucket and the next larger one, where there is one."""
        index = self.buckets.index(int(case.axis("bucket")))
        return self.buckets[index : index + 2]

    def up_to(self, bucket: int) -> tuple[int, ...]:
        """Returns the buckets whose caches are there when this one is loaded: small before large."""
        return tuple(smaller for smaller in self.buckets if smaller <= bucket)


PlanT = TypeVar("PlanT", bound=ProgramPlan)
VisitT = TypeVar("VisitT", bound=Visit)


def program_plans(of: type[PlanT], spec: HardwareSpec, profile: str) -> Iterator[PlanT]:
    """One for each model and batch size of a profile, measured in one round."""
    size = replace(spec.profile(profile), min_rounds=NUM_ROUNDS, max_rounds=NUM_ROUNDS)
    for model in size.models:
        for batch_size in spec.batch_sizes_of(model, size):
            yield of(spec=spec, size=size, model=model, batch_size=batch_size)


class BucketCases:
    """The cases of a kind that has one for each bucket. One round says all that there is."""

    def axes(self, plan: ProgramPlan) -> Iterable[Axes]:
        return ((("bucket", bucket),) for bucket in plan.buckets)

    def settled(self, case: Case, plan: ProgramPlan, measured: Measured) -> bool:
        return True


class WorkloadCases(BucketCases):
    """The cases of a kind that has one for each workload."""

    def axes(self, plan: ProgramPlan) -> Iterable[Axes]:
        return ((("workload", workload),) for workload in plan.size.workloads)


def refused(points: Iterable[VisitedOnce], measured: Measured) -> str:
    """Returns the compiler's reason for the first of these that it refused; empty where it took them all."""
    reasons = (measured.failures.get(point.name, "") for point in points)
    return next((reason for reason in reasons if any(words in reason for words in REFUSED)), "")


def failed(reason: str) -> Judgement:
    return Judgement(verdict=Verdict(kind=VerdictKind.FAILED, reason=reason))


def verdict(problems: Iterable[str], words: Iterable[str]) -> Verdict:
    """Failed where there are problems, which are said first."""
    problems = tuple(problems)
    return Verdict(kind=VerdictKind.FAILED if problems else VerdictKind.PASSED, reason="; ".join([*problems, *words]))


def last_visit(measured: Measured, point: VisitedOnce, of: type[VisitT]) -> VisitT:
    """Raises MeasurementError with the reason where the point could not be had."""
    visits = measured.visits(point.name, of)
    if not visits or not visits[-1]:
        raise MeasurementError(f"{point.name}: nothing is on record")
    return visits[-1][-1]


def fit_words(need_bytes: float, room_bytes: float | None) -> tuple[list[str], str]:
    """What is wrong where a device has less memory than is needed, and how the two stand in any case."""
    need = gigabytes(need_bytes)
    if not room_bytes:
        return [], f"{need} needed"
    room = gigabytes(room_bytes)
    return ([f"{need} are more than a device's {room}"] if need_bytes > room_bytes else []), f"{need} of {room}"


def gigabytes(number: float) -> str:
    return f"{number / 1e9:.2f} GB"
