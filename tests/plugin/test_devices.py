"""Several devices of a family: one item for each, named by its number, with results of its own."""

import json

import pytest

from pytest_npubench.plugin.outcome import ExitStatus
from pytest_npubench.store.baselines import Baselines

from .project import summary

OWN = """
import pytest

pytestmark = pytest.mark.openvino


@pytest.mark.parametrize("word", ["a", "b"])
def test_word(npubench, word):
    npubench(lambda: word)


class TestInClass:
    def test_method(self, npubench, tmp_path):
        npubench(lambda: tmp_path)
"""
MARKS_LATE = """

import pytest


def pytest_collection_modifyitems(items):
    for item in items:
        if item.name.startswith("test_method"):
            item.add_marker(pytest.mark.skip(reason="marked after collection"))
"""


def passed(result: pytest.RunResult) -> list[str]:
    return list(summary(result, "PASSED"))


def test_one_item_a_device_named_by_its_number(project):
    project.fake("num_devices=4, noise=0.01")
    result = project.run("-k", "fake and profile and bucket16", "-rA", "--junitxml=junit.xml")
    ids = [f"test_profile.py::test_profile[fake-mini-llama-b2-bucket16@{ordinal}]" for ordinal in range(4)]
    assert passed(result) == ids
    records = project.records("case")
    assert [record["node"] for record in records] == ids
    assert [record["device"] for record in records] == [f"openvino:{ordinal}" for ordinal in range(4)]
    # the case is the same one on each of them, its fingerprint is not
    assert len({record["case"] for record in records}) == len({record["digest"] for record in records}) == 1
    assert len({record["fingerprint"] for record in records}) == 4
    names = [line.split('"')[0] for line in (project.root / "junit.xml").read_text().split(' name="test_profile')[1:]]
    assert names == [f"[fake-mini-llama-b2-bucket16@{ordinal}]" for ordinal in range(4)]


def test_devices_are_chosen_by_number(project):
    project.fake("num_devices=4")
    result = project.run("-k", "fake and profile and bucket16", "-rA", "--npubench-devices", "3,1")
    assert [record["device"] for record in project.records("case")] == ["openvino:1", "openvino:3"]
    assert len(passed(result)) == 2
    result = project.run("-k", "fake and profile and bucket16", "-rs", "--npubench-devices", "7")
    assert result.ret == 0
    assert "no device of --npubench-devices 7: found openvino:0, openvino:1" in result.stdout.str()
    result = project.run("-k", "fake and profile and bucket16", "-rA", "--npubench-devices", "2")
    assert passed(result) == ["test_profile.py::test_profile[fake-mini-llama-b2-bucket16]"]
    assert [record["device"] for record in project.records("case")] == ["openvino:2"]


def test_a_tensor_parallel_group_is_one_item(project):
    project.fake("num_devices=5", num_devices=2)
    result = project.run("-k", "fake and profile and bucket16", "-rA")
    assert [record["device"] for record in project.records("case")] == [
        "openvino:0, openvino:1",
        "openvino:2, openvino:3",
    ]
    assert [name[-3:] for name in passed(result)] == ["@0]", "@2]"]
    project.fake("num_devices=1", num_devices=2)
    result = project.run("-k", "fake and profile and bucket16", "-rs")
    assert result.ret == 0
    assert "needs 2 devices together, found 1: openvino:0" in result.stdout.str()


def test_own_tests_keep_parameters_classes_and_late_marks(project):
    project.fake("num_devices=2")
    project.write("test_own.py", OWN)
    assert passed(project.run("test_own.py", "-rA")) == [
        f"test_own.py::{name}{end}"
        for name, close in (("test_word[a", "]"), ("test_word[b", "]"), ("TestInClass::test_method", ""))
        for end in (f"@0{close}", f"@1{close}")
    ]
    # a case's id holds no machine state
    assert {record["axes"]["test"] for record in project.records("case")} == {
        "test_own.py::test_word[a]",
        "test_own.py::test_word[b]",
        "test_own.py::TestInClass::test_method",
    }
    project.write("conftest.py", (project.root / "conftest.py").read_text() + MARKS_LATE)
    project.run("test_own.py").assert_outcomes(passed=4, skipped=2)


def test_resuming_takes_no_device_for_another(project):
    project.fake("num_devices=2, noise=0.01")
    select = ("-k", "fake and profile and bucket16")
    assert project.run(*select, "--npubench-devices", "0").ret == 0
    assert project.run(*select, "--npubench-resume").ret == 0
    assert [(record["device"], record["resumed"]) for record in project.records("case")] == [
        ("openvino:0", True),
        ("openvino:1", False),
    ]
    assert {record["campaign"] for record in project.records("round")} == {"fake-mini-llama-b2"}


def test_each_device_is_accepted_as_a_session_of_its_own(project):
    project.fake("num_devices=2, slower_by=0.5")
    result = project.run("-k", "fake and profile and bucket16", "--npubench-accept")
    assert result.ret == 0, result.stdout.str()
    records = {record["device"]: record for record in project.records("case")}
    values = {device: record["metrics"]["ttft_s"]["value"] for device, record in records.items()}
    assert values["openvino:1"] == pytest.approx(1.5 * values["openvino:0"])
    fingerprint = project.journal().fingerprint(records["openvino:0"]["fingerprint"])
    case, digest = records["openvino:0"]["case"], records["openvino:0"]["digest"]
    baselines = Baselines.load(project.root / "baselines")
    found = baselines.sessions(case, "ttft_s", fingerprint.key(), digest=digest)
    medians = sorted(sorted(processes[0])[6] for processes in found)
    assert medians == pytest.approx(sorted(values.values()), rel=0.02)


def test_a_device_lost_before_it_opens_is_invalid_with_the_reason(project):
    project.fake("lost='the fake accelerator fell off the bus\\nsecond line'")
    result = project.run("-k", "fake and profile", "--npubench-journal", "lost.jsonl")
    assert result.ret == ExitStatus.INVALID
    reason = "openvino:0 does not open: RuntimeError: the fake accelerator fell off the bus"
    assert list(summary(result, "FAILED").values()) == [f"Failed: invalid: {reason}"] * 3
    lines = [json.loads(line) for line in (project.root / "lost.jsonl").read_text().splitlines()]
    cases = [line for line in lines if line["record"] == "case"]
    assert {case["verdict"]["reason"] for case in cases} == {reason}
    assert {case["fingerprint"] for case in cases} == {None}
