"""What the campaign's machinery asks of a plan, of a point, and of the bench that measures points.

A suite brings its own: buckets time batches on compiled binaries, scheduling serves blocks of requests under policies.
Locking, watching, rounds, resuming and journalling are the same for all.

A CaseKind says how its cases expand, which points they need measured, and how they are judged.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from pytest_npubench.campaign.visits import Round, Visit
from pytest_npubench.core.case import Axes, Case
from pytest_npubench.core.hardware import HardwareSpec

if TYPE_CHECKING:
    from pytest_npubench.campaign.points import Measured
    from pytest_npubench.core.case import Axes, Case
    from pytest_npubench.verdict.result import Judgement

PointT = TypeVar("PointT", contravariant=True)
PlanT = TypeVar("PlanT", contravariant=True)


class CampaignSize(Protocol):
    """How long a campaign goes on."""

    @property
    def min_rounds(self) -> int: ...

    @property
    def max_rounds(self) -> int: ...

    @property
    def budget_s(self) -> float: ...


class CampaignPlan(Protocol):
    """What a campaign is about; equal on every machine."""

    @property
    def key(self) -> str:
        """Names the campaign: cases of one key are measured together."""
        ...

    @property
    def spec(self) -> HardwareSpec: ...

    @property
    def size(self) -> CampaignSize: ...

    @property
    def framework(self) -> str:
        """Returns the runtime that opens the device: "jax", "torch", or the name of an engine."""
        ...

    @property
    def settings(self) -> Mapping[str, object]:
        """What changes the meaning of a case, for its digest."""
        ...

    @property
    def limits(self) -> Mapping[str, float]:
        """What its cases are held to: a resumed verdict must be one under the same."""
        ...

    def includes(self, kind: str) -> bool:
        """Whether the run's profile has cases of that kind at all."""
        ...

    def case(self, suite: str, kind: str, axes: Axes) -> Case: ...


class CampaignPoint(Protocol):
    """One thing to measure."""

    @property
    def name(self) -> str: ...

    @property
    def definition(self) -> Sequence[object] | None:
        """JSON form for the campaign's digest; None for a point that no case is judged by."""
        ...

    def visits(self, duration_s: float) -> int:
        """How often one round visits the point when a visit takes so long."""
        ...


class Bench(Protocol[PointT]):
    """Measures the points of one campaign on an open runtime."""

    def load(
        self,
        points: Sequence[PointT],
        earlier: Sequence[Round],
        stage: Callable[[str], None],
    ) -> Mapping[str, str]:
        """Compile and allocate what the points need; tell by `stage` what is being done. `earlier` are the rounds of
        the same campaign that were measured before. Returns why by name for the points that cannot be had."""
        ...

    def warm_up(self, point: PointT) -> tuple[float, bool]:
        """Returns the seconds of a warm visit, and whether it became steady."""
        ...

    def sample(self, point: PointT, round_index: int) -> Visit:
        """Visit a point once. Raises MeasurementError where what it left cannot be used."""
        ...

    # A bench may have two methods more.
    # close() -> None: ends what the bench started, once its campaign is measured or failed.
    # visits(points, measured, durations_s) -> Mapping[str, int]: how often the next round visits points, by name; a
    # point that is left out is visited as often as it says.


class FrozenWorkload(Protocol):
    """What a workload's cases are held to since their first acceptance, and in words where that is from."""

    @property
    def calibration(self) -> Any:
        """Plain data that the child process is handed."""
        ...

    @property
    def origin(self) -> str: ...

    @property
    def is_of_other_stack(self) -> bool: ...


def campaign_digest(plan: CampaignPlan, points: Sequence[CampaignPoint]) -> str:
    """Returns a hash of what the campaign measures: rounds of equal digest may be continued."""
    definitions = [point.definition for point in points if point.definition is not None]
    body = [plan.key, plan.settings, sorted(map(json.dumps, definitions))]
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:12]


class Progress:
    """Hears how far a campaign is. This class is silent, and the plugin's writes to the terminal; no call may fail a
    measurement."""

    def stage(self, campaign: str, text: str) -> None:
        """What the campaign does before its rounds."""

    def begin_round(self, plan: CampaignPlan, index: int, num_samples: int, measured_s: float) -> None:
        """A round of so many samples begins; measured_s is what the rounds before it took."""

    def sample(self) -> None:
        """One sample of the round is there."""


class CaseKind(Protocol[PlanT]):
    """A kind of case. Each suite has its own plan: BucketPlan for buckets, ServingPlan for scheduling."""

    name: str
    suite: str

    def axes(self, plan: PlanT) -> Iterable[Axes]:
        """Returns the kind's own parameters of each case, the same on every machine."""
        ...

    def points(self, case: Case, plan: PlanT) -> tuple[CampaignPoint, ...]:
        """What the campaign must measure for this case."""
        ...

    def judge(self, case: Case, plan: PlanT, measured: Measured) -> Judgement:
        """Returns the case's verdict. Raises MeasurementError where its points failed: the case is then invalid."""
        ...

    def settled(self, case: Case, plan: PlanT, measured: Measured) -> bool:
        """Whether more rounds would tell this case nothing new."""
        ...
