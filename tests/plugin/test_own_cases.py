"""Users' own callables through the npubench fixture: limits, wrong markers, and measurements that mean nothing."""

import json
import re
from pathlib import Path

import pytest

from .project import make_project

DOCUMENT = Path(__file__).parents[2] / "docs" / "own-cases.md"
LIMITS = """
import pytest

pytestmark = pytest.mark.openvino


@pytest.mark.npubench(max_median_s=60.0, rounds=7)
def test_under(npubench):
    assert len(npubench(sum, [1, 2], start=3).samples_s) == 7


@pytest.mark.npubench(max_mean_s=1e-12)
def test_over_mean(npubench):
    npubench(sum, [1, 2])


@pytest.mark.npubench(max_mean_s=60, max_median_s=1e-12)
def test_over_median(npubench):
    npubench(sum, [1, 2])


@pytest.mark.npubench(rounds=3)
class TestNearest:
    @pytest.mark.npubench(warmup=2)
    def test_keywords_add_up(self, npubench):
        assert len(npubench(len, ()).samples_s) == 3


@pytest.mark.npubench(max_mean=1.0)
def test_unknown_keyword(npubench):
    npubench(len, ())


@pytest.mark.npubench(0.5)
def test_positional(npubench):
    npubench(len, ())


@pytest.mark.npubench(rounds=0)
def test_no_rounds(npubench):
    npubench(len, ())


@pytest.mark.npubench(max_mean_s=-1)
def test_negative_limit(npubench):
    npubench(len, ())


def test_twice(npubench):
    npubench(len, ())
    npubench(len, ())


def test_raises(npubench):
    npubench(lambda: 1 / 0)
"""
COMPILES_ANEW = """
import jax
import jax.numpy as jnp
import pytest

counter = iter(range(1, 1000))


@pytest.mark.cpu
@pytest.mark.npubench(rounds=3, warmup=2)
def test_shapes_change(npubench):
    total = jax.jit(jnp.sum)
    npubench(lambda: total(jnp.ones(next(counter))))
"""


@pytest.fixture(scope="module")
def limits(tmp_path_factory):
    project = make_project(tmp_path_factory.mktemp("limits"))
    project.fake()
    project.write("test_own.py", LIMITS)
    return project, project.run("test_own.py", "-rA", "-W", "error", "--benchmark-json=out.json")


def failures(result: pytest.RunResult) -> dict[str, str]:
    rows = [line.partition(" - ") for line in result.outlines if line.startswith("FAILED ")]
    return {head.rpartition("::")[2]: text for head, _, text in rows}


def test_limits_pass_and_fail(limits):
    _, result = limits
    assert result.ret == 1
    passed = {line.rpartition("::")[2] for line in result.outlines if line.startswith("PASSED ")}
    assert passed == {"test_under", "test_keywords_add_up"}
    assert re.fullmatch(r"Failed: mean \S+ s > 1e-12 s", failures(result)["test_over_mean"])
    assert re.fullmatch(r"Failed: median \S+ s > 1e-12 s", failures(result)["test_over_median"])
    assert "errors" not in result.parseoutcomes()  # nor does pytest-benchmark add any for cases that failed early


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("test_unknown_keyword", "marker npubench does not take max_mean; allowed: max_mean_s, max_median_s, rounds"),
        ("test_positional", "marker npubench does not take a positional argument"),
        ("test_no_rounds", "marker npubench: rounds = 0; want an integer >= 1"),
        ("test_negative_limit", "marker npubench: max_mean_s = -1; want seconds above 0"),
        ("test_twice", "npubench was called twice; measure one thing a test"),
        ("test_raises", "ZeroDivisionError: division by zero"),
    ],
)
def test_a_wrong_use_is_named(limits, name, text):
    assert text in failures(limits[1])[name]


def test_results_are_journalled_and_mirrored(limits):
    project, _ = limits
    cases = project.cases()
    assert {key.rpartition("::")[2] for key in cases} == {
        "test_under",
        "test_over_mean",
        "test_over_median",
        "test_keywords_add_up",
        "test_twice",
    }
    under = cases["own/callable/fake-callable-b1-test_own.py::test_under"]
    assert (under["hardware"], under["device"], under["verdict"]["kind"]) == ("fake", "openvino:0", "no-baseline")
    assert cases["own/callable/fake-callable-b1-test_own.py::test_over_mean"]["verdict"]["kind"] == "failed"
    samples = under["metrics"]["call_s"]["samples"]
    assert len(samples) == 7
    assert under["measured_s"] == sorted(samples)[3]
    saved = {item["name"]: item for item in json.loads((project.root / "out.json").read_text())["benchmarks"]}
    assert saved["test_under"]["stats"]["data"] == samples
    assert "test_raises" not in saved


@pytest.mark.parametrize(
    ("markers", "found"),
    [("", "it has none of them"), ("@pytest.mark.cpu\n@pytest.mark.tpu\n", "it has the markers cpu, tpu")],
    ids=["none", "two"],
)
def test_it_needs_one_device_marker(project, markers, found):
    project.write("test_own.py", f"import pytest\n\n\n{markers}def test_own(npubench):\n    pass\n")
    result = project.run("test_own.py")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "test_own.py::test_own: a test with the npubench fixture needs exactly one of" in result.errlines[0]
    assert result.errlines[0].endswith(found)


