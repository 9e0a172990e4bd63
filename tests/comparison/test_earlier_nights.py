"""What the nights before this one have to say: which are pending, since when a metric is changed, what went."""

from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from pytest_npubench.comparison.earlier_nights import EarlierNights
from pytest_npubench.comparison.observation import Night, accepted_history
from pytest_npubench.store.aliases import Aliases
from pytest_npubench.store.baseline_changes import reject, reset
from pytest_npubench.store.baselines import Baselines
from pytest_npubench.store.history import history_series, upload_journal
from pytest_npubench.store.journal import JournalWriter, read_journal
from pytest_npubench.verdict import VerdictKind

from .made_nights import case_record, metric, stack
from .test_accepted import CASE, OLD, accept, numbers, observed

REGRESSED, IMPROVED = VerdictKind.REGRESSED, VerdictKind.IMPROVED
UNCHANGED, IN_DOUBT = VerdictKind.UNCHANGED, VerdictKind.INCONCLUSIVE


def night(number, kind=UNCHANGED, since=None, **about):
    """Its only sample is its number, as that of accepted sessions."""
    day = datetime(2026, 1, 1, 12, tzinfo=timezone.utc) + timedelta(days=number)
    told = {"session": f"session-{number}", "began_at": day, "stack": stack(), "seen": observed(float(number))}
    return Night(kind=kind, since=since and f"session-{since}", **(told | about))


def history(directory, *nights):
    return accepted_history(Baselines.load(directory), observed(), OLD, nights=nights)


def test_pending_is_what_was_measured_after_the_newest_accepted_one_and_is_comparable(tmp_path, monkeypatch):
    accept(tmp_path, (1, 2, 3, 5))
    reject(tmp_path, "session-5")
    found = history(
        tmp_path,
        night(2),
        night(5),  # rejected by a person
        night(6, stack=stack("580.12")),
        night(7, seen=replace(observed(7.0), unit="ms")),
        night(8),
        night(9, IN_DOUBT),
    )
    assert (numbers(found.sessions), numbers(found.pending), found.since) == ([1, 2, 3], [8, 9], None)
    monkeypatch.setattr("pytest_npubench.store.baseline_changes.now", lambda: night(9).began_at.isoformat())
    reset(tmp_path, [CASE], reason="another kernel")
    accept(tmp_path, [9])
    assert numbers(history(tmp_path, night(8, REGRESSED, 8), night(10)).pending) == [10]


@pytest.mark.parametrize(
    ("nights", "since"),
    [
        ([night(4, REGRESSED, 4), night(5, REGRESSED, 4)], "session-4"),
        ([night(4, IN_DOUBT), night(5, REGRESSED, 4)], "session-4"),
        ([night(4, REGRESSED, 4), night(5, IN_DOUBT, 4)], "session-4"),  # the machine changed
        ([night(4, IMPROVED, 4)], "session-4"),
        ([night(5, REGRESSED, 2)], "session-2"),  # nights in doubt were accepted
        ([night(4, REGRESSED, 4), night(5, VerdictKind.NO_BASELINE)], "session-4"),
        ([night(4, REGRESSED, 4), night(5)], None),
        ([night(3, REGRESSED, 3)], None),  # a person accepted it
    ],
)
def test_since_when_a_metric_is_changed_is_what_the_newest_night_says(tmp_path, nights, since):
    accept(tmp_path, (1, 2, 3))
    assert history(tmp_path, *nights).since == since


def test_nights_of_a_change_that_went_are_no_reference_and_no_night_before_this_one(tmp_path):
    accept(tmp_path, (1, 2, 3, 4))  # 4 was in doubt
    red = [night(4, IN_DOUBT), night(5, REGRESSED, 4), night(6, REGRESSED, 4)]
    while_red = history(tmp_path, *red)
    assert (numbers(while_red.sessions), numbers(while_red.pending)) == ([1, 2, 3, 4], [5, 6])
    went = history(tmp_path, *red, night(7), night(8, REGRESSED, 8))
    assert (numbers(went.sessions), numbers(went.pending), went.since) == ([1, 2, 3], [7, 8], "session-8")
    assert sorted(went.gone) == ["session-4", "session-5", "session-6"]


def test_nights_of_an_improvement_that_went_stay_only_where_they_were_accepted(tmp_path):
    """Otherwise they would prove it again, the night after it is gone."""
    accept(tmp_path, (1, 2, 3, 4))  # 4 was a small improvement, and green
    better = [night(4, IMPROVED, 4), night(5, IMPROVED, 4), night(6, IMPROVED, 4)]
    went = history(tmp_path, *better, night(7), night(8))
    assert (numbers(went.sessions), numbers(went.pending), went.since) == ([1, 2, 3, 4], [7, 8], None)
    assert sorted(went.gone) == ["session-5", "session-6"]


def test_nights_that_were_disturbed_in_part_are_missing(tmp_path):
    accept(tmp_path, (1, 2, 3))
    accept(tmp_path, [4], is_disturbed=True)
    quiet = replace(observed(6.0), is_disturbed=True)
    found = history(tmp_path, night(5, REGRESSED, 5), night(6, seen=quiet), night(7, REGRESSED, 7, seen=quiet))
    assert (numbers(found.sessions), numbers(found.pending), found.since) == ([1, 2, 3], [5], "session-5")
    reject(tmp_path, "session-3")
    assert numbers(history(tmp_path).sessions) == [1, 2, 4]  # fewer than three others would say nothing


def test_a_session_that_was_accepted_from_the_future_is_refused_by_name(tmp_path):
    accept(tmp_path, (1, 2, 3, 9999))
    found = history(tmp_path)
    assert found.instead.kind is VerdictKind.INCOMPARABLE
    assert "session-9999 began in the future" in found.instead.reason
    assert "npubench baseline reject session-9999" in found.instead.reason


def test_nights_are_read_in_the_order_that_they_began_and_none_of_the_future(tmp_path, monkeypatch):
    path, told = tmp_path / "journal.jsonl", {"kind": "regressed", "reason": "slow", "since": "20260102T000000-b"}
    for session in ("20260103T000000-a", "20260102T000000-b", "29990101T000000-c", "20260104T000000-d"):
        monkeypatch.setattr("pytest_npubench.store.journal.new_id", lambda session=session: session)
        with JournalWriter.open(path, host=stack().host, settings={}) as journal:
            entry = metric([float(session[7])], verdict=told)
            journal.append(case_record(journal.device(stack()), CASE, {"tbt_s": entry}, verdict=told))
    found = EarlierNights.read(read_journal(path), "20260104T000000-d")
    nights = found.of(CASE, "5d41402abc4b", "tbt_s", Aliases())
    assert [one.session for one in nights] == ["20260102T000000-b", "20260103T000000-a"]
    assert {(one.kind, one.since) for one in nights} == {(REGRESSED, "20260102T000000-b")}
    assert found.from_future == ("29990101T000000-c",)
    url = str(tmp_path / "history.db")
    upload_journal(url, read_journal(path))
    assert EarlierNights.of_history(history_series(url)) == EarlierNights.read(read_journal(path), "")
