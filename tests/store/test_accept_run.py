"""Accepting a run out of its journal: which cases enter under which names, and what is refused with which reason."""

import json
import re
import sys
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace

import pytest
from accepted_results import CASE, OTHER

from pytest_npubench.cli.main import main
from pytest_npubench.errors import BaselineError, JournalError, RunNotAcceptedError
from pytest_npubench.plugin.outcome import accept_results
from pytest_npubench.store.accept_run import GREEN, accept_run
from pytest_npubench.store.baselines import Baselines
from pytest_npubench.store.journal import JournalWriter, read_journal
from pytest_npubench.store.journal_format import new_id
from pytest_npubench.store.journal_runs import chosen_sessions
from pytest_npubench.store.waiting import Allowed, baselines_option
from pytest_npubench.verdict import FAILING, VerdictKind


@pytest.fixture
def path(tmp_path):
    return tmp_path / "journal.jsonl"


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "new" / "baselines"


@pytest.fixture
def open_journal(path, host):
    return lambda worker=None, run=None: JournalWriter.open(path, host=host, settings={}, worker=worker, run=run)


def metric(*samples, **about):
    return {"unit": "s", "value": 7.0, "better": "lower", "samples": list(samples), **about}


def case(digest, *, key=CASE, kind="passed", device="cuda:0", metrics=None, **about):
    return {
        "record": "case",
        "case": key,
        "id": key.split("/", 2)[2],
        "hardware": "h200",
        "digest": "d1",
        "device": device,
        "fingerprint": digest,
        "verdict": {"kind": kind, "reason": f"it is {kind}"},
        "metrics": {"tbt_s": metric(0.5, 0.25)} if metrics is None else metrics,
        **about,
    }


def outcome(record, did="passed", reason=None):
    """What became of the test that measured the case of this record."""
    about = {name: record[name] for name in ("case", "device")}
    return {"record": "outcome", **about, "outcome": did, "reason": reason}


def append(journal, *records):
    """Cases whose tests passed."""
    for record in records:
        journal.append(record)
        journal.append(outcome(record))


END = {"record": "end", "exit_status": 0, "counts": {}}


def accept(path, directory, wanted=None, **about):
    journal = read_journal(path)
    return accept_run(journal, chosen_sessions(journal, wanted), directory, **about)


@pytest.fixture
def write(open_journal, fingerprint):
    """write(*cases) is a whole green run of one session; each case is a function of the fingerprint's digest."""

    def write(*cases, end=END):
        with open_journal() as journal:
            digest = journal.device(fingerprint)
            append(journal, *(made(digest) for made in cases))
            if end:
                journal.append(end)
            return journal.session

    return write


def found(directory, key, *, of=CASE, metric="tbt_s"):
    return Baselines.load(directory).sessions(of, metric, key, digest="d1")


def names(directory):
    return {name for file in Baselines.load(directory).files for name in file.session_names}


def test_a_green_run_is_one_session_with_its_revision(write, path, directory, key):
    session = write(case, lambda digest: case(digest, key=OTHER))
    done = accept(path, directory)
    assert (done.sessions, done.num_cases, done.num_resumed) == ((session,), 2, 0)
    assert str(done) == f"accepted 2 cases into {directory}/h200/buckets-{key.digest()}.json"
    assert found(directory, key) == found(directory, key, of=OTHER) == [[[0.5, 0.25]]]
    (file,) = Baselines.load(directory).files
    assert file.cases[CASE].sessions[0].git_revision == "0123456789ab"
    again = accept(path, directory)
    assert (again.sessions, again.paths) == ((session,), ())
    assert str(again) == "accepted 2 cases into files that held them already"
    assert names(directory) == {session}