def test_the_documents_example_and_a_call_that_compiles_anew(project):
    (example,) = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), flags=re.DOTALL)
    project.write("test_document.py", example)
    project.write("test_anew.py", COMPILES_ANEW)
    result = project.run("test_document.py", "test_anew.py", "-W", "error", "--npubench-require", "cpu")
    assert result.ret == 1
    result.assert_outcomes(passed=1, failed=1)
    (text,) = failures(result).values()
    assert re.match(
        r"Failed: invalid: \d+ compiles while samples were taken: compile before, or keep shapes fixed", text
    )
    case = project.cases()["own/callable/cpu-callable-b1-test_document.py::test_matmul"]
    assert len(case["metrics"]["call_s"]["samples"]) == 20


BUSY = """
import pytest

from pytest_npubench.errors import DeviceBusyError


@pytest.mark.openvino
def test_busy(npubench, monkeypatch):
    def busy(*_):
        raise DeviceBusyError("openvino:0 is in use by process 1")

    monkeypatch.setattr("pytest_npubench.plugin.own_case.device_lock", busy)
    npubench(lambda: 1)
"""


def test_a_busy_device_is_a_verdict(project):
    project.fake()
    project.write("test_own.py", BUSY)
    result = project.run("test_own.py")
    assert result.ret == 1
    assert "invalid: openvino:0 is in use by process 1" in result.stdout.str()
    assert "Traceback" not in result.stdout.str()
    (case,) = project.records("case")
    assert case["verdict"]["kind"] == "invalid"


CLOCK = """
import random
from pathlib import Path

from pytest_npubench.campaign import callable_timing

STARTS = Path("starts.txt")
STARTS.touch()
number = len(STARTS.read_text().splitlines())
STARTS.open("a").write("a process\\n")
now_s = 0.0


def work(name, duration_s):
    global now_s
    now_s += duration_s * (1 + 0.003 * random.Random(f"{number}/{name}").gauss(0.0, 1.0))


callable_timing.perf_counter = lambda: now_s  # a call takes what it says, however busy the machine
"""
TIMED = """
import os

import pytest

import clock

pytestmark = pytest.mark.openvino


def test_steady(npubench):
    npubench(clock.work, "steady", 0.010)


def test_slowing(npubench):
    npubench(clock.work, "slowing", 0.020 * float(os.environ.get("TIMES", "1")))
"""


@pytest.fixture(scope="module")
def timed(tmp_path_factory):
    """Four accepted nights of two own tests, whose calls take 10 and 20 ms by a clock of their own."""
    project = make_project(tmp_path_factory.mktemp("timed"))
    project.fake("throttled=os.environ.get('THROTTLED') == '1'")
    project.in_front("")
    project.write("clock.py", CLOCK)
    project.write("test_own.py", TIMED)
    for _ in range(4):
        assert project.run("test_own.py", "--npubench-accept").ret == 0
    return project


def starts(project) -> int:
    return len((project.root / "starts.txt").read_text().splitlines())


def own(project, name: str):
    return project.cases()[f"own/callable/fake-callable-b1-test_own.py::{name}"]


def test_an_own_case_that_became_slower_is_measured_again_and_regressed(timed, tmp_path):
    project = timed.copy(tmp_path / "project")
    result = project.run("test_own.py", env={"TIMES": "1.1"})
    assert result.ret == 1
    (text,) = failures(result).values()
    assert text.startswith("Failed: regressed: call_s: ")
    assert starts(project) == starts(timed) + 3
    metric = own(project, "test_slowing")["metrics"]["call_s"]
    assert [sorted(samples)[15] for samples in metric["processes"]] == pytest.approx([0.022] * 3, rel=0.015)
    assert metric["verdict"]["ratio"] == pytest.approx(1.1, abs=0.015)
    assert own(project, "test_steady")["verdict"]["kind"] == "unchanged"


def test_an_own_case_on_a_throttled_device_is_invalid(timed, tmp_path):
    project = timed.copy(tmp_path / "project")
    result = project.run("test_own.py", env={"THROTTLED": "1"})
    assert result.ret == 1
    reason = "invalid: 3 of 3 attempts disturbed: throttled: hw_thermal_slowdown"
    assert set(failures(result).values()) == {f"Failed: {reason}"}
    assert "verdict" not in own(project, "test_steady")["metrics"]["call_s"]


def test_a_call_that_takes_no_time_at_all_has_a_verdict(timed, tmp_path):
    """A ratio to it says nothing; the run goes on."""
    project = timed.copy(tmp_path / "project")
    result = project.run("test_own.py", env={"TIMES": "0"})
    assert result.ret == 1
    (text,) = failures(result).values()
    assert text.startswith("Failed: invalid: call_s: process 0: its better quartile is 0")
    assert own(project, "test_slowing")["verdict"]["kind"] == "invalid"
