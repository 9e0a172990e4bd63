"""Users' own callables through the npubench fixture: limits, wrong markers, and measurements that mean nothing."""

import json
import re
import time
from pathlib import Path

import pytest

from pytest_npubench.backends.protocol import Device
from pytest_npubench.campaign.lock import device_lock
from pytest_npubench.plugin.outcome import ExitStatus

from .project import make_project, summary, wait_for

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


@pytest.mark.npubench(iterations=2.5)
def test_half_a_call(npubench):
    npubench(len, ())


@pytest.mark.npubench(setup=3)
def test_no_setup(npubench):
    npubench(len, ())


@pytest.mark.npubench(warmup=0, iterations=2)
def test_two_first_calls(npubench):
    npubench(len, ())


@pytest.mark.npubench(max_p95_s=1, rounds=19)
def test_too_few_for_a_percentile(npubench):
    npubench(len, ())


@pytest.mark.npubench(items="many")
def test_items_in_words(npubench):
    npubench(len, ())


@pytest.mark.npubench(max_p90_s=1e-12, max_p99_s=60, rounds=100, warmup=1)
def test_over_p90(npubench):
    npubench(sum, [1, 2])


@pytest.mark.npubench(setup=lambda: ([3, 1, 2],), items=3, bytes=24, rounds=5, warmup=0)
def test_fresh(npubench):
    def sort(numbers):
        assert numbers == [3, 1, 2]
        numbers.sort()

    assert len(npubench(sort).samples_s) == 5


@pytest.mark.npubench(iterations=3)
def test_three_calls_a_sample(npubench):
    npubench(len, ())


def test_generator(npubench):
    npubench(lambda: (number for number in ()))


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


def failures(result: pytest.RunResult, outcome: str = "FAILED") -> dict[str, str]:
    return {node.rpartition("::")[2]: text for node, text in summary(result, outcome).items()}


def test_limits_pass_and_fail(limits):
    _, result = limits
    assert result.ret == 1
    assert failures(result, "PASSED").keys() == {
        *("test_under", "test_keywords_add_up", "test_fresh", "test_three_calls_a_sample")
    }
    assert re.fullmatch(r"Failed: mean \S+ s > 1e-12 s", failures(result)["test_over_mean"])
    assert re.fullmatch(r"Failed: median \S+ s > 1e-12 s", failures(result)["test_over_median"])
    assert re.fullmatch(r"Failed: p90 \S+ s > 1e-12 s", failures(result)["test_over_p90"])
    # a wrong marker fails its test at the setup; nor does pytest-benchmark add any for cases that failed early
    assert result.parseoutcomes()["errors"] == 9


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "test_unknown_keyword",
            "marker npubench does not take max_mean; allowed: bytes, items, iterations, max_mean_s, max_median_",
        ),
        ("test_positional", "marker npubench does not take a positional argument"),
        ("test_no_rounds", "marker npubench: rounds = 0; want an integer >= 1"),
        ("test_negative_limit", "marker npubench: max_mean_s = -1; want seconds above 0"),
        ("test_no_setup", "marker npubench: setup = 3; want a function that returns a tuple of arguments"),
        ("test_two_first_calls", "marker npubench: iterations = 2; with setup or warmup=0 a sample is one call"),
        ("test_too_few_for_a_percentile", "marker npubench: max_p95_s with rounds = 19; want 20 rounds or more"),
        ("test_items_in_words", "marker npubench: items = 'many'; want a number above 0"),
        ("test_half_a_call", "marker npubench: iterations = 2.5; want an integer >= 1"),
    ],
)
def test_a_wrong_marker_is_named_before_anything_is_measured(limits, name, text):
    assert text in failures(limits[1], "ERROR")[name]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("test_twice", "npubench was called twice; measure one thing a test"),
        ("test_raises", "ZeroDivisionError: division by zero"),
        ("test_generator", "Failed: invalid: the measured callable returned an iterator (generator), which does"),
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
        "test_over_p90",
        "test_fresh",
        "test_keywords_add_up",
        "test_three_calls_a_sample",
        "test_generator",
        "test_twice",
    }
    under = cases["own/callable/fake-callable-b1-test_own.py::test_under"]
    assert (under["hardware"], under["device"], under["verdict"]["kind"]) == ("fake", "openvino:0", "no-baseline")
    assert cases["own/callable/fake-callable-b1-test_own.py::test_over_mean"]["verdict"]["kind"] == "failed"
    samples = under["metrics"]["call_s"]["samples"]
    assert len(samples) == 7
    assert under["measured_s"] == sorted(samples)[3]
    metrics = cases["own/callable/fake-callable-b1-test_own.py::test_fresh"]["metrics"]
    for name, done, unit in (("items_per_s", 3, "items/s"), ("bytes_per_s", 24, "B/s")):
        assert metrics[name]["value"] * metrics["call_s"]["value"] == pytest.approx(done)
        assert (metrics[name]["unit"], metrics[name]["better"]) == (unit, "higher")
    saved = {item["name"]: item for item in json.loads((project.root / "out.json").read_text())["benchmarks"]}
    assert saved["test_under"]["stats"]["data"] == samples
    assert "test_raises" not in saved