def test_the_processes_of_a_suspect_its_samples_or_its_value(write, path, directory, key):
    metrics = {
        "tbt_s": metric(1.0, 2.0, processes=[[1.0, 2.0], [3.0], [4.0]]),
        "ttft_s": metric(5.0, 6.0),
        "ratio": metric(unit="", processes=[]),
        "detail_s": metric(1.0, gate="none"),
        "below_0_s": {**metric(-1.0), "verdict": {"kind": "invalid", "reason": "its better quartile is -1"}},
        "kept_s": metric(1.5, gate="difference", margin=0.02),
    }
    write(lambda digest: case(digest, metrics=metrics))
    accept(path, directory)
    assert found(directory, key) == [[[1.0, 2.0], [3.0], [4.0]]]
    assert found(directory, key, metric="ttft_s") == [[[5.0, 6.0]]]
    assert found(directory, key, metric="ratio") == [[[7.0]]]
    assert found(directory, key, metric="detail_s") == found(directory, key, metric="below_0_s") == []
    assert found(directory, key, metric="kept_s") == [[[1.5]]]
    (file,) = Baselines.load(directory).files
    kept = file.cases[CASE].metrics
    assert (kept["kept_s"].gate, kept["kept_s"].margin) == ("difference", 0.02)
    assert (kept["tbt_s"].gate, kept["tbt_s"].margin) == ("ratio", None)  # a record from before metrics had gates


def test_every_verdict_that_does_not_fail_is_green():
    assert {kind.value for kind in VerdictKind if kind not in FAILING} == GREEN


@pytest.mark.parametrize("kind", ["failed", "invalid", "regressed", "something new"])
@pytest.mark.parametrize("status", [0, 1])
def test_a_case_that_is_not_green_is_named_and_keeps_no_other_out(write, path, directory, key, kind, status):
    write(case, lambda digest: case(digest, key=OTHER, kind=kind), end={**END, "exit_status": status})
    done = accept(path, directory, exit_status=status)
    (file,) = directory.rglob("*.json")
    assert str(done) == f"accepted 1 of 2 cases into {file}: {OTHER} is {kind} (it is {kind})"
    assert [(one.case, one.reason) for one in done.left_out] == [(OTHER, f"is {kind} (it is {kind})")]
    assert (found(directory, key), found(directory, key, of=OTHER)) == ([[[0.5, 0.25]]], [])


def test_an_invalid_case_that_never_reached_a_device_is_named(write, path, directory):
    write(case, lambda digest: {**case(None, key=OTHER, kind="invalid"), "device": None})
    done = accept(path, directory)
    assert (done.num_cases, [one.case for one in done.left_out]) == (1, [OTHER])
    write(lambda digest: case(None, kind="invalid"), case)  # tried again in the same session, and then it ran
    with pytest.raises(RunNotAcceptedError, match=f"^{CASE} is invalid"):
        accept(path, directory)


def test_where_no_case_can_be_accepted_all_are_named(write, path, directory):
    write(*(lambda digest, n=n: case(digest, key=f"a/b/c{n}", kind="invalid") for n in range(5)))
    with pytest.raises(RunNotAcceptedError) as error:
        accept(path, directory)
    assert str(error.value).splitlines()[1:] == [f"  a/b/c{n} is invalid (it is invalid)" for n in range(5)]
    assert not directory.exists()


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
def test_a_run_that_did_not_end_well_is_refused(write, path, directory, end, message):
    session = write(case, end=end)
    with pytest.raises(RunNotAcceptedError, match=f"^session {session} {message}"):
        accept(path, directory)
    assert not directory.exists()


def test_the_callers_exit_status_counts(write, path, directory):
    write(case)
    with pytest.raises(RunNotAcceptedError, match="the run ended with exit status 1"):
        accept(path, directory, exit_status=1)
    assert accept(path, directory, exit_status=0).num_cases == 1


def test_what_was_taken_over_from_an_earlier_run_is_no_new_session(write, path, directory, key):
    write(lambda digest: case(digest, resumed=True), lambda digest: case(digest, key=OTHER))
    done = accept(path, directory)
    assert (done.num_cases, done.num_resumed) == (1, 1)
    assert str(done).endswith("; 1 case taken over from an earlier run left out")
    assert found(directory, key) == []
    write(lambda digest: case(digest, resumed=True))
    with pytest.raises(RunNotAcceptedError, match="no case was measured: 1 were taken over"):
        accept(path, directory)


