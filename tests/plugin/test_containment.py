"""What goes wrong ends the case it belongs to, with its reason in one line; the others are judged."""

import re
import signal
import subprocess
import sys

import pytest

from pytest_npubench.plugin.outcome import ExitStatus
from pytest_npubench.store.journal import read_journal

from .project import summary

HOLD = """
import sys
from pytest_npubench.backends.protocol import Device
from pytest_npubench.campaign.lock import device_lock

with device_lock([Device(family="openvino", ordinal=0, name="Fake accelerator")], 1.0):
    print("held", flush=True)
    sys.stdin.read()
"""
FAULTS = """
def fail(engine, requests):
    if requests[0].input_tokens == 31:
        raise OSError("the fake accelerator lost a packet\\nand a second line")


def alter(requests, run):
    if requests[0].input_tokens == 15:
        return dataclasses.replace(run, e2e_s=float("nan"))
    if requests[0].input_tokens == 55 and requests[0].output_tokens > 1:  # the longer profile point of bucket 64
        first, second, *steps = run.segments
        moved = [dataclasses.replace(step, bucket=32) for step in steps]
        return dataclasses.replace(run, segments=(first, second, *moved))
    return run

"""


def failed(result: pytest.RunResult) -> dict[str, str]:
    """Test name -> what its FAILED line says."""
    rows = summary(result, "FAILED").items()
    return {node.partition("::")[2]: text.removeprefix("Failed: ") for node, text in rows}


def test_only_the_cases_of_broken_points_are_invalid(project):
    project.fake("on_run=fail, alter=alter, noise=0.001", workloads=["lengths.csv", "short.csv"])
    project.write("short.csv", "input_tokens,output_tokens\n3,4\n5,6\n7,8\n")
    project.write("conftest.py", FAULTS + (project.root / "conftest.py").read_text())
    result = project.run("-k", "fake", "-W", "error")
    assert result.ret == ExitStatus.INVALID
    reasons = failed(result)
    assert reasons.pop("test_steps[fake-mini-llama-b2-bucket32]") == (
        "invalid: step/31: OSError: the fake accelerator lost a packet"
    )
    nan = reasons.pop("test_steps[fake-mini-llama-b2-bucket16]")
    assert nan.startswith("invalid: step/15: sample 0 of 1 is nan; want a finite number of seconds")
    impure = "invalid: profile point of bucket 64: 1 of decode ran in bucket 32; want every part in 64"
    # the point belongs to three cases; those of the other workload need bucket 16 alone
    for name in ("profile[fake-mini-llama-b2-bucket64]", "prediction[fake-mini-llama-b2-lengths.csv]"):
        assert reasons.pop(f"test_{name}") == impure
    assert reasons == {"test_mean_error[fake-mini-llama-b2]": impure}
    result.assert_outcomes(passed=4, failed=5, deselected=result.parseoutcomes()["deselected"])
    assert "Traceback" not in result.stdout.str()
    for record in project.records("round"):
        assert record["failures"].keys() == {"step/31", "step/15", "profile/64/9"}
        assert not record["failures"].keys() & record["points"].keys()


def test_a_point_that_fails_in_a_round_leaves_its_earlier_samples_unused(project):
    counting = (
        "def fail(engine, requests, counts=[]):\n    counts.append(0)\n    if len(counts) > 60:\n        1 / 0\n\n"
    )
    project.fake("on_run=fail")
    project.write("conftest.py", counting + (project.root / "conftest.py").read_text())
    result = project.run("-k", "fake")
    assert result.ret == ExitStatus.INVALID
    reasons = failed(result)
    assert len(reasons) == 8
    assert all("ZeroDivisionError: division by zero" in text for text in reasons.values())
    assert project.records("end")[0]["counts"] == {"invalid": 8}


def test_a_compile_after_warm_up_fails_every_case_of_the_campaign(project):
    late = "def late(engine, requests):\n    engine.runtime.num_late += requests[0].input_tokens == 31\n\n"
    project.fake("on_run=late")
    project.write("conftest.py", late + (project.root / "conftest.py").read_text())
    result = project.run("-k", "fake and (steps or profile)")
    assert result.ret == 1
    (samples,) = {len(r["points"]["step/31"]) for r in project.records("round")}
    reasons = failed(result)
    assert len(reasons) == 6
    assert set(reasons.values()) == {f"{2 * samples} compiles after warm-up: its samples may hold compile time"}


def test_an_engine_that_cannot_be_made_makes_every_case_invalid(project):
    project.fake("out_of_memory=True")
    result = project.run("-k", "fake")
    assert result.ret == ExitStatus.INVALID
    reason = "invalid: fake-mini-llama-b2: MemoryError: the fake accelerator has no memory left"
    reasons = failed(result)
    assert len(reasons) == 8
    assert set(reasons.values()) == {reason}
    assert {record["verdict"]["kind"] for record in project.records("case")} == {"invalid"}
    assert all(record["fingerprint"] for record in project.records("case"))


def test_a_workload_that_is_not_there_is_one_cases_trouble(project):
    project.fake(workloads=["lengths.csv", "lentghs.csv"])
    result = project.run("-k", "fake and not mean_error")
    reasons = failed(result)
    assert reasons.keys() == {"test_prediction[fake-mini-llama-b2-lentghs.csv]"}
    assert "no workload is named 'lentghs.csv'" in next(iter(reasons.values()))
    result.assert_outcomes(passed=7, failed=1, deselected=result.parseoutcomes()["deselected"])


def test_a_device_in_use_names_its_holder_and_is_free_once_that_is_killed(project):
    project.fake()
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD],
        env=project.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout.readline() == "held\n"
        select = ("-k", "fake and profile and bucket16", "--npubench-lock-timeout", "0.1")
        result = project.run(*select, "--npubench-journal", "busy.jsonl")
        assert result.ret == ExitStatus.INVALID
        (reason,) = failed(result).values()
        assert re.match(
            rf"invalid: openvino:0 \(Fake accelerator\) is in use by process {holder.pid} \(\S+\) of ", reason
        )
        assert reason.endswith("waited 0.1 s (--npubench-lock-timeout waits longer, -1 for ever)")
        (session,) = read_journal(project.root / "busy.jsonl").sessions
        kinds = [record["record"] for record in session.records]
        assert kinds == ["case", "outcome", "end"]  # who holds it alone can open it
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        assert project.run(*select).ret == 0
    finally:
        holder.kill()
        holder.communicate()
