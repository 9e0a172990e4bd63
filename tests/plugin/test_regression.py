"""The gate in a run: accepted nights, then a night on which something changed; the fake accelerator's times are known.

In bucket 32 a prefill takes 3.2 ms and a decode step 0.32 ms. A profile case is the only one with a batch of two.
"""

import json
import re
import xml.etree.ElementTree as ElementTree

import pytest

from pytest_npubench.plugin.regression import with_missing
from pytest_npubench.store.accepted_session import AcceptedSession, KeptSamples
from pytest_npubench.verdict import Verdict, VerdictKind
from pytest_npubench.verdict.result import Judgement, Metric

from .conftest import COMPARED
from .project import summary

CHANGED = """

def changed(requests, run):
    if "NPUBENCH_REMEASURING" in os.environ:
        with open("again.txt", "a") as file:
            file.write(f"{{len(requests)}} in bucket {{run.segments[0].bucket}}\\n")
    if len(requests) == 2 and run.segments[0].bucket in {buckets} and {when}:
        return dataclasses.replace(run, e2e_s={factor} * run.e2e_s)
    return run

"""
SLOW_CASE = "buckets/profile/fake-mini-llama-b2-bucket32"
SLOW_TEST = "test_profile.py::test_profile[fake-mini-llama-b2-bucket32]"
TIMES = ("ttft_s", "tbt_s")
BROKEN_AGAIN = """

def broken(engine, requests):
    if "NPUBENCH_REMEASURING" in os.environ and {when}:
        raise OSError("the fake accelerator lost a packet")

"""


def changed(factor: float, buckets: str = "{32}", when: str = "True") -> str:
    return CHANGED.format(factor=factor, buckets=buckets, when=when)


@pytest.fixture(scope="module")
def slow(nights, tmp_path_factory):
    """The night on which the profile case of bucket 32 takes 10 % longer, in a project whose ini file asks for more
    than a fresh process can use."""
    project = nights.after(tmp_path_factory.mktemp("slow") / "project", changed(1.1), "alter=changed")
    ini = "addopts = --benchmark-only --npubench-accept\nnpubench_history = history.db\nnpubench_require = fake\n"
    project.write("pytest.ini", f"[pytest]\n{ini}")
    return project, project.run(*COMPARED, "-W", "error", "--junitxml=junit.xml", "--benchmark-json=benchmark.json")


def test_below_three_accepted_sessions_there_is_no_baseline(nights):
    for number in range(3):
        for record in nights.project.cases(session=number).values():
            assert record["verdict"]["kind"] == "no-baseline"
            count = f"{number} accepted session{'' if number == 1 else 's'}"
            assert record["verdict"]["reason"].endswith(f"; {count} on this stack; want 3 or more")
            assert {metric["verdict"]["kind"] for metric in record["metrics"].values()} == {"no-baseline"}
    assert [result.ret for result in nights.results] == [0, 0, 0, 0]


def test_from_three_on_a_night_like_the_others_is_unchanged(nights):
    records = nights.project.cases(session=3)
    assert len(records) == 6
    for record in records.values():
        assert record["verdict"]["kind"] == "unchanged"
        for metric in record["metrics"].values():
            low, high = metric["verdict"]["interval"]
            assert 0.97 < low <= metric["verdict"]["ratio"] <= high < 1.03
            assert metric["verdict"]["mde"] > (0.10 if metric == record["metrics"].get("compile_s") else 0.01) - 1e-9
    assert set(nights.project.engines()) == {"first"}
    assert nights.project.records("end", session=3)[0]["counts"] == {"unchanged": 6}


def test_a_slow_case_fails_with_one_clean_line(slow):
    project, result = slow
    assert result.ret == 1
    result.assert_outcomes(passed=5, failed=1, deselected=result.parseoutcomes()["deselected"])
    ((test, text),) = summary(result, "FAILED").items()
    assert test == SLOW_TEST
    assert text.startswith("Failed: regressed: ttft_s: ")
    reason = project.cases()[SLOW_CASE]["verdict"]["reason"]
    assert f"regressed: {reason}" in result.outlines
    assert reason.startswith("ttft_s: ")
    assert "; tbt_s: " in reason
    text = result.stdout.str() + result.stderr.str()
    assert "Traceback" not in text
    assert ".py:" not in text.partition("FAILURES")[2].partition("= short test summary")[0]


