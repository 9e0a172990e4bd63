"""Uploading journals into both kinds of database; the rows are compared with the journal's lines."""

import pytest
from made_journals import case_record, expected_rows, stack, write_session
from store.journal_lines import read_lines, write_lines

from pytest_npubench.errors import ConfigError, HistoryError, JournalError
from pytest_npubench.store.fingerprint import FingerprintKey
from pytest_npubench.store.history import durations, history_series, history_sessions, upload_journal
from pytest_npubench.store.history.schema import KEY_PARTS
from pytest_npubench.store.journal import JournalWriter, read_journal


def upload(url, path):
    return upload_journal(url, read_journal(path))


def test_every_row_is_the_journals(url, tmp_path, rows_of):
    path = tmp_path / "journal.jsonl"
    for driver in ("570.86", "580.12"):
        write_session(path, driver=driver)
    done = upload(url, path)
    assert (done.num_sessions, done.num_new_sessions, done.num_grown_sessions) == (2, 2, 0)
    assert (done.num_cases, done.num_metrics) == (6, 12)
    assert rows_of(url) == expected_rows(path)


def test_a_second_upload_writes_nothing(url, tmp_path, rows_of):
    path = tmp_path / "journal.jsonl"
    write_session(path)
    upload(url, path)
    done = upload(url, path)
    assert (done.num_new_sessions, done.num_grown_sessions, done.num_cases) == (0, 0, 0)
    assert rows_of(url) == expected_rows(path)


def test_a_running_session_is_completed_and_never_shortened(url, tmp_path, rows_of):
    path, early = tmp_path / "journal.jsonl", tmp_path / "early.jsonl"
    write_session(path)
    early.write_text("".join(path.read_text().splitlines(keepends=True)[:4]))
    assert upload(url, early).num_new_sessions == 1
    assert rows_of(url) == expected_rows(early)
    assert history_sessions(url)[0].exit_status is None
    assert upload(url, path).num_grown_sessions == 1
    assert rows_of(url) == expected_rows(path)
    assert upload(url, early).num_grown_sessions == 0  # an uploader that read the journal long ago comes late
    assert rows_of(url) == expected_rows(path)


def test_a_case_measured_again_counts_once_with_its_latest_figures(url, tmp_path, rows_of):
    path = tmp_path / "journal.jsonl"
    with JournalWriter.open(path, host=stack().host, settings={}) as journal:
        digest = journal.device(stack())
        journal.append(case_record(digest))
        upload(url, path)
        metrics = {"tbt_s": {"unit": "s", "value": 0.003, "better": "lower", "samples": [0.003]}}
        journal.append(case_record(digest, metrics=metrics))
    upload(url, path)
    assert rows_of(url) == expected_rows(path)
    assert [row.value for row in history_series(url)] == [0.003]


def test_what_a_journal_may_hold_besides(url, tmp_path):
    path = tmp_path / "journal.jsonl"
    with JournalWriter.open(path, host=stack().host, settings={"note": "a\0b \ud800"}) as journal:
        digest = journal.device(stack())
        journal.append(case_record(None, 0, metrics={}, verdict={"kind": "invalid", "reason": "no \0 device \ud800"}))
        figures = {"m": 1e301, "p": 1}
        metrics = {
            name: {"unit": "", "value": value, "better": "lower", "samples": []} for name, value in figures.items()
        }
        bare = case_record(digest, 1, metrics=metrics)
        journal.append({name: value for name, value in bare.items() if name not in ("device", "duration_s", "error")})
    done = upload(url, path)
    assert (done.num_cases, done.num_metrics) == (2, 1)
    (row,) = history_series(url)
    assert (row.metric, row.value, row.median, row.samples, row.device) == ("p", 1.0, 1.0, (), "")
    (session,) = history_sessions(url)
    assert session.verdicts == {"invalid": 1, "passed": 1}
    assert session.settings == {"note": "a\0b \ud800"}


def test_a_reference_to_no_device_is_named_and_nothing_is_written(url, tmp_path):
    path = tmp_path / "journal.jsonl"
    write_session(path, num_cases=1)
    write_lines(path, [record for record in read_lines(path) if record["record"] != "device"])
    with pytest.raises(JournalError, match="no device record has the digest"):
        upload(url, path)