def test_a_run_without_anything_to_judge_by(write, path, directory):
    write(lambda digest: case(digest, metrics={"x": metric(1.0, gate="none")}))
    with pytest.raises(RunNotAcceptedError, match=f"^{CASE} has no metric to judge by$"):
        accept(path, directory)
    write(lambda digest: case(digest, metrics={"x": metric(1.0, gate="none")}), lambda digest: case(digest, key=OTHER))
    assert str(accept(path, directory)).endswith(f": {CASE} has no metric to judge by")


def test_a_case_counts_once_by_its_worst_try(write, path, directory, key):
    slow = {"tbt_s": metric(3.0)}
    write(lambda digest: case(digest, kind="failed"), lambda digest: case(digest, metrics=slow))
    with pytest.raises(RunNotAcceptedError, match=f"^{CASE} is failed"):
        accept(path, directory)
    write(case, lambda digest: case(digest, metrics=slow))
    assert accept(path, directory).num_cases == 1
    assert found(directory, key) == [[[0.5, 0.25]]]


@pytest.mark.parametrize("status", [0, 1])
@pytest.mark.parametrize("did", ["failed", "skipped", "xfailed", "xpassed"])
def test_a_case_whose_test_did_not_pass_is_named_and_keeps_no_other_out(
    open_journal, path, directory, fingerprint, key, did, status
):
    with open_journal() as journal:
        digest = journal.device(fingerprint)
        append(journal, case(digest))
        record = case(digest, key=OTHER)
        journal.append(record)
        journal.append(outcome(record, did, "was so (a reason)"))
        journal.append(outcome(record))  # a later try of the test
        journal.append({**END, "exit_status": status})
    done = accept(path, directory)
    (file,) = directory.rglob("*.json")
    assert str(done) == f"accepted 1 of 2 cases into {file}: {OTHER} was measured by a test that was so (a reason)"
    assert (found(directory, key), found(directory, key, of=OTHER)) == ([[[0.5, 0.25]]], [])


def test_a_case_without_an_outcome_of_its_test_is_not_accepted(open_journal, path, directory, fingerprint):
    with open_journal() as journal:
        journal.append(case(journal.device(fingerprint)))
        journal.append(END)
    with pytest.raises(RunNotAcceptedError, match=f"^{CASE} was measured by a test whose outcome is not on record$"):
        accept(path, directory)


def test_workers_that_each_measure_all_cases_are_one_session(open_journal, path, directory, fingerprint, key):
    run = new_id()
    with open_journal("gw0", run) as one, open_journal("gw1", run) as other:
        digests = [worker.device(fingerprint) for worker in (one, other)]
        append(one, case(digests[0]), case(digests[0], key=OTHER))
        append(other, case(digests[1]), case(digests[1], key=OTHER, kind="regressed"))
        one.append(END)
        other.append({**END, "exit_status": 1})
    done = accept(path, directory)
    assert (done.num_cases, done.sessions, [one.case for one in done.left_out]) == (1, (one.session,), [OTHER])
    assert (found(directory, key), found(directory, key, of=OTHER)) == ([[[0.5, 0.25]]], [])


def test_each_device_is_a_session_of_its_own(open_journal, path, directory, fingerprint, key):
    with open_journal() as journal:
        for index in (0, 1):
            device = replace(fingerprint.device, extra=(("devices", f"GPU-{index}"),))
            digest = journal.device(replace(fingerprint, device=device))
            append(journal, case(digest, device=f"cuda:{index}", metrics={"tbt_s": metric(1.0 + index)}))
        journal.append(END)
    assert accept(path, directory).sessions == (f"{journal.session}@cuda:0", f"{journal.session}@cuda:1")
    assert found(directory, key) == [[[1.0]], [[2.0]]]


def test_two_stacks_on_one_device_lose_no_case_and_are_recognised(open_journal, path, directory, fingerprint, key):
    """jax runs one suite and torch another: two keys, so two files, and every case of both is in them."""
    torch = replace(fingerprint, device=replace(fingerprint.device, runtime="torch 2.13.0"))
    with open_journal() as journal:
        for stack in (fingerprint, torch):
            digest = journal.device(stack)
            append(journal, case(digest), case(digest, key=f"scheduling/policy/{stack.device.runtime[:3]}"))
        journal.append(END)
    done = accept(path, directory)
    assert (done.num_cases, len(done.paths), done.left_out) == (4, 4, ())
    assert done.sessions == (f"{journal.session}@cuda:0",)
    for stack in (fingerprint, torch):
        assert found(directory, stack.key()) == [[[0.5, 0.25]]]
        assert found(directory, stack.key(), of=f"scheduling/policy/{stack.device.runtime[:3]}") == [[[0.5, 0.25]]]
    assert accept(path, directory).paths == ()


