"""What waits for a person before it is accepted: other answers, improvements, and regressions that are meant."""

import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
from accepted_results import CASE, OTHER
from written_runs import RED, case, metric, timed

from pytest_npubench.cli.main import main
from pytest_npubench.errors import BaselineError, RunNotAcceptedError
from pytest_npubench.plugin.outcome import accept_results
from pytest_npubench.store.journal import read_journal
from pytest_npubench.store.waiting import Allowed, baselines_option

ANSWERS = "buckets/answers/cpu-tiny-b4"
ELSEWHERE = "buckets/profile/cpu-small-b4-bucket128"
VECTOR = [float((7 * number) % 16) for number in range(32)]
STEADY_S = (0.0100, 0.0101, 0.0099)
STEADY_NIGHTS = ("20260101T000000-x", "20260101T000001-y", "20260101T000002-z")
RED_NIGHTS = ("20260102T000000-a", "20260103T000000-b", "20260104T000000-c")
LATER_NIGHTS = ("20260105T000000-d", "20260106T000000-e")
MEANT = Allowed(regressed=(CASE,), reason="exact attention")
COUNTED = {"work": {"steps": 33.0}}


def answers(kind="unchanged", *, gate="answers", **about):
    verdict = {"kind": kind, "reason": f"it is {kind}", "ratio": None}
    vector = metric(*VECTOR, unit="", gate=gate, margin=1e-5, verdict=verdict)
    return case(ANSWERS, kind=kind, metrics={} if kind == "invalid" else {"answer_change": vector}, **about)


def steady(values_s=STEADY_S, **about):
    return [timed(value_s, **about) for value_s in values_s]


def levels(runs):
    """The sessions of the case in the order accepted, each of which has the reason."""
    assert {session.reason for session in runs.sessions()} == {MEANT.reason}
    return [session.session for session in runs.sessions()]


@pytest.fixture
def red(runs, name_sessions):
    """Three nights that regressed behind three accepted ones, each a day of its own; `since` is the first of them."""
    name_sessions(*STEADY_NIGHTS, *RED_NIGHTS)
    runs.accept_each(*steady())
    for _ in RED_NIGHTS:
        runs.write(timed(0.02, "regressed", since=RED_NIGHTS[0]), case(OTHER), end=RED)
    return runs


def test_other_answers_keep_their_whole_campaign_out(runs):
    runs.write(case(), answers("regressed"), case(ELSEWHERE), end=RED)
    assert runs.left_out() == dict.fromkeys((CASE, ANSWERS), "other answers: pass --accept-answers")
    assert (len(runs.sessions()), len(runs.sessions(ELSEWHERE))) == (0, 1)
    assert runs.accept(allowed=Allowed(answers=True)).left_out == ()
    assert runs.sessions(ANSWERS)[0].metrics["answer_change"].processes == (tuple(VECTOR),)


def test_a_run_and_the_command_line_pass_on_that_other_answers_are_meant(runs, capsys):
    runs.write(case(), answers("regressed"), end=RED)
    (session,) = read_journal(runs.path).sessions
    for is_meant, said in ((False, "nothing accepted: "), (True, "accepted 2 cases")):
        settings = SimpleNamespace(journal=runs.path, baselines=runs.directory, accept_answers=is_meant)
        assert accept_results(settings, 1, session.run).startswith(said)
    elsewhere = ["baseline", "accept", str(runs.path), "--baselines", str(runs.directory.parent / "elsewhere")]
    assert (main(elsewhere), main([*elsewhere, "--accept-answers"])) == (1, 0)
    assert "other answers: pass --accept-answers" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["failed", "invalid"])
def test_wrong_answers_are_let_in_by_nobody(runs, kind):
    runs.write(case(), answers(kind), case(ELSEWHERE), end=RED)
    reasons = runs.left_out(allowed=Allowed(answers=True))
    assert reasons[CASE] == f"is of a model whose answers are {kind}: {ANSWERS}"
    assert reasons[ANSWERS].startswith(f"is {kind}")


