"""A run's records are its own, however many runs write one journal at once."""

import pytest

from pytest_npubench.errors import JournalError, RunNotAcceptedError
from pytest_npubench.store.accept_run import accept_run
from pytest_npubench.store.journal import JournalWriter, read_journal
from pytest_npubench.store.journal_runs import chosen_sessions, run_of, sessions_of

END = {"record": "end", "exit_status": 0, "counts": {}}


def case(digest, number):
    return {
        "record": "case",
        "case": f"buckets/profile/cpu-tiny-b1-bucket{number}",
        "id": f"cpu-tiny-b1-bucket{number}",
        "hardware": "cpu",
        "digest": "d",
        "fingerprint": digest,
        "device": "cpu:0",
        "verdict": {"kind": "passed", "reason": ""},
        "metrics": {"tbt_s": {"unit": "s", "value": 1.0, "better": "lower", "samples": [1.0], "gate": "ratio"}},
    }


@pytest.fixture
def two_runs(tmp_path, host, fingerprint):
    """Two runs of two workers each that write at once, three cases a worker; returns the journal's path."""
    path = tmp_path / "journal.jsonl"
    writers = [
        JournalWriter.open(path, host=host, settings={}, worker=worker, run=run)
        for worker in ("gw0", "gw1")
        for run in ("one", "two")
    ]
    digests = [writer.device(fingerprint) for writer in writers]
    for number in range(3):
        for place, writer in enumerate(writers):
            record = case(digests[place], 10 * place + number)
            writer.append(record)
            writer.append({"record": "outcome", "case": record["case"], "device": "cpu:0", "outcome": "passed"})
    for writer in writers:
        writer.append(END)
        writer.close()
    return path


def numbers(sessions):
    return [
        int(record["case"].rpartition("bucket")[2])
        for session in sessions
        for record in session.records
        if record["record"] == "case"
    ]


def test_each_run_has_its_own_cases_and_accepts_these_alone(two_runs, tmp_path):
    journal = read_journal(two_runs)
    assert numbers(sessions_of(journal, "one")) == [0, 1, 2, 20, 21, 22]
    assert numbers(sessions_of(journal, "two")) == [10, 11, 12, 30, 31, 32]
    assert chosen_sessions(journal, None) == sessions_of(journal, "two")
    assert run_of(journal, journal.sessions[0]) == sessions_of(journal, "one")
    for run in ("one", "two"):
        assert accept_run(journal, sessions_of(journal, run), tmp_path / run).num_cases == 6


def test_a_run_that_is_not_in_the_journal_is_named(two_runs):
    with pytest.raises(JournalError, match="the run three has no cases in it"):
        sessions_of(read_journal(two_runs), "three")


def without(path, number):
    lines = path.read_bytes().splitlines(keepends=True)
    del lines[number]
    path.write_bytes(b"".join(lines))


def test_a_damaged_worker_keeps_its_run_out_and_the_other_run_in(two_runs, tmp_path):
    without(two_runs, 8)  # a case of the first run's first worker
    journal = read_journal(two_runs)
    for use in (lambda: sessions_of(journal, "one"), lambda: chosen_sessions(journal, journal.damaged[0].id)):
        with pytest.raises(JournalError, match=r"is damaged: line 9: 1 line of its session before it missing"):
            use()
    other = next(session for session in journal.sessions if session.run == "one")
    with pytest.raises(RunNotAcceptedError, match="is damaged"):
        accept_run(journal, [other], tmp_path / "one")
    assert accept_run(journal, sessions_of(journal, "two"), tmp_path / "two").num_cases == 6


def test_where_a_header_is_lost_no_run_that_wrote_then_is_whole(two_runs):
    without(two_runs, 0)
    journal = read_journal(two_runs)
    for run in ("one", "two"):
        with pytest.raises(JournalError, match="of this run is damaged: line 4: 1 line"):
            sessions_of(journal, run)


def test_an_earlier_run_is_not_taken_for_a_damaged_latest_one(two_runs, host):
    with JournalWriter.open(two_runs, host=host, settings={}) as later:
        for record in (case(None, 1), case(None, 2), END):
            later.append(record)
    without(two_runs, -2)
    journal = read_journal(two_runs)
    with pytest.raises(JournalError, match=f"the latest run may be that of session {later.session}, which is damaged"):
        chosen_sessions(journal, None)
    assert len(chosen_sessions(journal, journal.sessions[0].id)) == 1


def test_rounds_of_runs_at_once_do_not_mix(tmp_path, host):
    path = tmp_path / "journal.jsonl"
    with (
        JournalWriter.open(path, host=host, settings={}) as one,
        JournalWriter.open(path, host=host, settings={}) as two,
    ):
        for index in range(3):
            for seconds, writer in ((1.0, one), (2.0, two)):
                about = {"fingerprint": "f", "campaign": "c", "campaign_digest": "d", "round": index}
                writer.append({"record": "round", **about, "points": {"p": [seconds]}})
    journal = read_journal(path)
    assert [record["points"]["p"] for record in journal.rounds("c", "d", "f")] == [[2.0]] * 3
    assert [r["points"]["p"] for r in journal.rounds("c", "d", "f", sessions=[one.session])] == [[1.0]] * 3