def test_mixed_hardware_lands_in_files_of_its_own(write, path, directory):
    other = "scheduling/policy/tiny"
    write(case, lambda digest: case(digest, key=other, hardware="lab"))
    accept(path, directory)
    assert {(file.hardware, *file.cases) for file in Baselines.load(directory).files} == {
        ("h200", CASE),
        ("lab", other),
    }


def test_a_case_that_would_be_lost_without_a_word_is_an_error(write, path, directory, monkeypatch):
    """Whatever a later change makes of the grouping: what is neither accepted nor named is noticed."""
    module = sys.modules[accept_run.__module__]
    write(case, lambda digest: case(digest, key=OTHER))
    counted = module._counted
    monkeypatch.setattr(module, "_counted", lambda *arguments: counted(*arguments) * 2)
    with pytest.raises(BaselineError, match="of 4 cases 2 can be accepted and 0 are left out"):
        accept(path, directory)


def test_a_case_whose_session_cannot_enter_keeps_no_other_out(write, path, directory, key):
    write(case)
    accept(path, directory)
    write(
        lambda digest: case(digest, metrics={"tbt_s": metric(1.0, unit="ms")}), lambda digest: case(digest, key=OTHER)
    )
    done = accept(path, directory)
    assert (done.num_cases, len(done.left_out)) == (1, 1)
    assert str(done).endswith(
        f": {CASE} is refused (metric tbt_s: accepted in 's', lower is better; now in 'ms', lower)"
    )
    assert found(directory, key, of=OTHER) == [[[0.5, 0.25]]]


def test_what_a_case_was_held_to_is_fixed_by_its_first_acceptance(write, path, directory, key):
    for rate in (0.44, 0.11):
        write(lambda digest, rate=rate: case(digest, frozen={"rate_per_s": rate}))
        accept(path, directory)
    assert Baselines.load(directory).frozen(CASE, key, digest="d1") == {"rate_per_s": 0.44}


def test_the_workers_of_one_run_enter_together_and_one_interrupted_worker_keeps_all_out(
    open_journal, path, directory, fingerprint
):
    def run(status, *, with_case):
        run = new_id()
        with open_journal("gw0", run) as left, open_journal("gw1", run) as right:
            digests = [worker.device(fingerprint) for worker in (left, right)]
            append(left, case(digests[0]))
            if with_case:
                append(right, case(digests[1], key=OTHER))
            left.append(END)
            right.append({**END, "exit_status": status})
            return left.session, right.session

    good = run(0, with_case=True)
    done = accept(path, directory)
    assert (set(done.sessions), done.num_cases) == (set(good), 2)
    for with_case in (True, False):
        left, right = run(2, with_case=with_case)
        for wanted in (None, left):
            with pytest.raises(RunNotAcceptedError, match=f"session {right} ended with exit status 2"):
                accept(path, directory, wanted)
    assert names(directory) == set(good)


@pytest.mark.parametrize(
    ("about", "message"),
    [
        (
            {"metrics": {"tbt_s": metric(1.0, gate="relative")}},
            r"metrics\.tbt_s\.gate: want ratio or difference or exact",
        ),
        ({"fingerprint": None}, "fingerprint: want a string, found null"),
        ({"device": None}, "device: want a string"),
    ],
)
def test_a_record_of_another_writer_is_named(write, path, directory, about, message):
    write(lambda digest: {**case(digest), **about})
    with pytest.raises(JournalError, match=f"case record {CASE}: {message}"):
        accept(path, directory)
    assert not directory.exists()


def test_a_fingerprint_that_the_journal_does_not_explain(write, path, directory):
    write(lambda digest: case("000000000000"))
    with pytest.raises(JournalError, match="no device record has the digest 000000000000"):
        accept(path, directory)


