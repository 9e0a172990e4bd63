"""Users' own callables through the npubench fixture: limits, wrong markers, and measurements that mean nothing."""

import json
import re
from pathlib import Path

import pytest

from pytest_npubench.plugin.outcome import ExitStatus

from .project import failures, make_project

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


@pytest.mark.npubench(max_p90_s=1e-12, max_p99_s=60, rounds=100, warmup=1)
def test_over_p90(npubench):
    npubench(sum, [1, 2])


@pytest.mark.npubench(setup=lambda: ([3, 1, 2],), items=3, bytes=24, rounds=5, warmup=0)
def test_fresh(npubench):
    def sort(numbers):
        assert numbers == [3, 1, 2]
        numbers.sort()

    assert len(npubench(sort).samples_s) == 5


@pytest.mark.npubench(memory=True, rounds=3, setup=lambda: (bytearray(1 << 20),))
def test_memory(npubench):
    npubench(lambda buffer: len(buffer * 2))


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
WRONG_MARKERS = {
    "max_mean=1.0": "does not take max_mean; allowed: bytes, items, iterations, max_mean_s, max_median_",
    "memory='yes'": "memory = 'yes'; want True or False",
    "0.5": "does not take a positional argument",
    "rounds=0": "rounds = 0; want an integer >= 1",
    "max_mean_s=-1": "max_mean_s = -1; want seconds above 0",
    "setup=3": "setup = 3; want a function that returns a tuple of arguments",
    "warmup=0, iterations=2": "iterations = 2; with setup or warmup=0 a sample is one call",
    "max_p95_s=1, rounds=19": "max_p95_s with rounds = 19; want 20 rounds or more",
    "items='many'": "items = 'many'; want a number above 0",
    "max_mean_s=True": "max_mean_s = True; want seconds above 0",
    "iterations=2.5": "iterations = 2.5; want an integer >= 1",
}
WRONG_MARKER = """

@pytest.mark.npubench({arguments})
def test_wrong_marker_{index}(npubench):
    npubench(len, ())
"""
PASSED = {"test_under", "test_memory", "test_keywords_add_up", "test_fresh", "test_three_calls_a_sample"}
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
    wrong = (WRONG_MARKER.format(arguments=marker, index=index) for index, marker in enumerate(WRONG_MARKERS))
    project.write("test_own.py", LIMITS + "".join(wrong))
    return project, project.run("test_own.py", "-rA", "-W", "error", "--benchmark-json=out.json")


def test_limits_pass_and_fail(limits):
    _, result = limits
    assert result.ret == 1
    assert failures(result, "PASSED").keys() == PASSED
    for name in ("mean", "median", "p90"):
        assert re.fullmatch(rf"Failed: {name} \S+ s > 1e-12 s", failures(result)[f"test_over_{name}"])
    # a wrong marker fails its test at the setup; nor does pytest-benchmark add any for cases that failed early
    assert result.parseoutcomes()["errors"] == len(WRONG_MARKERS)


@pytest.mark.parametrize(("index", "text"), list(enumerate(WRONG_MARKERS.values())))
def test_a_wrong_marker_is_named_before_anything_is_measured(limits, index, text):
    error = failures(limits[1], "ERROR")[f"test_wrong_marker_{index}"]
    assert "marker npubench" in error
    assert text in error


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
    others = {"test_over_mean", "test_over_median", "test_over_p90", "test_generator", "test_twice"}
    assert {key.rpartition("::")[2] for key in cases} == PASSED | others
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
    of_memory = cases["own/callable/fake-callable-b1-test_own.py::test_memory"]
    assert of_memory["what"] == "one call; device_peak_bytes unavailable: nothing counts this device's memory"
    assert under["what"].startswith("one call, mean of ") or under["what"] == "one call"
    peak = of_memory["metrics"]["python_peak_bytes"]
    assert 2 << 20 <= peak["value"] < (2 << 20) + 2000  # what the call makes, without what its setup made
    assert (peak["unit"], peak["better"], peak["gate"]) == ("B", "lower", "exact")
    assert "python_peak_bytes" not in under["metrics"]
    saved = {item["name"]: item for item in json.loads((project.root / "out.json").read_text())["benchmarks"]}
    assert saved["test_under"]["stats"]["data"] == samples
    assert "test_raises" not in saved


def test_calls_that_make_up_a_sample_are_on_record_and_shown(limits):
    project, result = limits
    details = {key.rpartition("::")[2]: case["detail"] for key, case in project.cases().items()}
    assert details["test_three_calls_a_sample"]["iterations"] == 3
    found = details["test_under"]["iterations"]
    assert found in {2**power for power in range(1, 13)}  # sum([1, 2]) takes less than 10 us on any machine
    case = project.cases()["own/callable/fake-callable-b1-test_own.py::test_under"]
    assert 0 < details["test_under"]["overhead_s"] < max(case["metrics"]["call_s"]["samples"])
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


def test_no_callable(npubench):
    npubench(3)


def test_other_arguments(npubench):
    npubench(abs, 1, 2)
"""


def test_a_test_that_is_ended_by_its_timeout_is_invalid_and_tracebacks_have_no_frames_of_ours(project):
    project.write("test_ended.py", ENDED)
    result = project.run("test_ended.py", "--npubench-other-load=1")
    result.assert_outcomes(failed=6)
    text = result.stdout.str()
    assert "verdicts: 1 invalid" in text
    assert "ended: invalid: ended while it was measured: Timeout (>0.1s) from pytest-timeout." in text
    assert "ValueError: a wrong answer" in text
    assert "pytest_npubench/" not in text.partition("= npubench =")[0]


def test_before_a_long_run_own_cases_count_by_what_they_took(tmp_path):
    project = make_project(tmp_path)
    project.fake()
    test = "import pytest\n\n\n@pytest.mark.openvino\ndef test_{}(npubench):\n    npubench(len, ())\n"
    project.write("test_first.py", test.format("first"))
    first = project.run("test_first.py", "--npubench-profile=nightly")
    assert not [line for line in first.outlines if line.startswith("npubench: ")]
    project.write("test_second.py", test.format("second"))
    two = ("test_first.py", "test_second.py", "test_profile.py")
    said = [project.run(*paths, "-k", "first or second or fake", "--npubench-profile=nightly") for paths in (two, two)]
    (line,), (again,) = ([line for line in run.outlines if line.startswith("npubench: ")] for run in said)
    assert re.fullmatch(
        "npubench: 1 campaign and 1 own case, about .* by its budget, without compiling; 1 own case not counted", line
    )
    assert re.fullmatch(
        "npubench: 1 campaign and 2 own cases, about .* as in earlier runs, with what they compiled", again
    )
