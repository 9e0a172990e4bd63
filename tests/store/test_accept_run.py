"""Accepting a run out of its journal: which cases enter under which names, and what is refused with which reason."""

import sys
from dataclasses import replace
from datetime import timedelta

import pytest
from accepted_results import CASE, OTHER
from written_runs import END, RED, case, metric, outcome

from pytest_npubench.errors import BaselineError, JournalError, RunNotAcceptedError
from pytest_npubench.store.accept_run import GREEN, accept_run
from pytest_npubench.store.baselines import Baselines
from pytest_npubench.store.journal_format import new_id
from pytest_npubench.verdict import FAILING, VerdictKind

SAMPLES = [[[0.5, 0.25]]]
IN_MS = {"tbt_s": metric(1.0, unit="ms")}


def both(runs):
    """The accepted samples of the two cases."""
    return runs.samples(), runs.samples(OTHER)


def test_a_green_run_is_one_session_with_its_revision(runs):
    session = runs.write(case(), case(OTHER))
    done = runs.accept()
    assert (done.sessions, done.num_cases, done.num_resumed) == ((session,), 2, 0)
    assert str(done) == f"accepted 2 cases into {runs.directory}/h200/buckets-{runs.fingerprint.key().digest()}.json"
    assert both(runs) == (SAMPLES, SAMPLES)
    assert runs.sessions()[0].git_revision == "0123456789ab"
    again = runs.accept()
    assert (again.sessions, again.paths) == ((session,), ())
    assert str(again) == "accepted 2 cases into files that held them already"
    assert [one.session for one in runs.sessions()] == [session]


def test_the_processes_of_a_suspect_its_samples_or_its_value(runs):
    metrics = {
        "tbt_s": metric(1.0, 2.0, processes=[[1.0, 2.0], [3.0], [4.0]]),
        "ttft_s": metric(5.0, 6.0),
        "ratio": metric(unit="", processes=[]),
        "detail_s": metric(1.0, gate="none"),
        "below_0_s": {**metric(-1.0), "verdict": {"kind": "invalid", "reason": "its better quartile is -1"}},
        "kept_s": metric(1.5, gate="difference", margin=0.02),
    }
    runs.write(case(metrics=metrics))
    runs.accept()
    assert {name: runs.samples(metric=name) for name in metrics} == {
        "tbt_s": [[[1.0, 2.0], [3.0], [4.0]]],
        "ttft_s": [[[5.0, 6.0]]],
        "ratio": [[[7.0]]],
        "detail_s": [],
        "below_0_s": [],
        "kept_s": [[[1.5]]],
    }
    (file,) = runs.files
    kept = file.cases[CASE].metrics
    assert (kept["kept_s"].gate, kept["kept_s"].margin) == ("difference", 0.02)
    assert (kept["tbt_s"].gate, kept["tbt_s"].margin) == ("ratio", None)  # a record from before metrics had gates


def test_every_verdict_that_does_not_fail_is_green():
    assert {kind.value for kind in VerdictKind if kind not in FAILING} == GREEN


@pytest.mark.parametrize("kind", ["failed", "invalid", "regressed", "something new"])
@pytest.mark.parametrize("status", [0, 1])
def test_a_case_that_is_not_green_is_named_and_keeps_no_other_out(runs, kind, status):
    runs.write(case(), case(OTHER, kind=kind), end={**END, "exit_status": status})
    done = runs.accept(exit_status=status)
    (file,) = done.paths
    assert str(done) == f"accepted 1 of 2 cases into {file}: {OTHER} is {kind} (it is {kind})"
    assert [(one.case, one.reason) for one in done.left_out] == [(OTHER, f"is {kind} (it is {kind})")]
    assert both(runs) == (SAMPLES, [])


def test_an_invalid_case_that_never_reached_a_device_is_named(runs):
    runs.write(case(), case(OTHER, kind="invalid", fingerprint=None, device=None))
    assert runs.left_out().keys() == {OTHER}
    assert len(runs.sessions()) == 1
    runs.write(case(kind="invalid", fingerprint=None), case())  # tried again in the same session, and then it ran
    assert runs.left_out()[""].startswith(f"{CASE} is invalid")


def test_where_no_case_can_be_accepted_all_are_named(runs):
    runs.write(*(case(f"a/b/c{n}", kind="invalid") for n in range(5)))
    assert runs.left_out()[""].splitlines()[1:] == [f"  a/b/c{n} is invalid (it is invalid)" for n in range(5)]
    assert not runs.directory.exists()