def test_a_metric_whose_unit_changed_names_the_case(write, path, directory):
    write(case)
    accept(path, directory)
    before = json.loads(next(directory.rglob("*.json")).read_text())
    write(lambda digest: case(digest, metrics={"tbt_s": metric(1.0, unit="ms")}))
    with pytest.raises(
        RunNotAcceptedError, match=rf"^{CASE} is refused \(metric tbt_s: accepted in 's', lower is better; now in 'ms'"
    ):
        accept(path, directory)
    assert json.loads(next(directory.rglob("*.json")).read_text()) == before


# -- what waits for a person

ANSWERS = "buckets/answers/cpu-tiny-b4"
ELSEWHERE = "buckets/profile/cpu-small-b4-bucket128"
VECTOR = [float((7 * number) % 16) for number in range(32)]


def judged(kind, ratio=None, **about):
    return {**about, "verdict": {"kind": kind, "reason": f"it is {kind}", "ratio": ratio}}


def improved(tbt_s, ratio=None, **about):
    metrics = {"tbt_s": metric(tbt_s, tbt_s, **judged("improved", ratio or tbt_s / 0.01))}
    return lambda digest: case(digest, kind="improved", metrics=metrics, **about)


def answers(kind="unchanged", *, gate="answers", **about):
    vector = metric(*VECTOR, **judged(kind, unit="", gate=gate, margin=1e-5))
    metrics = {} if kind == "invalid" else {"answer_change": vector}
    return lambda digest: case(digest, key=ANSWERS, kind=kind, metrics=metrics, **about)


def steady(work=None, values=(0.0100, 0.0101, 0.0099)):
    about = {"work": work} if work else {}
    return [lambda digest, v=v: case(digest, metrics={"tbt_s": metric(v, v)}, **about) for v in values]


@pytest.fixture
def accepted(write, path, directory):
    """accepted(*cases) is a night that enters as a whole; returns how many accepted sessions CASE has."""

    def accepted(*cases):
        write(*cases)
        accept(path, directory)

    return accepted


def num_sessions(directory, name=CASE):
    return sum(len(file.cases[name].sessions) for file in Baselines.load(directory).files if name in file.cases)


def left_out(path, directory, **about):
    try:
        return {one.case: one.reason for one in accept(path, directory, **about).left_out}
    except RunNotAcceptedError as error:
        return {"": str(error)}


def test_other_answers_keep_their_whole_campaign_out(write, path, directory):
    write(case, answers("regressed"), lambda digest: case(digest, key=ELSEWHERE), end={**END, "exit_status": 1})
    assert left_out(path, directory) == dict.fromkeys((CASE, ANSWERS), "other answers: pass --accept-answers")
    assert (num_sessions(directory), num_sessions(directory, ELSEWHERE)) == (0, 1)
    assert accept(path, directory, allowed=Allowed(answers=True)).left_out == ()
    (file,) = Baselines.load(directory).files
    assert file.cases[ANSWERS].sessions[0].metrics["answer_change"].processes == (tuple(VECTOR),)


def test_a_run_and_the_command_line_pass_on_that_other_answers_are_meant(write, path, directory, capsys):
    write(case, answers("regressed"), end={**END, "exit_status": 1})
    (session,) = read_journal(path).sessions
    for is_meant, said in ((False, "nothing accepted: "), (True, "accepted 2 cases")):
        settings = SimpleNamespace(journal=path, baselines=directory, accept_answers=is_meant)
        assert accept_results(settings, 1, session.run).startswith(said)
    elsewhere = ["baseline", "accept", str(path), "--baselines", str(directory.parent / "elsewhere")]
    assert (main(elsewhere), main([*elsewhere, "--accept-answers"])) == (1, 0)
    assert "other answers: pass --accept-answers" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["failed", "invalid"])
def test_wrong_answers_are_let_in_by_nobody(write, path, directory, kind):
    write(case, answers(kind), lambda digest: case(digest, key=ELSEWHERE), end={**END, "exit_status": 1})
    found = left_out(path, directory, allowed=Allowed(answers=True))
    assert found[CASE] == f"is of a model whose answers are {kind}: {ANSWERS}"
    assert found[ANSWERS].startswith(f"is {kind}")


