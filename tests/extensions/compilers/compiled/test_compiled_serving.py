"""Verdicts on the binaries that serve, by what a stand-in of the compiler says of them: nothing here is a TPU's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pytest_npubench.campaign.points import Measured
from pytest_npubench.extensions.compilers.suites.compiled.plan import BinaryVisit
from pytest_npubench.extensions.compilers.suites.compiled.serving import ServingBinariesPlan
from pytest_npubench.suites import hardware_files, suite
from pytest_npubench.suites.protocol import Choice
from pytest_npubench.verdict import VerdictKind

GB = 1e9
SPECS = hardware_files.load_all(hardware_files.known_folders())
POOL_GB = 48 * 3_128 * 64 * 2 * 128 * 2 / GB
"""Of 48 layers 3,125 pages that are lent and 3 of scratch, of 64 slots each, with a key-value head of 128 in bf16."""
STATE_GB = POOL_GB + 3_128 * 64 * 2_048 * 2 / GB


def plan_of(name: str = "tpu-v6e") -> ServingBinariesPlan:
    (plan,) = [one for one in suite("compiled").plans(SPECS[name], Choice()) if isinstance(one, ServingBinariesPlan)]
    return plan


def judged(tokens: int, **wrong: Any) -> Any:
    """By facts of sound binaries, of which the one for these tokens is wrong: weights of 15 GB."""
    plan, kind, measured = plan_of(), suite("compiled").kind("serving"), Measured()
    sound = dict.fromkeys((field for field in BinaryVisit.__dataclass_fields__), 0.0) | {
        "cycles": 2e5,
        "argument_bytes": (15 + STATE_GB) * GB,
        "output_bytes": STATE_GB * GB,
        "temporary_bytes": 0.1 * GB,
        "code_bytes": 5e6,
        "donated_bytes": STATE_GB * GB,
        "aliased_bytes": STATE_GB * GB,
        "modules": 1,
    }
    visits = {point: BinaryVisit(**sound) for point in plan.points}
    visits |= {point: replace(visit, **wrong) for point, visit in visits.items() if point.length == tokens}
    columns = {point.name: visit.columns().items() for point, visit in visits.items()}
    measured.rounds.append({f"{name}/{key}": tuple(value) for name, pairs in columns.items() for key, value in pairs})
    (case,) = [plan.case("compiled", "serving", axes) for axes in kind.axes(plan) if dict(axes) == {"tokens": tokens}]
    return kind.judge(case, plan, measured)


def test_sound_binaries_pass_with_what_all_smaller_ones_need() -> None:
    found = judged(640)
    assert found.verdict.kind is VerdictKind.PASSED, found.verdict.reason
    assert found.detail.need_bytes == pytest.approx((15 + STATE_GB + 0.1) * GB + 4 * 5e6)
    assert found.detail.state_bytes == pytest.approx(STATE_GB * GB)
    twice = judged(640, aliased_bytes=0.0)
    assert twice.detail.need_bytes - found.detail.need_bytes == pytest.approx(STATE_GB * GB)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"donated_bytes": 0.0, "aliased_bytes": 0.0}, "5.74 GB of keys, values and hidden states are not written in"),
        ({"aliased_bytes": (STATE_GB - POOL_GB) * GB}, "4.92 GB of keys, values and hidden states are not written in"),
        ({"expert_copies": 3}, "3 copies of a layer's experts"),
        ({"cache_copies": 2}, "2 copies of a layer's keys and values"),
        ({"modules": 2}, "a plan is compiled into them"),
        ({"temporary_bytes": 12 * GB}, "are more than a device's 32.0"),
    ],
)
def test_what_is_wrong_fails_without_a_baseline(wrong: Any, reason: str) -> None:
    found = judged(640, **wrong)
    assert found.verdict.kind is VerdictKind.FAILED
    assert reason in found.verdict.reason


def test_a_device_has_one_key_value_head_at_least() -> None:
    """Eight devices of a v7x share out four heads."""
    assert plan_of("tpu-v7x").state_bytes == pytest.approx(STATE_GB * GB)