@pytest.mark.parametrize(
    ("end", "message"),
    [
        (None, "has no end record: it still runs or was killed"),
        ({**END, "exit_status": 1}, "ended with exit status 1, and no case is red: something else failed"),
        ({**END, "exit_status": 2}, r"ended with exit status 2 \(interrupted\)"),
        ({**END, "exit_status": 3}, r"ended with exit status 3 \(an internal error\)"),
        ({**END, "exit_status": 4}, r"ended with exit status 4 \(a usage error\)"),
        ({**END, "exit_status": 5}, r"ended with exit status 5 \(no tests\)"),
        ({**END, "exit_status": 139}, "ended with exit status 139$"),
    ],
)
def test_a_run_that_did_not_end_well_is_refused(runs, end, message):
    session = runs.write(case(), end=end)
    with pytest.raises(RunNotAcceptedError, match=f"^session {session} {message}"):
        runs.accept()
    assert not runs.directory.exists()


def test_the_callers_exit_status_counts(runs):
    runs.write(case())
    with pytest.raises(RunNotAcceptedError, match="the run ended with exit status 1"):
        runs.accept(exit_status=1)
    assert runs.accept(exit_status=0).num_cases == 1


def test_what_was_taken_over_from_an_earlier_run_is_no_new_session(runs):
    runs.write(case(resumed=True), case(OTHER))
    done = runs.accept()
    assert (done.num_cases, done.num_resumed) == (1, 1)
    assert str(done).endswith("; 1 case taken over from an earlier run left out")
    assert runs.samples() == []
    runs.write(case(resumed=True))
    assert "no case was measured: 1 were taken over" in runs.left_out()[""]


def test_a_run_without_anything_to_judge_by(runs):
    shown = case(metrics={"x": metric(1.0, gate="none")})
    runs.write(shown)
    assert runs.left_out() == {"": f"{CASE} has no metric to judge by"}
    runs.write(shown, case(OTHER))
    assert str(runs.accept()).endswith(f": {CASE} has no metric to judge by")


def test_a_case_counts_once_by_its_worst_try(runs):
    slow = case(metrics={"tbt_s": metric(3.0)})
    runs.write(case(kind="failed"), slow)
    assert runs.left_out()[""].startswith(f"{CASE} is failed")
    runs.write(case(), slow)
    assert runs.accept().num_cases == 1
    assert runs.samples() == SAMPLES


@pytest.mark.parametrize("status", [0, 1])
@pytest.mark.parametrize("did", ["failed", "skipped", "xfailed", "xpassed"])
def test_a_case_whose_test_did_not_pass_is_named_and_keeps_no_other_out(runs, did, status):
    with runs.open() as journal:
        record = case(OTHER, fingerprint=journal.device(runs.fingerprint))
        runs.append(journal, case())
        journal.append(record)
        journal.append(outcome(record, did, "was so (a reason)"))
        journal.append(outcome(record))  # a later try of the test
        journal.append({**END, "exit_status": status})
    done = runs.accept()
    (file,) = done.paths
    assert str(done) == f"accepted 1 of 2 cases into {file}: {OTHER} was measured by a test that was so (a reason)"
    assert both(runs) == (SAMPLES, [])


def test_a_case_without_an_outcome_of_its_test_is_not_accepted(runs):
    with runs.open() as journal:
        journal.append(case(fingerprint=journal.device(runs.fingerprint)))
        journal.append(END)
    assert runs.left_out() == {"": f"{CASE} was measured by a test whose outcome is not on record"}


def test_workers_that_each_measure_all_cases_are_one_session(runs):
    run = new_id()
    with runs.open("gw0", run) as one, runs.open("gw1", run) as other:
        runs.append(one, case(), case(OTHER))
        runs.append(other, case(), case(OTHER, kind="regressed"))
        one.append(END)
        other.append(RED)
    done = runs.accept()
    assert (done.num_cases, done.sessions, [one.case for one in done.left_out]) == (1, (one.session,), [OTHER])
    assert both(runs) == (SAMPLES, [])


def test_each_device_is_a_session_of_its_own(runs):
    with runs.open() as journal:
        for index in (0, 1):
            device = replace(runs.fingerprint.device, extra=(("devices", f"GPU-{index}"),))
            record = case(device=f"cuda:{index}", metrics={"tbt_s": metric(1.0 + index)})
            runs.append(journal, record, fingerprint=replace(runs.fingerprint, device=device))
        journal.append(END)
    assert runs.accept().sessions == (f"{journal.session}@cuda:0", f"{journal.session}@cuda:1")
    assert runs.samples() == [[[1.0]], [[2.0]]]