def test_what_regressed_beside_answers_is_no_matter_of_answers(write, path, directory):
    write(case, answers("regressed", gate="exact"), end={**END, "exit_status": 1})
    assert left_out(path, directory, allowed=Allowed(answers=True)).keys() == {""}


def test_the_answers_of_another_device_say_nothing(write, path, directory):
    write(case, answers("regressed", device="cuda:1"), end={**END, "exit_status": 1})
    assert left_out(path, directory).keys() == {ANSWERS}


@pytest.mark.parametrize(
    ("values", "tbt_s", "waits"),
    [
        ((0.0100, 0.0101, 0.0099), 0.0050, True),
        ((0.0100, 0.0101, 0.0099), 0.0093, True),
        ((0.0100, 0.0101, 0.0099), 0.0097, False),  # a newer driver
        ((0.0100, 0.0080, 0.0120), 0.0075, False),  # sessions differ by a third
        ((0.0100, 0.0080, 0.0120), 0.0060, True),
    ],
)
def test_an_improvement_beyond_what_sessions_differ_by_waits(write, accepted, path, directory, values, tbt_s, waits):
    for night in steady(values=values):
        accepted(night)
    session = write(improved(tbt_s))
    found = left_out(path, directory)
    assert num_sessions(directory) == (3 if waits else 4)
    if waits:
        command = f"npubench baseline accept {path} --session {session} --improved {CASE} --reason TEXT"
        assert found[""].startswith(f"{CASE} waits for a person: tbt_s is {100 - tbt_s * 1e4:.2g} % better, where ")
        assert found[""].endswith(f"; what it did was not counted; {command}")
        elsewhere = f" --baselines {directory}"
        with pytest.raises(RunNotAcceptedError, match=re.escape(f"accept {path}{elsewhere} --session {session} ")):
            accept(path, directory, options=baselines_option(directory))


def test_it_enters_where_the_model_answers_and_works_as_accepted(write, accepted, path, directory):
    for night in steady(work={"steps": 33.0}):
        accepted(night)
    write(improved(0.005, work={"steps": 33.0}), answers())
    assert left_out(path, directory) == {}
    assert num_sessions(directory) == 4


@pytest.mark.parametrize(
    ("work", "kind", "doubt"),
    [
        ({"steps": 17.0}, "unchanged", "steps: 17 where 33 were accepted"),
        ({}, "unchanged", "what it did was not counted"),
        ({"steps": 33.0}, "no-baseline", "its model's answers were not compared"),
        ({"steps": 33.0}, "inconclusive", "its model's answers were not compared"),
        ({"steps": 33.0}, None, "its model's answers were not compared"),
    ],
)
def test_it_waits_where_either_is_not_so(write, accepted, path, directory, work, kind, doubt):
    for night in steady(work={"steps": 33.0}):
        accepted(night)
    write(improved(0.005, **({"work": work} if work else {})), *([answers(kind)] if kind else []))
    assert f"; {doubt}; npubench baseline accept " in "".join(left_out(path, directory).values())
    assert num_sessions(directory) == 3


def test_a_person_lets_it_in_by_name_and_from_then_on_its_level_is_known(write, accepted, path, directory):
    for night in steady():
        accepted(night)
    write(improved(0.005), lambda digest: case(digest, key=OTHER))
    allowed = Allowed(improved=("buckets/profile/*-bucket128",), reason="fused kernel, issue 71")
    assert accept(path, directory, allowed=allowed).left_out == ()
    (file,) = Baselines.load(directory).files
    assert [session.reason for session in file.cases[CASE].sessions] == ["fused kernel, issue 71"]
    assert [session.reason for session in file.cases[OTHER].sessions] == [""]
    assert left_out(path, directory) == {}  # the same run again
    write(improved(0.0049))
    assert left_out(path, directory) == {}
    write(improved(0.0045))
    assert "waits for a person" in left_out(path, directory)[""]


@pytest.mark.parametrize(
    ("about", "words"),
    [
        ({"improved": ("buckets/profile/cpu-tiny-b4-bucket129",), "reason": "x"}, "no case of the run .* did you mean"),
        ({"improved": (CASE,), "reason": " "}, "needs a --reason"),
    ],
)
def test_a_name_that_is_none_and_a_reason_that_is_none(write, path, directory, about, words):
    write(case)
    with pytest.raises(BaselineError, match=words):
        accept(path, directory, allowed=Allowed(**about))