@pytest.mark.parametrize(
    ("about", "left_out"),
    [
        ({"gate": "exact"}, ""),  # what regressed beside answers is no matter of answers
        ({"device": "cuda:1"}, ANSWERS),  # the answers of another device say nothing
    ],
)
def test_answers_of_another_gate_or_device(runs, about, left_out):
    runs.write(case(), answers("regressed", **about), end=RED)
    allowed = Allowed(answers="gate" in about)
    assert runs.left_out(allowed=allowed).keys() == {left_out}


@pytest.mark.parametrize(
    ("values_s", "tbt_s", "waits"),
    [
        (STEADY_S, 0.0050, True),
        (STEADY_S, 0.0093, True),
        (STEADY_S, 0.0097, False),  # a newer driver
        ((0.0100, 0.0080, 0.0120), 0.0075, False),  # sessions differ by a third
        ((0.0100, 0.0080, 0.0120), 0.0060, True),
    ],
)
def test_an_improvement_beyond_what_sessions_differ_by_waits(runs, values_s, tbt_s, waits):
    runs.accept_each(*steady(values_s))
    session = runs.write(timed(tbt_s, "improved"))
    reasons = runs.left_out()
    assert len(runs.sessions()) == (3 if waits else 4)
    if waits:
        command = f"npubench baseline accept {runs.path} --session {session} --improved {CASE} --reason TEXT"
        assert reasons[""].startswith(f"{CASE} waits for a person: tbt_s is {100 - tbt_s * 1e4:.2g} % better, where ")
        assert reasons[""].endswith(f"; what it did was not counted; {command}")
        elsewhere = f"accept {runs.path} --baselines {runs.directory} --session {session} "
        with pytest.raises(RunNotAcceptedError, match=re.escape(elsewhere)):
            runs.accept(options=baselines_option(runs.directory))


@pytest.mark.parametrize(
    ("work", "kind", "doubt"),
    [
        (COUNTED, "unchanged", None),
        ({"work": {"steps": 17.0}}, "unchanged", "steps: 17 where 33 were accepted"),
        ({}, "unchanged", "what it did was not counted"),
        (COUNTED, "no-baseline", "its model's answers were not compared"),
        (COUNTED, "inconclusive", "its model's answers were not compared"),
        (COUNTED, None, "its model's answers were not compared"),
    ],
)
def test_it_enters_where_the_model_answers_and_works_as_accepted(runs, work, kind, doubt):
    runs.accept_each(*steady(**COUNTED))
    runs.write(timed(0.005, "improved", **work), *([answers(kind)] if kind else []))
    reasons = runs.left_out()
    assert bool(reasons) is bool(doubt)
    assert doubt is None or f"; {doubt}; npubench baseline accept " in "".join(reasons.values())
    assert len(runs.sessions()) == (3 if doubt else 4)


def test_a_person_lets_it_in_by_name_and_from_then_on_its_level_is_known(runs):
    runs.accept_each(*steady())
    runs.write(timed(0.005, "improved"), case(OTHER))
    allowed = Allowed(improved=("buckets/profile/*-bucket128",), reason="fused kernel, issue 71")
    assert runs.accept(allowed=allowed).left_out == ()
    assert [session.reason for session in runs.sessions()] == ["fused kernel, issue 71"]
    assert [session.reason for session in runs.sessions(OTHER)] == [""]
    assert runs.left_out() == {}  # the same run again
    runs.write(timed(0.0049, "improved"))
    assert runs.left_out() == {}
    runs.write(timed(0.0045, "improved"))
    assert "waits for a person" in runs.left_out()[""]


@pytest.mark.parametrize(
    ("about", "words"),
    [
        ({"improved": ("buckets/profile/cpu-tiny-b4-bucket129",)}, "no case of the run .* did you mean"),
        ({"improved": (CASE,), "reason": " "}, "needs a --reason"),
        ({"improved": (CASE,)}, f"--improved {CASE}: no such case of the run is improved"),
        ({"regressed": (OTHER,)}, f"--regressed {OTHER}: no such case of the run is regressed"),
        ({"regressed": (CASE,), "reason": " "}, "--regressed needs a --reason"),
    ],
)
def test_what_is_not_so_and_what_has_no_reason_is_refused(red, about, words):
    with pytest.raises(BaselineError, match=words):
        red.accept(allowed=Allowed(**{"reason": "x"} | about))