def test_calls_that_make_up_a_sample_are_on_record_and_shown(limits):
    project, result = limits
    details = {key.rpartition("::")[2]: case["detail"] for key, case in project.cases().items()}
    assert details["test_three_calls_a_sample"]["iterations"] == 3
    found = details["test_under"]["iterations"]
    assert found in {2**power for power in range(1, 13)}  # sum([1, 2]) takes less than 10 us on any machine
    assert 0 < details["test_under"]["overhead_s"] < 1e-4
    case = project.cases()["own/callable/fake-callable-b1-test_own.py::test_under"]
    assert case["what"] == f"one call, mean of {found}"
    assert any(line.startswith("several calls a sample: ") for line in result.outlines)
    saved = {item["name"]: item for item in json.loads((project.root / "out.json").read_text())["benchmarks"]}
    assert saved["test_three_calls_a_sample"]["stats"]["iterations"] == 3
    assert saved["test_under"]["stats"]["iterations"] == found


def test_a_fixed_number_of_calls_is_another_measurement(limits):
    """A found one is not: it may differ from run to run."""
    from pytest_npubench.core.case import Case

    for name, settings in (
        ("test_three_calls_a_sample", {"iterations": 3}),
        ("test_fresh", {"setup": True, "warmup": 0}),
        ("test_over_p90", None),
        ("test_under", None),
    ):
        record = limits[0].cases()[f"own/callable/fake-callable-b1-test_own.py::{name}"]
        case = Case(
            suite="own",
            kind="callable",
            hardware="fake",
            family="openvino",
            model="callable",
            batch_size=1,
            axes=(("test", f"test_own.py::{name}"),),
        )
        assert record["digest"] == case.digest(settings)


def test_the_documents_example_and_a_call_that_compiles_anew(project):
    project.with_shipped()
    (example,) = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), flags=re.DOTALL)
    project.write("test_document.py", example)
    project.write("test_anew.py", COMPILES_ANEW)
    result = project.run("test_document.py", "test_anew.py", "-W", "error", "--npubench-require", "cpu")
    assert result.ret == ExitStatus.INVALID
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

    monkeypatch.setattr("pytest_npubench.plugin.campaigns.device_lock", busy)
    npubench(lambda: 1)
"""


def test_a_busy_device_is_a_verdict(project):
    project.fake()
    project.write("test_own.py", BUSY)
    result = project.run("test_own.py")
    assert result.ret == ExitStatus.INVALID
    assert "invalid: openvino:0 is in use by process 1" in result.stdout.str()
    assert "Traceback" not in result.stdout.str()
    (case,) = project.records("case")
    assert case["verdict"]["kind"] == "invalid"


CLOCK = """
import os
import random
from pathlib import Path

from dataclasses import replace

from pytest_npubench.core import families
from pytest_npubench.campaign import repeated_call

STARTS = Path("starts.txt")
STARTS.touch()
number = len(STARTS.read_text().splitlines())
STARTS.open("a").write("a process\\n")
now_s = 0.0


def work(name, duration_s):
    global now_s
    now_s += duration_s * (1 + 0.003 * random.Random(f"{number}/{name}").gauss(0.0, 1.0))


repeated_call.perf_counter = lambda: now_s  # a call takes what it says, however busy the machine
if "KEPT" in os.environ:
    families.OWN["openvino"] = replace(families.OWN["openvino"], one_process=True)
"""
NO_TPU = "fake_device.FakeBackend(fake_device.Faults(absent='fake absence of tpu'), family='tpu')"
TIMED = """
import os