def test_series_carry_stack_and_raw_samples(url, tmp_path):
    path = tmp_path / "journal.jsonl"
    session = write_session(path, num_cases=1)
    upload(url, path)
    (row,) = history_series(url, metric="tbt_s")
    assert row.session == session
    assert row.key == stack().key()
    assert (row.host, row.git_revision, row.hardware, row.digest) == ("bench-1", "0123456789ab", "h200", "5d41402abc4b")
    assert (row.unit, row.better, row.value, row.median) == ("s", "lower", 0.0021, 0.0021)
    assert row.samples == (0.002, 0.0021, 0.0022)


def test_where_narrows_by_stack_session_and_device(url, tmp_path):
    path = tmp_path / "journal.jsonl"
    first = write_session(path, driver="570.86", num_cases=1)
    second = write_session(path, driver="580.12", host="bench-2", num_cases=2)
    upload(url, path)

    def found(**where):
        return {row.session for row in history_series(url, where=where)}, {
            row.session for row in history_sessions(url, where)
        }

    both = {first, second}
    for where, wanted in (
        ({"driver": "570.86"}, {first}),
        ({"driver": "580.12", "host": "bench-2"}, {second}),
        ({"driver": "570.86", "host": "bench-2"}, set()),
        ({"session": first}, {first}),
        ({"hardware": "h200"}, both),
        ({"device": "cuda:1"}, set()),
        ({"compiler": "unknown"}, both),
        ({"driver": "unknown"}, set()),
        ({"git_revision": "0123456789ab"}, both),
    ):
        assert found(**where) == (wanted, wanted), where
    assert {row.case for row in history_series(url, "buckets/profile/h200-tiny-b4-bucket1")} == {
        "buckets/profile/h200-tiny-b4-bucket1"
    }
    for ask in (history_series, history_sessions):
        with pytest.raises(ConfigError, match=r"cannot select by 'drover'; allowed are accelerator, .*session"):
            ask(url, where={"drover": "1"})


def test_invalid_and_resumed_results_are_no_part_of_series_and_durations(url, tmp_path):
    path = tmp_path / "journal.jsonl"
    with JournalWriter.open(path, host=stack().host, settings={}) as journal:
        digest = journal.device(stack())
        journal.append(case_record(digest, 0))
        journal.append(case_record(digest, 1, resumed=True))
        journal.append(case_record(digest, 2, verdict={"kind": "invalid", "reason": "throttled"}))
    upload(url, path)
    assert {row.case[-1] for row in history_series(url)} == {"0"}
    assert durations(url) == {"buckets/profile/h200-tiny-b4-bucket0": 8.5}


def test_durations_are_medians_over_the_sessions(url, tmp_path):
    path = tmp_path / "journal.jsonl"
    for duration_s in (1.0, 9.0, 2.0):
        with JournalWriter.open(path, host=stack().host, settings={}) as journal:
            journal.append(case_record(journal.device(stack()), duration_s=duration_s))
    upload(url, path)
    assert list(durations(url).values()) == [2.0]


def test_sessions_come_newest_first_in_utc(url, tmp_path):
    path = tmp_path / "journal.jsonl"
    for _ in range(3):
        write_session(path, num_cases=0)
    lines = read_lines(path)
    starts = iter(["2026-11-02T00:30:00+02:00", "2026-11-01T23:00:00Z", "2026-11-01T20:00:00-01:00"])
    for line in lines:
        if line["record"] == "session":
            line["started_at"] = next(starts)
    write_lines(path, lines)
    upload(url, path)
    assert [row.started_at[:16] for row in history_sessions(url)] == [
        "2026-11-01T23:00",
        "2026-11-01T22:30",
        "2026-11-01T21:00",
    ]
    assert len(history_sessions(url, limit=2)) == 2


def test_an_empty_journal_makes_an_empty_history(url, tmp_path):
    path = tmp_path / "journal.jsonl"
    path.touch()
    assert upload(url, path).num_sessions == 0
    assert history_series(url) == ()
    assert history_sessions(url) == ()


def test_beside_the_tables_of_others_only_on_a_server(url, tmp_path, ask, rows_of):
    path = tmp_path / "journal.jsonl"
    write_session(path)
    ask(url, "CREATE TABLE accounts (id INTEGER)")
    if url.endswith(".db"):
        with pytest.raises(HistoryError, match=r"is no history; it holds other tables \(accounts\)"):
            upload(url, path)
        assert ask(url, "SELECT name FROM sqlite_master") == [("accounts",)]
    else:
        upload(url, path)
        assert rows_of(url) == expected_rows(path)


def test_every_part_of_a_key_has_its_column():
    assert set(FingerprintKey.__slots__) <= set(KEY_PARTS)