def test_the_others_do_not_shift(slow, nights):
    project, _ = slow
    verdicts = project.kinds()
    assert verdicts.pop(SLOW_CASE) == "regressed"
    assert set(verdicts.values()) == {"unchanged"}
    for case in verdicts:
        for metric in project.cases()[case]["metrics"].values():
            assert metric["verdict"]["ratio"] == pytest.approx(1.0, abs=0.015)
            assert "processes" not in metric


def test_only_the_suspect_is_measured_again_and_its_record_has_all_three_processes(slow):
    project, _ = slow
    assert project.engines() == ["first"] * 5 + ["again"] * 2
    assert set((project.root / "again.txt").read_text().splitlines()) == {"2 in bucket 32"}
    metrics = project.cases()[SLOW_CASE]["metrics"]
    expected = {"ttft_s": 1.1 * 3.2e-3, "tbt_s": 1.1 * 0.32e-3, "compile_s": 0.5}
    for name, value in expected.items():
        processes = metrics[name]["processes"]
        assert len(processes) == 3
        assert processes[0] == (metrics[name]["samples"] or [metrics[name]["value"]])
        for samples in processes:
            assert sorted(samples)[len(samples) // 2] == pytest.approx(value, rel=0.02)
    assert metrics["ttft_s"]["processes"][1] != metrics["ttft_s"]["processes"][2]
    for name in TIMES:
        verdict = metrics[name]["verdict"]
        assert verdict["kind"] == "regressed"
        assert verdict["ratio"] == pytest.approx(1.1, abs=0.015)
        low, high = verdict["interval"]
        assert 1.08 < low < verdict["ratio"] < high < 1.12
    assert metrics["compile_s"]["verdict"]["kind"] == "unchanged"


def test_a_move_that_takes_five_times_as_long_fails_the_larger_bucket_alone(nights, tmp_path):
    """No batch of a profile case moves: all else is as it was."""
    moved = """
import fake_device


def slow_move(engine, small, large):
    factor = 5 if large == 32 else 1
    return fake_device.Move(from_bucket=small, to_bucket=large, duration_s=factor * 1e-6 * large)


fake_device.FakeEngine.time_move = slow_move
"""
    project = nights.after(tmp_path / "project", moved)
    result = project.run(*COMPARED)
    assert list(summary(result, "FAILED")) == [SLOW_TEST]
    metrics = project.cases()[SLOW_CASE]["metrics"]
    assert metrics["move_s"]["verdict"]["ratio"] == pytest.approx(5, rel=0.05)
    others = {name: one["verdict"]["kind"] for name, one in metrics.items() if name != "move_s"}
    assert others == dict.fromkeys(("ttft_s", "tbt_s", "compile_s"), "unchanged")
    assert f"move_s: {metrics['move_s']['verdict']['reason']}" in project.cases()[SLOW_CASE]["verdict"]["reason"]


def test_junit_has_a_failure_with_the_verdict(slow):
    project, _ = slow
    cases = {case.get("name"): case for case in ElementTree.parse(project.root / "junit.xml").iter("testcase")}
    assert len(cases) == 6
    failures = [name for name, case in cases.items() if case.find("failure") is not None]
    assert failures == ["test_profile[fake-mini-llama-b2-bucket32]"]
    (case,) = (cases[name] for name in failures)
    assert case.find("failure").get("message").startswith("Failed: regressed: ttft_s: ")
    verdicts = [item.get("value") for item in case.iter("property") if item.get("name") == "npubench.verdict"]
    assert verdicts == ["regressed"]


def test_pytest_benchmark_has_the_samples_of_the_first_process(slow):
    project, _ = slow
    saved = {item["name"]: item for item in json.loads((project.root / "benchmark.json").read_text())["benchmarks"]}
    assert len(saved) == 6
    mirrored = saved[SLOW_TEST.partition("::")[2]]
    assert mirrored["stats"]["data"] == project.cases()[SLOW_CASE]["metrics"]["ttft_s"]["processes"][0]
    assert mirrored["extra_info"]["npubench"]["verdict"] == "regressed"


def test_a_regressed_case_never_enters_and_keeps_no_other_out(slow, nights):
    project, result = slow
    path = project.baseline_path
    (line,) = (line for line in result.outlines if line.startswith("accepted "))
    assert line.startswith(f"accepted 5 of 6 cases into {path}: {SLOW_CASE} is regressed (ttft_s: ")
    before, after = nights.project.accepted(), project.accepted()
    assert after.pop(SLOW_CASE) == before.pop(SLOW_CASE)
    session = project.journal().sessions[-1].id
    assert {entry["sessions"][-1]["session"] for entry in after.values()} == {session}
    assert {case: len(entry["sessions"]) for case, entry in after.items()} == dict.fromkeys(before, 5)


def test_the_history_has_the_runs_and_nothing_of_the_fresh_processes(slow):
    from pytest_npubench.store.history import history_series, history_sessions

    project, _ = slow
    url = str(project.root / "history.db")
    assert {row.session for row in history_sessions(url)} == {session.id for session in project.journal().sessions}
    rows = history_series(url, case=SLOW_CASE, metric="ttft_s")
    cases = [
        record for record in project.journal().records if (record["record"], record.get("case")) == ("case", SLOW_CASE)
    ]
    accepted = [record["metrics"]["ttft_s"]["value"] for record in cases]
    # nights that began in one second are in the order of their names
    *nights, slow_night = sorted(row.value for row in rows)
    assert [*nights, slow_night] == sorted(accepted)
    assert rows[-1].value == slow_night > 1.05 * max(nights)
    assert len(rows) == 5


def test_a_resumed_run_keeps_the_verdicts(slow, nights, tmp_path):
    project = slow[0].copy(tmp_path / "resumed")
    before = project.cases()
    result = project.run(*COMPARED, "--npubench-resume")
    assert result.ret == 1
    ((test, text),) = summary(result, "FAILED").items()
    assert test == SLOW_TEST
    assert text.startswith("Failed: regressed: ")
    after = project.cases()
    assert all(record["resumed"] for record in after.values())
    assert {case: record["metrics"] for case, record in after.items()} == {
        case: record["metrics"] for case, record in before.items()
    }
    assert project.engines() == slow[0].engines()


def test_what_only_the_first_process_saw_is_no_alarm(nights, tmp_path):
    """A process that was half as fast again, twice refuted: neither an alarm nor a clean bill."""
    only_first = changed(1.5, when="'NPUBENCH_REMEASURING' not in os.environ")
    project = nights.after(tmp_path / "project", only_first, "alter=changed")
    result = project.run(*COMPARED)
    assert result.ret == 0, result.stdout.str()
    assert project.engines() == ["first"] * 5 + ["again"] * 2
    verdicts = project.kinds()
    assert verdicts.pop(SLOW_CASE) == "inconclusive"
    assert set(verdicts.values()) == {"unchanged"}
    metrics = project.cases()[SLOW_CASE]["metrics"]
    for name in TIMES:
        assert "; measured in 3 processes" in metrics[name]["verdict"]["reason"]
    medians = [sorted(samples)[len(samples) // 2] for samples in metrics["ttft_s"]["processes"]]
    assert medians == pytest.approx([4.8e-3, 3.2e-3, 3.2e-3], rel=0.02)


def test_a_suspect_that_cannot_be_measured_again_fails_and_says_so(nights, tmp_path):
    """A gate that cannot look fails closed."""
    code = changed(1.1) + BROKEN_AGAIN.format(when="True")
    project = nights.after(tmp_path / "project", code, "alter=changed, on_run=broken")
    result = project.run(*COMPARED)
    assert result.ret == 1, result.stdout.str()
    assert project.kinds()[SLOW_CASE] == "regressed"
    verdict = project.cases()[SLOW_CASE]["metrics"]["ttft_s"]["verdict"]
    assert verdict["ratio"] == pytest.approx(1.1, abs=0.015)
    assert "; could not be measured again: the fresh process measured nothing: " in verdict["reason"]
    assert verdict["reason"].endswith(": OSError: the fake accelerator lost a packet")
    assert "processes" not in project.cases()[SLOW_CASE]["metrics"]["ttft_s"]


def test_of_two_suspects_the_one_that_was_measured_again_says_no_more_than_that(nights, tmp_path):
    code = changed(1.1, buckets="{32, 64}") + BROKEN_AGAIN.format(when="requests[0].input_tokens <= 32")
    project = nights.after(tmp_path / "project", code, "alter=changed, on_run=broken")
    result = project.run(*COMPARED)
    assert result.ret == 1
    assert summary(result, "FAILED").keys() == {SLOW_TEST, SLOW_TEST.replace("32", "64")}
    verdicts = project.kinds()
    assert verdicts.pop(SLOW_CASE) == "regressed"
    assert verdicts.pop(SLOW_CASE.replace("32", "64")) == "regressed"
    assert set(verdicts.values()) == {"unchanged"}
    reason = project.cases()[SLOW_CASE]["verdict"]["reason"]
    assert "could not be measured again: no fresh process could measure it" in reason
    assert "again" not in project.cases()[SLOW_CASE.replace("32", "64")]["verdict"]["reason"]


def test_a_fresh_process_that_does_not_start_says_its_last_words(nights, tmp_path):
    code = changed(1.1) + "\nif 'NPUBENCH_REMEASURING' in os.environ:\n    raise SystemExit('no second chance')\n"
    project = nights.after(tmp_path / "project", code, "alter=changed")
    result = project.run(*COMPARED)
    assert result.ret == 1, result.stdout.str()
    reason = project.cases()[SLOW_CASE]["metrics"]["ttft_s"]["verdict"]["reason"]
    assert "; could not be measured again: the process of fake-mini-llama-b2 (process " in reason
    assert "no second chance" in reason


def test_without_measuring_again_one_process_is_enough(nights, tmp_path):
    project = nights.after(tmp_path / "project", changed(1.1), "alter=changed")
    result = project.run(*COMPARED, "--npubench-remeasure", "0")
    assert result.ret == 1
    assert len(summary(result, "FAILED")) == 1
    assert set(project.engines()) == {"first"}


def test_a_faster_case_is_improved(nights, tmp_path):
    project = nights.after(tmp_path / "project", changed(0.9), "alter=changed")
    result = project.run(*COMPARED)
    assert result.ret == 0, result.stdout.str()
    verdicts = project.kinds()
    assert verdicts.pop(SLOW_CASE) == "improved"
    assert set(verdicts.values()) == {"unchanged"}
    verdict = project.cases()[SLOW_CASE]["metrics"]["ttft_s"]["verdict"]
    assert (verdict["kind"], round(verdict["ratio"], 1)) == ("improved", 0.9)
    assert set(project.engines()) == {"first"}


def test_under_xdist_a_slow_case_is_found_too(nights, tmp_path):
    project = nights.after(tmp_path / "project", changed(1.1), "alter=changed")
    result = project.run(*COMPARED, "-n2", "-W", "error")
    assert result.ret == 1, result.stdout.str()
    ((test, text),) = summary(result, "FAILED").items()
    assert test == SLOW_TEST
    assert text.startswith("Failed: regressed: ttft_s: ")
    assert project.engines()[4:] == ["first", "again", "again"]


@pytest.mark.parametrize("workers", [(), ("-n2", "-W", "error")], ids=["one process", "xdist"])
def test_what_hits_every_case_is_said_of_the_suite(nights, tmp_path, workers):
    everything = "\n\ndef changed(requests, run):\n    return dataclasses.replace(run, e2e_s=1.1 * run.e2e_s)\n\n"
    project = nights.after(tmp_path / "project", everything, "alter=changed")
    num_before = len(project.journal().sessions)
    result = project.run(*COMPARED, "--npubench-remeasure", "1", *workers)
    assert result.ret == 1
    records = [record for session in project.journal().sessions[num_before:] for record in session.records]
    assert {record["verdict"]["kind"] for record in records if record["record"] == "case"} == {"regressed"}
    (note,) = (record["text"] for record in records if record["record"] == "note")
    text = r"fake-mini-llama-b2, metrics in s\b.*: regressed: 9 cases together are (9\.\d|10) % worse \("
    assert re.match(text, note)
    assert result.outlines.count(note) == 1


@pytest.mark.parametrize(("kind", "then"), [("improved", "inconclusive"), ("regressed", "regressed")])
def test_a_metric_that_is_gone_leaves_the_case_in_doubt(kind, then):
    names = ("tbt_s", "weights_bits", "peak_memory_bytes")
    accepted = AcceptedSession(
        session="a",
        accepted_at="2026-01-01T12:00:00Z",
        git_revision=None,
        anchor=True,
        metrics={name: KeptSamples(processes=((1.0,),), num_measured=(1,)) for name in names},
    )
    tbt, bits = (Metric(name=name, unit="s", value=1.0, samples=(1.0,)) for name in names[:2])
    tonight = Judgement(verdict=Verdict(kind=VerdictKind(kind), reason="as it was"), metrics=(tbt,))
    verdict = with_missing(tonight, [(accepted,)]).verdict
    assert (verdict.kind.value, verdict.reason) == (
        then,
        "as it was; weights_bits, which is accepted, is missing here",
    )
    whole = Judgement(verdict=tonight.verdict, metrics=(tbt, bits))
    assert with_missing(whole, [(accepted,)]) is whole