def test_two_stacks_on_one_device_lose_no_case_and_are_recognised(runs):
    """jax runs one suite and torch another: two keys, so two files, and every case of both is in them."""
    torch = replace(runs.fingerprint, device=replace(runs.fingerprint.device, runtime="torch 2.13.0"))
    policies = {stack: f"scheduling/policy/{stack.device.runtime[:3]}" for stack in (runs.fingerprint, torch)}
    with runs.open() as journal:
        for stack, policy in policies.items():
            runs.append(journal, case(), case(policy), fingerprint=stack)
        journal.append(END)
    done = runs.accept()
    assert (done.num_cases, len(done.paths), done.left_out) == (4, 4, ())
    assert done.sessions == (f"{journal.session}@cuda:0",)
    for stack, policy in policies.items():
        assert runs.samples(key=stack.key()) == runs.samples(policy, key=stack.key()) == SAMPLES
    assert runs.accept().paths == ()


def test_mixed_hardware_lands_in_files_of_its_own(runs):
    policy = "scheduling/policy/tiny"
    runs.write(case(), case(policy, hardware="lab"))
    runs.accept()
    assert {(file.hardware, *file.cases) for file in runs.files} == {("h200", CASE), ("lab", policy)}


def test_a_case_that_would_be_lost_without_a_word_is_an_error(runs, monkeypatch):
    """Whatever a later change makes of the grouping: what is neither accepted nor named is noticed."""
    module = sys.modules[accept_run.__module__]
    runs.write(case(), case(OTHER))
    counted = module._counted
    monkeypatch.setattr(module, "_counted", lambda *arguments: counted(*arguments) * 2)
    with pytest.raises(BaselineError, match="of 4 cases 2 can be accepted and 0 are left out"):
        runs.accept()


def test_a_case_whose_unit_changed_is_named_and_keeps_no_other_out(runs):
    runs.accept_each(case())
    reason = "is refused (metric tbt_s: accepted in 's', lower is better; now in 'ms', lower)"
    before = runs.files
    runs.write(case(metrics=IN_MS))
    assert runs.left_out() == {"": f"{CASE} {reason}"}
    assert runs.files == before
    runs.write(case(metrics=IN_MS), case(OTHER))
    assert runs.left_out() == {CASE: reason}
    assert runs.samples(OTHER) == SAMPLES


def test_what_a_case_was_held_to_is_fixed_by_its_first_acceptance(runs):
    runs.accept_each(*(case(frozen={"rate_per_s": rate}) for rate in (0.44, 0.11)))
    baselines = Baselines.load(runs.directory)
    assert baselines.frozen(CASE, runs.fingerprint.key(), digest="d1") == {"rate_per_s": 0.44}


def test_the_workers_of_one_run_enter_together_and_one_interrupted_worker_keeps_all_out(runs):
    def run(status, *, with_case):
        run = new_id()
        with runs.open("gw0", run) as left, runs.open("gw1", run) as right:
            runs.append(left, case())
            runs.append(right, *([case(OTHER)] if with_case else []))
            left.append(END)
            right.append({**END, "exit_status": status})
            return left.session, right.session

    good = run(0, with_case=True)
    done = runs.accept()
    assert (set(done.sessions), done.num_cases) == (set(good), 2)
    for with_case in (True, False):
        left, right = run(2, with_case=with_case)
        for wanted in (None, left):
            with pytest.raises(RunNotAcceptedError, match=f"session {right} ended with exit status 2"):
                runs.accept(wanted)
    assert {name for file in runs.files for name in file.session_names} == set(good)


@pytest.mark.parametrize(
    ("about", "message"),
    [
        (
            {"metrics": {"tbt_s": metric(1.0, gate="relative")}},
            rf"{CASE}: metrics\.tbt_s\.gate: want ratio or difference or exact",
        ),
        ({"fingerprint": None}, f"{CASE}: fingerprint: want a string, found null"),
        ({"device": None}, f"{CASE}: device: want a string"),
        ({"fingerprint": "000000000000"}, "no device record has the digest 000000000000"),
    ],
)
def test_a_record_of_another_writer_is_named(runs, about, message):
    runs.write(case(**about))
    with pytest.raises(JournalError, match=message):
        runs.accept()
    assert not runs.directory.exists()


def test_a_session_from_the_future_is_refused_by_name(runs, name_sessions):
    name_sessions("29990101T000000-a")
    runs.write(case())
    assert "session 29990101T000000-a, which began in the future" in runs.left_out()[""]


def test_what_is_beside_a_session_from_the_future_was_compared_with_nothing(runs, name_sessions, monkeypatch):
    name_sessions("29990101T000000-a", "20260101T000000-b")
    with monkeypatch.context() as patched:
        patched.setattr("pytest_npubench.store.accepted_session.AHEAD", timedelta(days=365 * 2000))
        runs.accept_each(case())
    runs.write(case(), case(OTHER))
    assert "its accepted session 29990101T000000-a began in the future" in runs.left_out()[CASE]
