"""The journal in one process: what is written is read, and what cannot be read or written is named."""

import errno
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from store.journal_lines import bodies, case_record, note, round_record

from pytest_npubench.errors import JournalError
from pytest_npubench.store import line_file
from pytest_npubench.store.journal import JournalWriter, read_journal

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=10)


def test_a_session_is_read_back_with_its_records(journal, path, host, fingerprint):
    assert path.parts[-2:] == (".npubench", "journal.jsonl")
    digest = journal.device(fingerprint)
    assert journal.device(fingerprint) == digest == fingerprint.digest()
    written = [
        {"record": "compile", "fingerprint": digest, "name": "b128", "compile_s": 1.5, "cache": "cold"},
        round_record(0, digest),
        case_record(fingerprint=digest),
        case_record(fingerprint=None),
        {"record": "end", "exit_status": 0, "counts": {"passed": 1}},
    ]
    for record in written:
        journal.append(record)
    read = read_journal(path)
    assert read.torn == ()
    (session,) = read.sessions
    assert session.id == journal.session
    assert session.header["settings"] == {"profile": "quick"}
    assert session.header["host"] == host.to_json()
    assert session.header["worker"] is None
    device, *others = bodies(session.records)
    assert device == {"record": "device", "digest": digest, "fingerprint": fingerprint.to_json()}
    assert others == written
    assert session.end is not None
    assert session.records == read.records
    assert read.fingerprint(digest) == fingerprint
    with pytest.raises(JournalError, match="no device record has the digest 0000"):
        read.fingerprint("0000")


@settings(max_examples=40, deadline=None)
@given(st.lists(st.dictionaries(st.text().filter(lambda name: name not in ("record", "session")), VALUES), max_size=4))
def test_any_record_round_trip(tmp_path_factory, host, contents):
    path = tmp_path_factory.mktemp("journal") / "journal.jsonl"
    with JournalWriter.open(path, host=host, settings={}) as journal:
        for content in contents:
            journal.append({"record": "of a later version", **content})
    assert bodies(read_journal(path).records) == [{"record": "of a later version", **item} for item in contents]


def test_each_session_has_its_own_records_also_when_they_alternate(path, host):
    with (
        JournalWriter.open(path, host=host, settings={}, worker="gw0") as one,
        JournalWriter.open(path, host=host, settings={}, worker="gw1") as two,
    ):
        for index in range(3):
            one.append(note(index))
            two.append(note(10 + index))
    read = read_journal(path)
    assert [session.header["worker"] for session in read.sessions] == ["gw0", "gw1"]
    assert [[record["index"] for record in session.records] for session in read.sessions] == [[0, 1, 2], [10, 11, 12]]
    assert [record["index"] for record in read.records] == [0, 10, 1, 11, 2, 12]
    assert read.sessions[0].end is None


def test_cases_gives_the_latest_record_of_each_case_and_digest(journal, path):
    journal.append(case_record(run=1))
    journal.append(case_record(run=2, digest="other"))
    journal.append(case_record(run=3, fingerprint="f2"))
    journal.append(case_record(run=4))
    journal.append(case_record(run=5, fingerprint=None))
    read = read_journal(path)
    runs = {key: record["run"] for key, record in read.cases("f1").items()}
    assert runs == {("s/k/i", "d"): 4, ("s/k/i", "other"): 2}
    assert [record["run"] for record in read.cases(None).values()] == [5]
    assert read.cases("f1", sessions=[]) == {}
    assert len(read.cases("f1", sessions=[journal.session])) == 2