def test_a_counter_that_became_nothing_waits(runs):
    runs.accept_each(*[case(metrics={"loaded": metric(4096, unit="B", gate="exact")})] * 3)
    verdict = {"kind": "improved", "reason": "it is improved", "ratio": 0.0}
    runs.write(case(kind="improved", metrics={"loaded": metric(0, unit="B", gate="exact", verdict=verdict)}))
    assert "waits for a person: loaded improved; " in runs.left_out()[""]


def test_a_person_lets_in_a_regression_with_all_its_nights(red):
    assert red.left_out()[CASE].startswith("is regressed")
    assert len(red.sessions()) == 3
    done = red.accept(allowed=replace(MEANT, regressed=("cpu-tiny-b4-bucket128",)))
    assert (done.num_cases, done.left_out) == (2, ())
    assert levels(red) == list(RED_NIGHTS)
    assert [session.session for session in red.sessions(OTHER)] == [RED_NIGHTS[-1]]


def test_two_changes_for_one_reason_are_two_levels(runs, name_sessions):
    name_sessions(*RED_NIGHTS, *LATER_NIGHTS)
    for nights in (RED_NIGHTS, LATER_NIGHTS):
        for _ in nights:
            runs.write(timed(0.02, "regressed", since=nights[0]), end=RED)
        runs.accept(allowed=MEANT)
    assert levels(runs) == list(LATER_NIGHTS)


def test_nights_enter_up_to_the_run_that_a_person_lets_in(red, name_sessions):
    """Neither the night on which it was gone again, nor one of a clock that ran ahead."""
    name_sessions(LATER_NIGHTS[0], "29990101T000000-e")
    red.write(case())
    red.write(timed(0.02, "regressed", since=RED_NIGHTS[0]), end=RED)
    red.accept(RED_NIGHTS[1], allowed=MEANT)
    assert levels(red) == list(RED_NIGHTS[:2])


def test_a_rejected_night_does_not_enter_with_the_others_and_is_no_case_of_the_run(red):
    red.accept(RED_NIGHTS[0], allowed=MEANT)
    assert main(["baseline", "reject", RED_NIGHTS[0], "--baselines", str(red.directory)]) == 0
    done = red.accept(allowed=MEANT)
    assert (done.num_cases, done.left_out) == (2, ())
    assert levels(red) == list(RED_NIGHTS[1:])


def test_nights_enter_of_all_commits_and_devices_since_the_change(runs, name_sessions):
    """On two devices of a session, which names its nights after the device."""
    name_sessions(*RED_NIGHTS)
    for revision in "abc":
        host = replace(runs.fingerprint.host, git_revision=revision)
        with runs.open() as journal:
            for number, device in enumerate(("cuda:0", "cuda:1")):
                facts = replace(runs.fingerprint.device, extra={"number": str(number)})
                night = timed(0.02, "regressed", since=f"{RED_NIGHTS[0]}@{device}", device=device)
                runs.append(journal, night, fingerprint=replace(runs.fingerprint, host=host, device=facts))
            journal.append(RED)
    runs.accept(allowed=MEANT)
    assert levels(runs) == [f"{session}@cuda:{number}" for session in RED_NIGHTS for number in (0, 1)]


def test_a_case_that_is_slower_as_its_machine_is_does_not_enter(runs):
    runs.accept_each(*steady())
    runs.write(timed(0.02, "inconclusive", since=RED_NIGHTS[0]), case(OTHER))
    assert runs.left_out() == {CASE: f"is regressed since {RED_NIGHTS[0]}"}


def test_an_improvement_begins_a_new_level_on_its_third_night(runs, name_sessions):
    name_sessions(*STEADY_NIGHTS, *RED_NIGHTS)
    runs.accept_each(*steady())
    for number in (4, 5, 3):
        runs.accept_each(timed(0.0097, "improved", since=RED_NIGHTS[0]))
        assert len(runs.sessions()) == number
