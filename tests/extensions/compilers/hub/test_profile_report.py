"""Reading a profile job's report: seconds, bytes, placement, tool versions; and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_npubench.errors import MeasurementError
from pytest_npubench.extensions.compilers.hub.profile import Layer, check_tools, read_profile


def report(**summary: Any) -> dict[str, Any]:
    return {
        "execution_summary": {
            "estimated_inference_time": 1200,
            "all_inference_times": [1200, 1250],
            "first_load_time": 900_000,
            "warm_load_time": 0,
            "estimated_inference_peak_memory": 5_000,
            **summary,
        },
        "execution_detail": [
            {"name": "a", "type": "MatMul", "compute_unit": "NPU", "execution_time": 700},
            {"name": "b", "type": "Gather", "compute_unit": "CPU", "execution_time": 300},
            {"name": "c", "type": "Add", "compute_unit": "NPU"},
        ],
        "tool_versions": {"QAIRT": "2.37.0.1", "AIHub": "5"},
    }


def test_read() -> None:
    found = read_profile("j1", report())
    assert found.times_s == pytest.approx((0.0012, 0.00125))
    assert found.first_load_s == pytest.approx(0.9)
    assert (found.warm_load_s, found.compile_s, found.peak_memory_bytes) == (None, None, 5_000)
    assert found.layers[2] == Layer(name="c", kind="Add", unit="npu", time_s=None)
    assert [found.num_layers(unit) for unit in ("npu", "gpu", "cpu")] == [2, 0, 1]
    assert found.layer_s("npu") == pytest.approx(700e-6)
    assert found.layer_s("gpu") == 0
    assert found.tool_versions == (("AIHub", "5"), ("QAIRT", "2.37.0.1"))


def test_estimate_alone() -> None:
    assert read_profile("j1", report(all_inference_times=[])).times_s == pytest.approx((0.0012,))


def test_layers_without_times() -> None:
    bare = report()
    bare["execution_detail"] = [{"name": "a", "compute_unit": "GPU", "execution_cycles": 5}]
    assert read_profile("j1", bare).layer_s("gpu") is None
    bare["execution_detail"] = None
    assert read_profile("j1", bare).layers == ()


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({}, "job j1: its profile cannot be read: KeyError: 'execution_summary'"),
        ({"execution_summary": None}, "job j1: its profile cannot be read: AttributeError"),
        ({"execution_summary": {}}, "KeyError: 'estimated_inference_time'"),
        (report(all_inference_times=["soon"]), "ValueError"),
        (report(all_inference_times=[5, 0]), "an inference time of 0"),
        (report() | {"execution_detail": [{}]}, "KeyError: 'name'"),
    ],
)
def test_refused(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(MeasurementError, match=words):
        read_profile("j1", wrong)


@pytest.mark.parametrize("pinned", [None, "2.37.0.1", "2.37.0", "2.37"])
def test_the_pinned_tools(pinned: str | None) -> None:
    check_tools("j1", read_profile("j1", report()), pinned)


@pytest.mark.parametrize("pinned", ["2.36", "2.3", "2.37.0.10"])
def test_other_tools(pinned: str) -> None:
    with pytest.raises(MeasurementError, match=f"job j1 ran on QAIRT 2.37.0.1; the fingerprint says {pinned}"):
        check_tools("j1", read_profile("j1", report()), pinned)