import pytest

import clock

pytestmark = pytest.mark.openvino


def test_steady(npubench):
    npubench(clock.work, "steady", 0.010)


@pytest.mark.tpu
def test_slowing(npubench):
    npubench(clock.work, "slowing", 0.020 * float(os.environ.get("TIMES", "1")))
"""


@pytest.fixture(scope="module")
def timed(tmp_path_factory):
    """Four accepted nights of two own tests, whose calls take 10 and 20 ms by a clock of their own."""
    project = make_project(tmp_path_factory.mktemp("timed"))
    project.fake("throttled=float(os.environ.get('THROTTLED', '0'))")
    project.in_front("")
    conftest = (project.root / "conftest.py").read_text()
    project.write("conftest.py", conftest.replace("return [fake_device", f"return [{NO_TPU}, fake_device"))
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
    metric = own(project, "test_slowing[openvino]")["metrics"]["call_s"]
    assert [sorted(samples)[15] for samples in metric["processes"]] == pytest.approx([0.022] * 3, rel=0.015)
    assert metric["verdict"]["ratio"] == pytest.approx(1.1, abs=0.015)
    assert own(project, "test_steady")["verdict"]["kind"] == "unchanged"


HANGS = """
import subprocess, time


def hang(place):
    if os.environ.get("HANGS") == place and "NPUBENCH_REMEASURING" in os.environ:
        worker = subprocess.Popen(["sleep", "300"], start_new_session=True)
        with open("hanging.txt", "w") as file:
            file.write(f"{os.getpid()} {worker.pid}\\n")
        time.sleep(300)


hang("at its start")
"""


@pytest.mark.parametrize("place", ["at its start", "in a call"])
def test_a_killed_run_takes_the_process_that_measures_again_along(timed, tmp_path, place):
    project = timed.copy(tmp_path / "project")
    clock = (project.root / "clock.py").read_text()
    project.write("clock.py", "import os\n" + HANGS + clock.replace("def work(", "def counted_work("))
    with (project.root / "clock.py").open("a") as file:
        file.write("\n\ndef work(*values):\n    hang('in a call')\n    return counted_work(*values)\n")
    process = project.start("test_own.py", "-m", "openvino", "-k", "slowing", env={"TIMES": "1.1", "HANGS": place})
    hanging = project.root / "hanging.txt"
    wait_for(lambda: hanging.exists() and hanging.read_text().endswith("\n"), process)
    process.kill()
    process.communicate()
    pids = [int(text) for text in hanging.read_text().split()]
    deadline_s = time.monotonic() + 60
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < deadline_s, pids
        time.sleep(0.02)
    with device_lock([Device(family="openvino", ordinal=0, name="Fake accelerator")], 0.0):
        pass


def test_on_a_device_that_the_process_keeps_the_reason_says_what_to_do(timed, tmp_path):
    project = timed.copy(tmp_path / "project")
    result = project.run("test_own.py", "-m", "openvino", env={"TIMES": "1.1", "KEPT": "1"})
    reason = own(project, "test_slowing[openvino]")["verdict"]["reason"]
    assert "this process keeps the openvino until it exits" in reason
    assert "run the test once more by itself (pytest 'test_own.py::test_slowing[openvino]')" in reason
    assert starts(project) == starts(timed) + 1
    alone = project.run("test_own.py::test_slowing[openvino]", "--npubench-remeasure", "0", env={"TIMES": "1.1"})
    assert alone.ret == 1
    assert result.parseoutcomes()["deselected"] == 1


def test_an_own_case_on_a_throttled_device_is_invalid(timed, tmp_path):
    project = timed.copy(tmp_path / "project")
    result = project.run("test_own.py", env={"THROTTLED": "inf"})
    assert result.ret == ExitStatus.DISTURBED
    reason = "invalid: 3 of 3 attempts disturbed: throttled: hw_thermal_slowdown"
    assert set(failures(result).values()) == {f"Failed: {reason}"}
    assert "verdict" not in own(project, "test_steady")["metrics"]["call_s"]


def test_a_night_that_was_disturbed_in_part_is_judged_by_itself_and_is_no_reference(timed, tmp_path):
    """The first of two attempts was on a throttled device."""
    project = timed.copy(tmp_path / "project")
    assert project.run("test_own.py", "--npubench-accept", env={"THROTTLED": "2"}).ret == 0
    record = own(project, "test_steady")
    assert record["is_partly_disturbed"] is True
    reason = record["metrics"]["call_s"]["verdict"]["reason"]
    assert "4 accepted sessions" in reason
    assert "something else used the device" in reason
    (path,) = (project.root / "baselines").glob("*/own-*.json")
    case = json.loads(path.read_text())["cases"][record["case"]]
    assert [session.get("is_disturbed") for session in case["sessions"]] == [None] * 4 + [True]
    assert project.run("test_own.py").ret == 0
    assert "than 4 accepted sessions" in own(project, "test_steady")["metrics"]["call_s"]["verdict"]["reason"]


def test_a_call_that_takes_no_time_at_all_has_a_verdict(timed, tmp_path):
    """A ratio to it says nothing; the run goes on."""
    project = timed.copy(tmp_path / "project")
    result = project.run("test_own.py", env={"TIMES": "0"})
    assert result.ret == ExitStatus.INVALID
    (text,) = failures(result).values()
    assert text.startswith("Failed: invalid: call_s: process 0: its better quartile is 0")
    assert own(project, "test_slowing[openvino]")["verdict"]["kind"] == "invalid"


RESULTS = """
import pytest