def test_a_counter_that_became_nothing_waits(write, accepted, path, directory):
    for _ in range(3):
        accepted(lambda digest: case(digest, metrics={"loaded": metric(4096, unit="B", gate="exact")}))
    loaded = metric(0, unit="B", gate="exact", **judged("improved", 0.0))
    write(lambda digest: case(digest, kind="improved", metrics={"loaded": loaded}))
    assert "waits for a person: loaded improved; " in left_out(path, directory)[""]


def regressed(tbt_s, since, **about):
    verdict = {"kind": "regressed", "reason": "it is slower", "ratio": tbt_s / 0.01, "since": since}
    metrics = {"tbt_s": {**metric(tbt_s, tbt_s), "verdict": verdict}}
    return lambda digest: case(digest, kind="regressed", metrics=metrics, **about)


RED_NIGHTS = ("20260102T000000-a", "20260103T000000-b", "20260104T000000-c")


@pytest.fixture
def red(write, accepted, monkeypatch):
    """Three nights that regressed behind three accepted ones, each a day of its own; `since` is the first of them."""
    names = iter(("20260101T000000-x", "20260101T000001-y", "20260101T000002-z", *RED_NIGHTS))
    monkeypatch.setattr("pytest_npubench.store.journal.new_id", lambda: next(names))
    for night in steady():
        accepted(night)
    for _ in RED_NIGHTS:
        other = lambda digest: case(digest, key=OTHER)  # noqa: E731
        write(regressed(0.02, RED_NIGHTS[0]), other, end={**END, "exit_status": 1})


MEANT = Allowed(regressed=(CASE,), reason="exact attention")


def levels(directory):
    """The sessions of the case in the order accepted, each of which has the reason."""
    sessions = [session for file in Baselines.load(directory).files for session in file.cases[CASE].sessions]
    assert {session.reason for session in sessions} == {MEANT.reason}
    return [session.session for session in sessions]


@pytest.mark.usefixtures("red")
def test_a_person_lets_in_a_regression_with_all_its_nights(path, directory):
    assert left_out(path, directory)[CASE].startswith("is regressed")
    assert num_sessions(directory) == 3
    allowed = Allowed(regressed=("cpu-tiny-b4-bucket128",), reason="exact attention")
    done = accept(path, directory, allowed=allowed)
    assert (done.num_cases, done.left_out) == (2, ())
    (file,) = Baselines.load(directory).files
    assert [(one.session, one.reason) for one in file.cases[CASE].sessions] == [
        (session, "exact attention") for session in RED_NIGHTS
    ]
    assert [one.session for one in file.cases[OTHER].sessions] == [RED_NIGHTS[-1]]


def test_two_changes_for_one_reason_are_two_levels(write, path, directory, monkeypatch):
    names = iter((*RED_NIGHTS, "20260105T000000-d", "20260106T000000-e"))
    monkeypatch.setattr("pytest_npubench.store.journal.new_id", lambda: next(names))
    for since, num_nights in ((RED_NIGHTS[0], 3), ("20260105T000000-d", 2)):
        for _ in range(num_nights):
            write(regressed(0.02, since), end={**END, "exit_status": 1})
        accept(path, directory, allowed=MEANT)
    assert levels(directory) == ["20260105T000000-d", "20260106T000000-e"]


@pytest.mark.usefixtures("red")
def test_nights_enter_up_to_the_run_that_a_person_lets_in(write, path, directory, monkeypatch):
    """Neither the night on which it was gone again, nor one of a clock that ran ahead."""
    after = iter(("20260105T000000-d", "29990101T000000-e"))
    monkeypatch.setattr("pytest_npubench.store.journal.new_id", lambda: next(after))
    write(case)
    write(regressed(0.02, RED_NIGHTS[0]), end={**END, "exit_status": 1})
    accept(path, directory, RED_NIGHTS[1], allowed=MEANT)
    assert levels(directory) == list(RED_NIGHTS[:2])