def test_rounds_gives_the_latest_run_in_order_without_duplicates(journal, path, host):
    for index, run in [(0, 1), (1, 1), (2, 1), (5, 1), (0, 2), (2, 2), (1, 2), (2, 3)]:
        journal.append(round_record(index, run=run))
    for other in ({"fingerprint": "f2"}, {"campaign": "c2"}, {"digest": "d2"}):
        journal.append(round_record(0, run=9, **other))
    with JournalWriter.open(path, host=host, settings={}) as resumed:
        resumed.append(round_record(3, run=4))
    read = read_journal(path)
    assert [(item["round"], item["run"]) for item in read.rounds("c", "d", "f1")] == [(0, 2), (1, 2), (2, 3), (3, 4)]
    assert [item["round"] for item in read.rounds("c", "d", "f1", sessions=[resumed.session])] == [3]
    assert read.rounds("c", "d", "f3") == ()


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (round_record(0) | {"points": {"b128": [0.5, float("nan")]}}, r"points\.b128\[1\]: nan is not a"),
        (case_record(metrics={"ttft": {"value": float("inf")}}), r"case record not written: metrics\.ttft\.value: inf"),
        (note(0, where=Path("x")), "where: a PosixPath has no JSON form"),
        ({"record": "round", "round": 0}, "round record not written: fingerprint: missing"),
        (round_record(0.5), r"round: want a whole number from 0 to 2\^53, found a number"),
        (case_record() | {"verdict": {}}, r"verdict\.kind: missing"),
        ({"text": "no kind"}, "record: want the kind of the record, found None"),
        ({"record": "session"}, "want the kind of the record, found 'session'"),
    ],
)
def test_a_record_that_cannot_be_written_names_the_field_and_leaves_the_file(journal, path, record, message):
    before = path.read_bytes()
    with pytest.raises(JournalError, match=message):
        journal.append(record)
    assert path.read_bytes() == before
    journal.append(note(0))
    assert len(read_journal(path).records) == 1


def test_settings_that_cannot_be_written_leave_an_empty_journal(path, host):
    with pytest.raises(JournalError, match=r"settings\.limit: nan is not a finite number"):
        JournalWriter.open(path, host=host, settings={"limit": float("nan")})
    assert read_journal(path).sessions == ()


def test_a_record_cannot_claim_another_session(journal, path):
    journal.append(note(0, session="forged"))
    assert read_journal(path).records[0]["session"] == journal.session


def test_a_closed_journal_says_so(journal):
    journal.close()
    journal.close()
    with pytest.raises(JournalError, match="note record after the journal was closed"):
        journal.append(note(0))


# torn lines


def test_a_file_cut_at_any_byte_is_read_up_to_the_last_whole_line_and_goes_on(tmp_path, host):
    whole = tmp_path / "whole.jsonl"
    with JournalWriter.open(whole, host=host, settings={}) as journal:
        for index in range(3):
            journal.append(note(index, text="ends é"))
    raw = whole.read_bytes()
    cut = tmp_path / "cut.jsonl"
    for size in range(len(raw) + 1):
        cut.write_bytes(raw[:size])
        num_lines = raw[:size].count(b"\n")
        read = read_journal(cut)
        assert len(read.sessions) == min(num_lines, 1)
        assert [record["index"] for record in read.records] == list(range(num_lines - 1))
        assert bool(read.torn) == (raw[:size].rpartition(b"\n")[2] != b"")
        if size % 16 == 0:  # the repair costs three fsyncs
            with JournalWriter.open(cut, host=host, settings={}) as journal:
                journal.append(note(99))
            repaired = read_journal(cut)
            expected = [*range(num_lines - 1), 99]
            assert [record["index"] for record in repaired.records if record["record"] == "note"] == expected
            assert bool(repaired.torn) == bool(read.torn)


def test_torn_lines_are_reported_with_their_size(journal, path, host):
    with path.open("ab") as file:
        file.write(b'{"record":"no')
    assert read_journal(path).torn == ("line 2: 13 bytes without a line end; their writer was killed",)
    journal.append(note(0))
    read = read_journal(path)
    assert read.torn == ("before line 3: 13 bytes of a line whose writer was killed",)
    assert [record["record"] for record in read.records] == ["note", "torn"]


def test_a_torn_line_longer_than_the_search_step_is_dropped(journal, path):
    before = path.read_bytes()
    with path.open("ab") as file:
        file.write(b"x" * (2 * line_file.SEARCH_BYTES + 1))
    journal.append(note(0))
    assert path.read_bytes().startswith(before + b'{"record":"note"')
    assert len(read_journal(path).records) == 2


