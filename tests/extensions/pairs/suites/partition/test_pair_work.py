"""Times of split operators that no pair of units has, by hand."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from pytest_npubench.core.hardware_reader import default_directory
from pytest_npubench.extensions.pairs.partition.matmul import GPU, Matmul, alone
from pytest_npubench.extensions.pairs.suites.partition.points import DecisionPoint, SplitPoint, SplitVisit
from pytest_npubench.extensions.pairs.suites.partition.work import impossible
from pytest_npubench.suites.hardware_files import load_all

from .conftest import decision_visit, partition_plan, scripted

HOST = partition_plan()
ON_H100 = replace(HOST, spec=load_all([default_directory()])["nvidia-h100"])
ON_PHONE = replace(HOST, spec=load_all([default_directory()])["snapdragon-8-elite"])
POINT = DecisionPoint(matmul=Matmul(name="q", rows=1024, cols=1024, tokens=64))
CORES = 416e9 * (os.cpu_count() or 1)
FLOP = 2 * 1024 * 1024 * 64


@pytest.mark.parametrize(("plan", "peak_per_s"), [(HOST, CORES), (ON_H100, 989.4e12 + CORES)])
def test_a_split_is_no_faster_than_both_units_together(plan, peak_per_s):
    least_s = FLOP / peak_per_s

    def measured(*of_least):
        return scripted({POINT: [decision_visit(share * least_s, place=1, predicted_s=1.0) for share in of_least]})

    assert impossible(plan, [POINT], measured(1.0, 0.95)) == ""
    reason = impossible(plan, [POINT], measured(1.0, 0.5))
    assert reason.startswith("faster than the device can be (0.5 of the time that its FLOP take at ")
    assert reason.endswith("(decision/1024x1024x64)")


def test_a_core_may_have_a_unit_of_its_own_for_bfloat16():
    """A time that no core takes in fp32 may be right in bf16: AMX is 16 times as fast."""
    point = SplitPoint(matmul=replace(POINT.matmul, dtype="bf16"), split=alone(POINT.matmul, GPU))
    row = {"total_s": FLOP / (8 * CORES), "gpu_s": None, "npu_s": None, "sync_s": 0.0}
    assert impossible(HOST, [point], scripted({point: SplitVisit(**row)})) == ""
    assert impossible(HOST, [point], scripted({point: SplitVisit(**{**row, "total_s": FLOP / (32 * CORES)})})) != ""


def test_without_peaks_nobody_knows():
    found = scripted({POINT: decision_visit(1e-9, place=1, predicted_s=1.0)})
    assert impossible(ON_PHONE, [POINT], found) == ""
    found.failures[POINT.name] = "lost"
    assert impossible(HOST, [POINT], found) == ""