@pytest.mark.usefixtures("red")
def test_a_rejected_night_does_not_enter_with_the_others_and_is_no_case_of_the_run(path, directory):
    accept(path, directory, RED_NIGHTS[0], allowed=MEANT)
    assert main(["baseline", "reject", RED_NIGHTS[0], "--baselines", str(directory)]) == 0
    done = accept(path, directory, allowed=MEANT)
    assert (done.num_cases, done.left_out) == (2, ())
    assert levels(directory) == list(RED_NIGHTS[1:])


def test_nights_enter_of_all_commits_and_devices_since_the_change(
    open_journal, fingerprint, path, directory, monkeypatch
):
    """On two devices of a session, which names its nights after the device."""
    names = iter(RED_NIGHTS)
    monkeypatch.setattr("pytest_npubench.store.journal.new_id", lambda: next(names))
    for revision in "abc":
        with open_journal() as journal:
            for number, device in enumerate(("cuda:0", "cuda:1")):
                host = replace(fingerprint.host, git_revision=revision)
                of = replace(fingerprint, host=host, device=replace(fingerprint.device, extra={"number": str(number)}))
                night = regressed(0.02, f"{RED_NIGHTS[0]}@{device}", device=device)
                append(journal, night(journal.device(of)))
            journal.append({**END, "exit_status": 1})
    accept(path, directory, allowed=MEANT)
    assert levels(directory) == [f"{session}@cuda:{number}" for session in RED_NIGHTS for number in (0, 1)]


@pytest.mark.usefixtures("red")
@pytest.mark.parametrize(
    ("about", "words"),
    [
        ({"improved": (CASE,), "reason": "x"}, f"--improved {CASE}: no such case of the run is improved"),
        ({"regressed": (OTHER,), "reason": "x"}, f"--regressed {OTHER}: no such case of the run is regressed"),
        ({"regressed": (CASE,), "reason": " "}, "--regressed needs a --reason"),
    ],
)
def test_what_did_not_regress_or_has_no_reason_is_refused(path, directory, about, words):
    with pytest.raises(BaselineError, match=words):
        accept(path, directory, allowed=Allowed(**about))


def test_a_case_that_is_slower_as_its_machine_is_does_not_enter(write, accepted, path, directory):
    for night in steady():
        accepted(night)
    told = {"kind": "inconclusive", "reason": "the machine changed", "ratio": 2.0, "since": "20260102T000000-a"}
    metrics = {"tbt_s": {**metric(0.02, 0.02), "verdict": told}}
    write(lambda digest: case(digest, kind="inconclusive", metrics=metrics), lambda digest: case(digest, key=OTHER))
    assert left_out(path, directory) == {CASE: "is regressed since 20260102T000000-a"}


def test_an_improvement_begins_a_new_level_on_its_third_night(accepted, directory, monkeypatch):
    names = iter(("20260101T000000-x", "20260101T000001-y", "20260101T000002-z", *RED_NIGHTS))
    monkeypatch.setattr("pytest_npubench.store.journal.new_id", lambda: next(names))
    for night in steady():
        accepted(night)
    told = judged("improved", 0.97) | {"verdict": {"kind": "improved", "reason": "", "since": RED_NIGHTS[0]}}
    for number in (4, 5, 3):
        accepted(lambda digest: case(digest, kind="improved", metrics={"tbt_s": metric(0.0097, 0.0097, **told)}))
        assert num_sessions(directory) == number


def test_a_session_from_the_future_is_refused_by_name(write, path, directory, monkeypatch):
    monkeypatch.setattr("pytest_npubench.store.journal.new_id", lambda: "29990101T000000-a")
    write(case)
    assert "session 29990101T000000-a, which began in the future" in left_out(path, directory)[""]


def test_what_is_beside_a_session_from_the_future_was_compared_with_nothing(
    write, accepted, path, directory, monkeypatch
):
    with monkeypatch.context() as patched:
        patched.setattr("pytest_npubench.store.journal.new_id", lambda: "29990101T000000-a")
        patched.setattr("pytest_npubench.store.accepted_session.AHEAD", timedelta(days=365 * 2000))
        accepted(case)
    write(case, lambda digest: case(digest, key=OTHER))
    assert "its accepted session 29990101T000000-a began in the future" in left_out(path, directory)[CASE]