pytestmark = [pytest.mark.cpu, pytest.mark.npubench(rounds=2)]


def test_result(npubench):
    calls = []
    npubench(lambda: calls.append(1) or len(calls))
    assert npubench.result == 1


def test_both(npubench):
    result, samples = npubench.measure(sorted, [3, 1, 2])
    assert result == [1, 2, 3] and len(samples.samples_s) == 2


def test_awaited(npubench):
    async def seven():
        return 7

    assert npubench.measure(seven)[0] == 7


def test_not_called(npubench):
    pass


@pytest.mark.parametrize("number", [1, 2])
def test_numbers(npubench, number):
    npubench(abs, number)


def test_two_fixtures(npubench, benchmark):
    npubench(abs, 1)


@pytest.fixture
def timed(benchmark):
    return benchmark


def test_a_fixture_of_theirs(npubench, timed):
    npubench(abs, 1)


def test_their_fixture_by_name(npubench, request):
    request.getfixturevalue("benchmark")(abs, 1)
"""


def test_a_result_is_kept_and_what_measures_nothing_or_twice_is_said(project):
    project.write("test_results.py", RESULTS)
    result = project.run("test_results.py", "--npubench-other-load=1")
    result.assert_outcomes(passed=6, failed=1, errors=2, warnings=1)
    result.stdout.fnmatch_lines(["*test_not_called*", "*takes npubench and does not call it: nothing was measured*"])
    for name in ("two_fixtures", "a_fixture_of_theirs"):
        result.stdout.fnmatch_lines([f"*test_{name}: takes npubench and benchmark, which both measure*"])
    assert "this test: takes npubench and benchmark, which both measure" in result.stdout.str()
    result = project.run("test_results.py", "-k", "not_called", "-W", "error")
    result.assert_outcomes(failed=1)
    assert "INTERNALERROR" not in result.stdout.str()


ENDED = """
import signal
import time

import pytest

pytestmark = [pytest.mark.cpu, pytest.mark.npubench(rounds=2)]


def end(*_):
    pytest.fail("Timeout (>0.1s) from pytest-timeout.")  # what its signal does


def wrong(*_):
    raise ValueError("a wrong answer")


def wait():
    signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    time.sleep(20)


def test_ended(npubench):
    npubench(wait)


def test_wrong(npubench):
    npubench(wrong)


def test_both(npubench):
    npubench.measure(wrong)


def test_says_no(npubench):
    npubench(lambda: pytest.fail("it is no timeout"))
"""


def test_a_test_that_is_ended_by_its_timeout_is_invalid_and_tracebacks_have_no_frames_of_ours(project):
    project.write("test_ended.py", ENDED)
    result = project.run("test_ended.py", "--npubench-other-load=1")
    result.assert_outcomes(failed=4)
    text = result.stdout.str()
    assert "verdicts: 1 invalid" in text
    assert "ended: invalid: ended while it was measured: Timeout (>0.1s) from pytest-timeout." in text
    assert "ValueError: a wrong answer" in text
    assert "pytest_npubench/" not in text.partition("= npubench =")[0]