def test_unknown_fields_and_kinds_are_kept(journal, path):
    journal.append({"record": "power", "watts": 5})
    journal.append(note(0, mood="good"))
    assert bodies(read_journal(path).records) == [{"record": "power", "watts": 5}, note(0, mood="good")]


def test_a_device_record_that_is_no_fingerprint_is_an_error(journal, path):
    journal.append({"record": "device", "digest": "x", "fingerprint": {}})
    with pytest.raises(JournalError, match=r"device record x: fingerprint\.device: missing"):
        read_journal(path).fingerprint("x")


# files that cannot be written


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("/dev/full", "journal /dev/full: No space left on device after 0 records"),
        ("file/journal.jsonl", "File exists|Not a directory"),
        (".", "Is a directory"),
    ],
)
def test_where_no_file_can_be_written_the_error_is_clear(tmp_path, host, name, message):
    if name == "/dev/full" and not Path(name).exists():
        pytest.skip("no /dev/full on this system")
    (tmp_path / "file").touch()
    with pytest.raises(JournalError, match=message):
        JournalWriter.open(tmp_path / name, host=host, settings={})


def fake_disk_that_fills(monkeypatch, num_bytes):
    """A fake: os.write that takes `num_bytes` of the next line for real and then has no space left."""
    real_write, calls = os.write, []

    def write(descriptor, data):
        calls.append(len(data))
        if len(calls) == 1 and num_bytes:
            return real_write(descriptor, bytes(data)[:num_bytes])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(line_file.os, "write", write)
    return calls


@pytest.mark.parametrize("num_bytes", [0, 1, 40])
def test_a_short_write_on_a_fake_full_disk_is_cut_back(journal, path, num_bytes):
    journal.append(note(0))
    before = path.read_bytes()
    with pytest.MonkeyPatch.context() as monkeypatch:
        fake_disk_that_fills(monkeypatch, num_bytes)
        message = "No space left on device after 2 records; what was written before is whole"
        with pytest.raises(JournalError, match=message):
            journal.append(note(1))
    assert path.read_bytes() == before
    journal.append(note(2))
    read = read_journal(path)
    assert [record["index"] for record in read.records] == [0, 2]
    assert read.torn == ()


def test_a_short_write_that_recovers_completes_its_line_with_a_fake_write(journal, path, monkeypatch):
    real_write = os.write
    monkeypatch.setattr(line_file.os, "write", lambda descriptor, data: real_write(descriptor, bytes(data)[:7]))
    journal.append(note(0))
    assert bodies(read_journal(path).records) == [note(0)]


def test_an_fsync_that_fails_takes_the_line_back_with_a_fake_fsync(journal, path, monkeypatch):
    before = path.read_bytes()
    monkeypatch.setattr(line_file.os, "fsync", Mock(side_effect=OSError(errno.EIO, os.strerror(errno.EIO))))
    with pytest.raises(JournalError, match="Input/output error after 1 records"):
        journal.append(note(0))
    assert path.read_bytes() == before


def test_every_append_is_one_write_and_is_synced_before_it_returns(journal, path, monkeypatch):
    calls = []
    real = {"write": os.write, "fsync": os.fsync}
    for name in real:
        monkeypatch.setattr(
            line_file.os, name, lambda *arguments, name=name: (calls.append(name), real[name](*arguments))[1]
        )
    journal.append(note(0))
    assert calls == ["write", "fsync"]


def test_threads_that_share_a_writer_write_whole_lines(journal, path):
    def write(worker):
        for index in range(20):
            journal.append(note(index, worker=worker, padding="x" * 10_000))

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(write, range(4)))
    records = read_journal(path).records
    for worker in range(4):
        assert [record["index"] for record in records if record["worker"] == worker] == list(range(20))


def test_the_file_stays_plain_json_lines(journal, path):
    journal.append(note(0, text="é\u2028\ud800"))
    lines = path.read_text(encoding="ascii").splitlines()
    assert json.loads(lines[1])["text"] == "é\u2028\ud800"
