"""Nights as data, and what each case has to be said to be on each of them, worked out without the product.

A case is named DEVICE-bBATCH-bucketTOKENS, such as near-b2-bucket32. Its time is its factor times what it was on the
first night. What is accepted for it is counted under each driver: below 3 nights there is nothing to judge by.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

DEVICES = ("near", "far")
CAMPAIGNS = ("near-b2", "near-b4", "far-b2")
BUCKETS = (16, 32, 64, 128)
CASES = tuple(f"{campaign}-bucket{bucket}" for campaign in CAMPAIGNS for bucket in BUCKETS)
FIRST = "driver 1"
NUM_WANTED = 3
NUM_KEPT = 25  # the first 5 sessions of a case and the newest 20
REQUIRED_SHARE = 0.9


class Truth(Enum):
    """What a case is tonight; the values are the verdicts that are right."""

    NO_BASELINE = ("no-baseline",)
    SAME = ("unchanged", "inconclusive")
    SLOWER = ("regressed",)
    INCOMPARABLE = ("incomparable",)
    INVALID = ("invalid",)

    @property
    def is_accepted(self) -> bool:
        return self in (Truth.NO_BASELINE, Truth.SAME, Truth.INCOMPARABLE)


@dataclass(frozen=True, kw_only=True)
class Night:
    """What is true on one night.

    `title` is the table's row. `factors` has the cases that are slower, `drivers` what is not driver 1. `lost`: devices
    that do not open; `dies`: campaigns whose process is killed in the middle; `hot`: devices that throttle.
    `is_killed`: everything is killed half-way; `disk_full`: from half-way on the journal cannot grow. `resets`: case ->
    reason, by a person in the morning after. `runners`: those that measure, at once where they are two.
    """

    title: str
    factors: Mapping[str, float] = field(default_factory=dict)
    drivers: Mapping[str, str] = field(default_factory=dict)
    across: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    dies: tuple[str, ...] = ()
    hot: tuple[str, ...] = ()
    is_killed: bool = False
    disk_full: bool = False
    resets: Mapping[str, str] = field(default_factory=dict)
    runners: tuple[str, ...] = ("a",)

    @property
    def is_whole(self) -> bool:
        return not (self.is_killed or self.disk_full)

    def driver(self, case: str) -> str:
        return self.drivers.get(case.partition("-")[0], FIRST)

    def is_unmeasured(self, case: str) -> bool:
        device, batch, _ = case.split("-")
        return device in (*self.lost, *self.hot) or f"{device}-{batch}" in self.dies


@dataclass(frozen=True, kw_only=True)
class Expected:
    """The truth of one night: of each case, whether it is green, and the sessions that each case has been accepted with
    under tonight's driver once it is over. `slower_by` is by how much the slower ones are slower than accepted."""

    truths: Mapping[str, Truth]
    slower_by: Mapping[str, float]
    is_green: bool
    num_accepted: Mapping[str, int]


def expected(nights: Sequence[Night]) -> Iterator[Expected]:
    """The truth of each night, given those before it."""
    accepted: Counter[tuple[str, str]] = Counter()  # by case and driver
    reference = dict.fromkeys(CASES, 1.0)  # the factor that the baselines hold
    for night in nights:
        truths = {case: _truth(night, case, accepted, reference[case]) for case in CASES}
        slower_by = {case: night.factors.get(case, 1.0) / reference[case] - 1 for case in CASES}
        for case, truth in truths.items():
            if night.is_whole and truth.is_accepted:
                accepted[case, night.driver(case)] += len(night.runners)
        for case in night.resets:
            reference[case] = night.factors.get(case, 1.0)
            for name in [name for name in accepted if name[0] == case]:
                del accepted[name]
        yield Expected(
            truths=truths,
            slower_by=slower_by,
            is_green=night.is_whole and _is_green(list(truths.values())),
            num_accepted={case: min(accepted[case, night.driver(case)], NUM_KEPT) for case in CASES},
        )


def _truth(night: Night, case: str, accepted: Mapping[tuple[str, str], int], reference: float) -> Truth:
    counts = {driver: number for (name, driver), number in accepted.items() if name == case and number}
    own = counts.get(night.driver(case), 0)
    if night.is_unmeasured(case):
        return Truth.INVALID
    if "driver" in night.across:
        own = sum(counts.values())
    if own >= NUM_WANTED:
        return Truth.SLOWER if night.factors.get(case, 1.0) > reference else Truth.SAME
    return Truth.INCOMPARABLE if not own and counts else Truth.NO_BASELINE


def _is_green(truths: Sequence[Truth]) -> bool:
    """No case is red, and nine tenths of what was measured are judged."""
    measured = [truth for truth in truths if truth is not Truth.INVALID]
    judged = [truth for truth in measured if truth in (Truth.SAME, Truth.SLOWER)]
    return set(truths).isdisjoint({Truth.SLOWER, Truth.INVALID}) and len(judged) >= REQUIRED_SHARE * len(measured)


BUILDING = Night(title="nights build baselines")
QUIET = Night(title="nothing changed")
INTENDED = {"far-b2-bucket16": 1.08}
REASON = "the cache is kept in fp8 now"
UPGRADED = {"near": "driver 2"}


def forty_nights() -> list[Night]:
    """Forty nights: each fault, quiet nights before and after it, and slow-downs that last."""
    new: dict[str, Any] = {"drivers": UPGRADED}
    changed: dict[str, Any] = {"factors": INTENDED}
    both = {**new, **changed}
    return [
        *[BUILDING] * 3,
        *[QUIET] * 4,
        Night(title="+10 %", factors={"near-b2-bucket32": 1.10}),
        QUIET,
        *[Night(title="+5 %", factors={"near-b4-bucket64": 1.05})] * 3,
        QUIET,
        Night(title="a device does not open", lost=("far",)),
        Night(title="a device's process is killed", dies=("near-b4",)),
        Night(title="a device throttles", hot=("near",)),
        Night(title="killed half-way", is_killed=True),
        QUIET,
        Night(title="the disk is full half-way", disk_full=True),
        QUIET,
        Night(title="two runners at once", runners=("a", "b")),
        Night(title="an intended change", **changed, resets=dict.fromkeys(INTENDED, REASON)),
        *[Night(title="after the intended change", **changed)] * 3,
        Night(title=QUIET.title, **changed),
        Night(title="+10 %", factors=INTENDED | {"far-b2-bucket128": 1.10}),
        Night(title="a new driver", **both),
        *[Night(title="compared across drivers", **both, across=("driver",))] * 2,
        Night(
            title="+5 %, compared across drivers",
            **new,
            factors=INTENDED | {"near-b2-bucket16": 1.05},
            across=("driver",),
        ),
        *[Night(title=QUIET.title, **both)] * 2,
        *[Night(title="+5 %", **new, factors=INTENDED | {"near-b2-bucket16": 1.05, "far-b2-bucket64": 1.05})] * 2,
        Night(title="killed half-way", **both, is_killed=True),
        Night(title="two runners at once", **both, runners=("a", "b")),
        Night(
            title="+10 % and a device does not open",
            **new,
            factors=INTENDED | {"near-b4-bucket128": 1.10},
            lost=("far",),
        ),
        *[Night(title=QUIET.title, **both)] * 2,
    ]
