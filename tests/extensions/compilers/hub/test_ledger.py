"""Files of AI Hub: the job ids after a kill, and a profile job's report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_npubench.errors import FormatVersionError, MeasurementError, StoreError
from pytest_npubench.extensions.compilers.hub.ledger import STATES, JobEntry, JobLedger
from pytest_npubench.extensions.compilers.hub.profile import Layer, check_tools, read_profile

ENTRY = JobEntry(kind="compile", name="npubench-x-0", state="intended", submitted_at_s=12.5)
TEXT = st.text(max_size=20)
ENTRIES = st.builds(
    JobEntry,
    kind=st.sampled_from(("compile", "profile")),
    name=TEXT,
    state=st.sampled_from(STATES),
    submitted_at_s=st.floats(0, 1e10),
    job_id=st.none() | TEXT,
    reason=st.none() | TEXT,
)


@settings(max_examples=25, deadline=None)
@given(jobs=st.dictionaries(TEXT, ENTRIES, max_size=4), models=st.dictionaries(TEXT, TEXT, max_size=3))
def test_everything_comes_back(
    tmp_path_factory: pytest.TempPathFactory, jobs: dict[str, JobEntry], models: dict[str, str]
) -> None:
    path = tmp_path_factory.mktemp("ledger") / "deep" / "jobs.json"
    ledger = JobLedger(path)
    for key, entry in jobs.items():
        ledger.put(key, entry)
    for digest, model in models.items():
        ledger.put_model(digest, model)
    again = JobLedger(path)
    assert {key: again.job(key) for key in jobs} == jobs
    assert {digest: again.model(digest) for digest in models} == models


def test_changes(tmp_path: Path) -> None:
    ledger = JobLedger(tmp_path / "jobs.json")
    for key in ("a", "b", "c"):
        ledger.put(key, ENTRY)
    ledger.change("a", state="submitted", job_id="j1")
    ledger.settle(["a", "b"])
    ledger.put_model("d", "m1")
    ledger.forget_model("d")
    again = JobLedger(tmp_path / "jobs.json")
    found = [again.job(key) for key in ("a", "b", "c")]
    assert [entry.state for entry in found if entry] == ["settled", "settled", "intended"]
    assert found[0] is not None
    assert found[0].job_id == "j1"
    assert again.model("d") is None
    assert again.job("nothing") is None


def test_a_kill_while_writing_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "jobs.json"
    JobLedger(path).put("a", ENTRY)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        JobLedger(path).put("b", ENTRY)
    again = JobLedger(path)
    assert again.job("a") == ENTRY
    assert again.job("b") is None


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"format": 1}', '{"format": 1, "jobs": {"a": {"state": "odd"}}, "models": {}}', '"text"'],
)
def test_not_a_ledger(tmp_path: Path, text: str) -> None:
    (tmp_path / "jobs.json").write_text(text)
    with pytest.raises(StoreError, match=r"jobs.json: not a file of AI Hub jobs: .*; move it away"):
        JobLedger(tmp_path / "jobs.json")


def test_unknown_state(tmp_path: Path) -> None:
    JobLedger(tmp_path / "jobs.json").put("a", ENTRY)
    text = (tmp_path / "jobs.json").read_text().replace("intended", "done")
    (tmp_path / "jobs.json").write_text(text)
    with pytest.raises(StoreError, match="state 'done'; want one of intended, submitted"):
        JobLedger(tmp_path / "jobs.json")


def test_later_format(tmp_path: Path) -> None:
    (tmp_path / "jobs.json").write_text(json.dumps({"format": 2, "jobs": {}, "models": {}}))
    with pytest.raises(FormatVersionError, match="format 2; this version knows up to 1"):
        JobLedger(tmp_path / "jobs.json")


def test_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be written"):
        JobLedger(tmp_path / "file" / "jobs.json").put("a", ENTRY)


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
