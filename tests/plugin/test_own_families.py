"""A test of one's own that several device families can run: an item for each, with results of its own."""

import pytest

from pytest_npubench.backends.protocol import Device, Probe
from pytest_npubench.plugin.own_families import families_of, wanted

from .project import OWN_HARDWARE, make_project, skipped, summary

FAMILIES = """
import os

import fake_device


def present(family, **faults):
    return fake_device.FakeBackend(fake_device.Faults(**faults), family=family)


def pytest_npubench_backends():
    gone = os.environ.get("GONE", "").split()
    found = {"cuda": {"num_devices": 2}, "openvino": {}, "tpu": {"absent": "no tpu here"}, "neuron": {"absent": "none"}}
    return [present(name, **({"absent": f"{name} is gone"} if name in gone else found[name])) for name in found]
"""
OWN = """
import pytest


@pytest.mark.gpu
def test_any_gpu(npubench):
    npubench(lambda: 1)


@pytest.mark.cuda
@pytest.mark.tpu
@pytest.mark.parametrize("word", ["a", "b"])
def test_words(npubench, word):
    npubench(lambda: word)


@pytest.mark.tpu
class TestAbsent:
    @pytest.mark.neuron
    def test_method(self, npubench):
        npubench(lambda: 1)


def test_unmarked(npubench):
    npubench(lambda: 1)


def test_late(npubench):
    npubench(lambda: 1)


def test_other():
    pass
"""
MARKED_LATE = """

import pytest


def pytest_collection_modifyitems(items):
    for item in items:
        if item.name == "test_late" and "LATE" in os.environ:
            item.add_marker(pytest.mark.cuda)
            item.add_marker(pytest.mark.tpu)
"""


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    project = make_project(tmp_path_factory.mktemp("families"))
    project.fake()
    project.write("conftest.py", OWN_HARDWARE + FAMILIES + MARKED_LATE)
    project.write("test_own.py", OWN)
    return project


GPU = ["test_own.py::test_any_gpu[cuda@0]", "test_own.py::test_any_gpu[cuda@1]", "test_own.py::test_any_gpu[openvino]"]
WORDS = [f"test_own.py::test_words[cuda-{word}@{number}]" for word in "ab" for number in (0, 1)]


def test_each_family_with_a_device_has_an_item_and_one_unmarked_test_fails_alone(shared):
    result = shared.run("test_own.py", "-rA", "-W", "error", "--npubench-require", "gpu,cuda", env={"LATE": "1"})
    assert result.ret == 1
    assert sorted(summary(result, "PASSED")) == sorted([*GPU, *WORDS, "test_own.py::test_other"])
    assert skipped(result).keys() == {"no tpu here; none"}
    assert summary(result, "ERROR").keys() == {"test_own.py::test_unmarked", "test_own.py::test_late"}
    result.stdout.fnmatch_lines(
        ["test_own.py::test_unmarked: a test with the npubench fixture needs a marker of a dev*"]
    )
    result.stdout.fnmatch_lines(
        ["test_own.py::test_late: the markers cuda, tpu were added after collection; mark the *"]
    )
    assert "During handling" not in result.stdout.str()
    assert result.parseoutcomes()["deselected"] == 3  # two words on a TPU, and one of the absent families
    cases = {(record["case"], record["device"]) for record in shared.records("case")}
    assert ("own/callable/fake-callable-b1-test_own.py::test_any_gpu[openvino]", "openvino:0") in cases
    assert ("own/callable/cuda-callable-b1-test_own.py::test_any_gpu[cuda]", "cuda:1") in cases
    assert len(cases) == 7
    assert any(line.startswith(" callable/test_own.py::test_words[cuda-a] ") for line in result.outlines)


