"""What binds a step: the worked number by hand, every constraint, and no answer without peaks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pytest_npubench.backends.telemetry.round_state import RoundState
from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.watch import Watched
from pytest_npubench.core.measurement import Phase
from pytest_npubench.suites import hardware_files
from pytest_npubench.suites.buckets.binding import CAPPED, bindings, step_work
from pytest_npubench.suites.buckets.plan import BucketPlan, bucket_plans

NO_STATE = Measured()


@pytest.fixture(scope="module")
def h100() -> BucketPlan:
    spec = hardware_files.load_all(hardware_files.known_folders())["nvidia-h100"]
    (plan,) = (one for one in bucket_plans(spec, "quick") if (one.model, one.batch_size) == ("llama-3.2-1b", 8))
    return plan


def held_back(fraction: float, reason: str = "power_violation") -> Measured:
    found = Measured()
    found.watched.append(Watched(state=RoundState(duration_s=10.0, throttled_s={reason: 10.0 * fraction})))
    return found


def test_the_work_of_a_step_by_hand(h100: BucketPlan) -> None:
    """1.2358e9 weights, 0.2627e9 of them the table; 16 layers of 32 query heads of 64; 32 KiB a token kept."""
    flops, read = step_work(h100, Phase.DECODE, 1024)
    assert read == pytest.approx(2 * 1.2358e9 + 8 * 1024 * 32_768, rel=1e-3)
    assert flops == pytest.approx(8 * (2 * 1.2358e9 + 4 * 16 * 2048 * 1024), rel=1e-3)
    flops, read = step_work(h100, Phase.PREFILL, 1024)
    assert read == pytest.approx(2 * 1.2358e9, rel=1e-3)
    assert flops == pytest.approx(2 * (0.9731e9 * 1024 + 0.2627e9) + 16 * 2 * 1024**2 * 2048, rel=2e-3)


@pytest.mark.parametrize(
    ("phase", "seconds", "state", "constraint"),
    [
        (Phase.DECODE, 0.001, NO_STATE, "memory"),
        (Phase.DECODE, 0.002, NO_STATE, "launch"),
        (Phase.PREFILL, 0.0030, NO_STATE, "compute"),
        (Phase.PREFILL, 0.0080, NO_STATE, "launch"),
        (Phase.PREFILL, 0.0030, held_back(2 * CAPPED), "power cap"),
        (Phase.PREFILL, 0.0030, held_back(CAPPED / 2), "compute"),
        (Phase.PREFILL, 0.0030, held_back(0.5, "thermal_violation"), "compute"),
        (Phase.PREFILL, 0.0080, held_back(0.5), "launch"),
    ],
)
def test_what_binds(h100: BucketPlan, phase: Phase, seconds: float, state: Any, constraint: str) -> None:
    found = bindings(h100, state, 1024, {phase: seconds})
    assert found is not None
    assert found[phase.value].constraint == constraint
    larger = min(found[phase.value].of_compute, found[phase.value].of_memory)
    assert (larger > 2) == (constraint == "launch")


def test_without_peaks_nobody_knows(h100: BucketPlan) -> None:
    bare = replace(h100, spec=replace(h100.spec, peak=replace(h100.spec.peak, flops_per_s={})))
    assert bindings(bare, NO_STATE, 1024, {Phase.DECODE: 0.001}) is None