@pytest.mark.parametrize(
    ("expression", "ids"),
    [
        ("cuda", ["test_any_gpu[cuda]", "test_words[cuda-a]", "test_words[cuda-b]"]),
        ("gpu", ["test_any_gpu[cuda]", "test_any_gpu[openvino]"]),
        ("gpu and not cuda", ["test_any_gpu[openvino]"]),
        ("npu", []),  # the class was not asked for
        ("neuron", ["TestAbsent::test_method[neuron]"]),
    ],
)
def test_a_family_is_selected_alone_on_every_machine(shared, expression, ids):
    result = shared.run("test_own.py", "--collect-only", "-q", "-m", expression)
    assert [line.partition("::")[2] for line in result.outlines if "::" in line] == ids


def test_a_family_that_was_asked_for_and_is_absent_skips_or_fails_as_required(shared):
    result = shared.run("test_own.py", "-m", "tpu", "-rs")
    assert result.ret == 0
    assert skipped(result).keys() == {"no tpu here"}
    assert result.parseoutcomes()["skipped"] == 3
    required = shared.run("test_own.py", "-m", "cuda or tpu", "--npubench-require", "tpu")
    assert required.ret == pytest.ExitCode.USAGE_ERROR
    assert required.errlines[0].startswith("ERROR: --npubench-require tpu: no tpu here")


def test_an_item_can_be_named_and_without_its_family_says_why(shared):
    result = shared.run("test_own.py::test_any_gpu[openvino]", "-rA")
    assert list(summary(result, "PASSED")) == ["test_own.py::test_any_gpu[openvino]"]
    gone = shared.run("test_own.py::test_any_gpu", "-rs", env={"GONE": "cuda openvino"})
    assert skipped(gone).keys() == {"cuda is gone; openvino is gone"}


def test_workers_of_xdist_agree(shared):
    result = shared.run("test_own.py", "-k", "gpu or words", "-n2", "-rA", "-W", "error")
    assert result.ret == 0, result.stdout.str()
    assert sorted(summary(result, "PASSED")) == sorted([*GPU, *WORDS])


@pytest.mark.parametrize(
    ("markers", "found"),
    [
        ("gpu", ["Intel(R) Arc(TM) Graphics (iGPU)"]),
        ("npu", ["Intel(R) AI Boost"]),
        ("npu gpu", ["Intel(R) AI Boost", "Intel(R) Arc(TM) Graphics (iGPU)"]),
        ("", ["Intel(R) AI Boost", "Intel(R) Arc(TM) Graphics (iGPU)", "AMD EPYC (OpenVINO CPU plugin)"]),
    ],
)
def test_a_class_leaves_out_devices_of_another(markers, found):
    names = ("Intel(R) AI Boost", "Intel(R) Arc(TM) Graphics (iGPU)", "AMD EPYC (OpenVINO CPU plugin)")
    devices = tuple(Device(family="openvino", ordinal=number, name=name) for number, name in enumerate(names))
    kept = wanted(_Test(*markers.split()), Probe(devices=devices))
    assert [device.name for device in kept.devices] == found
    none = wanted(_Test("gpu"), Probe(devices=devices[:1]))
    assert (none.devices, none.reason) == ((), "no GPU here: found Intel(R) AI Boost")
    absent = Probe(reason="openvino is not installed")
    assert wanted(_Test("gpu"), absent) == absent


class _Test:
    def __init__(self, *names):
        self._names = names

    def iter_markers(self):
        return [getattr(pytest.mark, name).mark for name in self._names]


@pytest.mark.parametrize(
    ("markers", "families"),
    [
        ("", []),
        ("cpu", ["cpu"]),
        ("cuda cpu", ["cpu", "cuda"]),
        ("gpu", ["cuda", "openvino"]),
        ("npu", ["tpu", "neuron", "openvino"]),
        ("gpu cuda", ["cuda"]),
        ("npu qualcomm", ["qualcomm"]),
        ("gpu cpu", ["cpu", "cuda", "openvino"]),
        ("gpu tpu", ["cuda", "tpu", "openvino"]),
    ],
)
def test_a_class_stands_for_families_unless_one_of_it_is_named(markers, families):
    assert families_of(_Test(*markers.split())) == families
