"""The journal in one process: what is written is read, and what cannot be read or written is named."""

import errno
import json
import os
import re
import threading
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from store.journal_lines import edited, read_lines, write_lines

from pytest_npubench.errors import FormatVersionError, JournalError
from pytest_npubench.store import line_file
from pytest_npubench.store.journal import JournalWriter, read_journal
from pytest_npubench.store.journal_format import sealed

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=10)


@pytest.fixture
def path(tmp_path):
    return tmp_path / ".npubench" / "journal.jsonl"


@pytest.fixture
def journal(path, host):
    with JournalWriter.open(path, host=host, settings={"profile": "quick"}) as writer:
        yield writer


def note(index, **more):
    return {"record": "note", "text": f"note {index}", "index": index, **more}


def round_record(index, fingerprint="f1", campaign="c", digest="d", **more):
    points = {"b128": [0.25]}
    about = {"fingerprint": fingerprint, "campaign": campaign, "campaign_digest": digest}
    return {"record": "round", **about, "round": index, "points": points, **more}


def case_record(case="s/k/i", digest="d", fingerprint="f1", **more):
    about = {"id": "i", "hardware": "cpu", "verdict": {"kind": "passed", "reason": "measured"}}
    return {"record": "case", "case": case, "digest": digest, "fingerprint": fingerprint, **about, **more}


def bodies(records):
    return [{name: value for name, value in record.items() if name != "session"} for record in records]


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


# files that cannot be read


def test_an_empty_file_has_no_sessions(tmp_path):
    path = tmp_path / "journal.jsonl"
    path.touch()
    read = read_journal(path)
    assert (read.sessions, read.records, read.torn) == ((), (), ())


def test_missing_file_directory_and_pipe(tmp_path):
    with pytest.raises(JournalError, match=r"absent\.jsonl: No such file or directory"):
        read_journal(tmp_path / "absent.jsonl")
    with pytest.raises(JournalError, match="is a folder; want a file"):
        read_journal(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(JournalError, match="is a pipe; want a file"):
        read_journal(tmp_path / "pipe")


@pytest.mark.parametrize("content", [b"\x00\x01\xff" * 100, b"{}\n", b"my notes", b'{"record":"session"}\n', b"\n"])
def test_a_file_that_is_no_journal_is_neither_read_nor_touched(tmp_path, host, content):
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(JournalError, match="is not a journal"):
        read_journal(path)
    with pytest.raises(JournalError, match="is not a journal"):
        JournalWriter.open(path, host=host, settings={})
    assert path.read_bytes() == content


def replaced(path, number, old, new):
    lines = path.read_bytes().split(b"\n")
    assert old in lines[number - 1]
    lines[number - 1] = lines[number - 1].replace(old, new)
    path.write_bytes(b"\n".join(lines))


def damage(path):
    """What reading names, as (line, what)."""
    return [(found.line, found.what) for found in read_journal(path).damage]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b'"index":1', b'"index":2', ": its check sum does not fit"),
        (b'"index":1', b'"index":?', r" column \d+: Expecting value"),
        (b'"index":1', b'"index":NaN', r" column \d+: NaN is not"),
        (b'"session":"', b'"session":"x', ": its check sum does not fit"),
        (b"note 1", b"note \xff", r" column \d+: not UTF-8 text"),
        (b'"text":"note 1"', b'"text":"a","text":"b"', ": the name 'text' stands twice"),
        (b'"sequence":2,', b"", ": its check sum does not fit"),
    ],
)
def test_a_damaged_line_is_named_and_leaves_its_session_out_alone(path, host, old, new, message):
    kept = []
    for number in range(3):
        with JournalWriter.open(path, host=host, settings={}) as journal:
            kept += [journal.session] if number != 1 else []
            for index in range(3):
                journal.append(note(index))
            journal.append({"record": "end", "exit_status": 0, "counts": {}})
    replaced(path, 8, old, new)
    read = read_journal(path)
    assert [session.id for session in read.sessions] == kept
    assert {record["session"] for record in read.records} == set(kept)
    (first, *others), (damaged,) = read.damage, read.damaged
    assert re.search(rf"^line 8{message}", str(first))
    assert all(damaged.id in found.sessions for found in read.damage)
    assert [(found.line, found.what) for found in others] == [(9, ": 1 line of its session before it missing")]
    assert [record["index"] for record in damaged.records[:2]] == [0, 2]
    assert f"journal {path} is damaged, 1 session left out: line 8" in read.left_out


def test_a_line_that_cannot_be_read_leaves_out_every_session_that_is_open_there(path, host):
    sessions = []
    for _ in range(2):
        with JournalWriter.open(path, host=host, settings={}) as ended:
            ended.append({"record": "end", "exit_status": 0, "counts": {}})
        sessions.append(ended.session)
    with (
        JournalWriter.open(path, host=host, settings={}) as writing,
        JournalWriter.open(path, host=host, settings={}) as beside,
    ):
        writing.append(note(0))
        edited(path, lambda lines: lines.extend([b"\0\0\0\n"]))
        writing.append(note(1))
        beside.append(note(0))
    with JournalWriter.open(path, host=host, settings={}) as later:
        later.append(note(0))
    read = read_journal(path)
    assert [session.id for session in read.sessions] == [*sessions, later.session]
    assert [found.sessions for found in read.damage] == [(writing.session, beside.session)]
    assert [session.id for session in read.damaged] == [writing.session, beside.session]
    assert read.left_out.startswith(f"journal {path} is damaged, 2 sessions left out: line 8 column 1: Expecting value")


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        (lambda lines: lines.pop(2), [(3, ": 1 line of its session before it missing")]),
        (lambda lines: lines.pop(0), [(1, ": 1 line of its session before it missing")]),
        (lambda lines: lines.insert(3, lines[1]), [(4, ": a line of its session that stands twice or out of place")]),
        (lambda lines: lines.extend(lines[:1]), [(5, ": the session begins a second time")]),
    ],
)
def test_lines_that_are_missing_or_doubled_are_named(journal, path, edit, expected):
    for index in range(3):
        journal.append(note(index))
    edited(path, edit)
    assert damage(path) == expected
    assert read_journal(path).sessions == ()


def test_lines_out_of_order_are_named(journal, path):
    for index in range(3):
        journal.append(note(index))
    edited(path, lambda lines: lines.reverse())
    assert damage(path)
    assert read_journal(path).sessions == ()


def test_a_record_of_wrong_types_is_named_though_its_check_sum_fits(journal, path):
    journal.append(note(0))
    lines = read_lines(path)
    write_lines(path, [*lines, round_record(0, session=journal.session) | {"points": {"b128": ["fast"]}}, lines[1]])
    assert damage(path) == [(3, ": points.b128[0]: want a number, found a string")]


def test_rounds_and_notes_stay_on_the_disk_until_they_are_asked_for(journal, path):
    """30,000 lines of 200 bytes are 60 MB of dictionaries."""
    lines = [round_record(index, session=journal.session) for index in range(30_000)]
    write_lines(path, [*read_lines(path), *lines])
    tracemalloc.start()
    try:
        read = read_journal(path)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(read.records) == 30_000
    assert peak_bytes < 10 * 2**20
    path.rename(path.with_name("elsewhere"))  # as write_sessions does: another file takes the name
    assert {**read.records[20_000]} == lines[20_000] == dict(read.records[20_000])
    assert [record["round"] for record in read.records] == list(range(30_000))
    path.with_name("elsewhere").write_bytes(b"")
    with pytest.raises(JournalError, match="was written over while it was read"):
        read.records[5]["points"]


def test_a_text_nested_deeply_is_named_before_anything_walks_it(journal, path):
    journal.append(note(0, about="[[[[[" * 50 + '"'))  # brackets in a text are no levels
    assert read_journal(path).damage == ()
    for depth in (40, 100_000):
        text = b'{"record":"note","session":"%s","text":"x","deep":' % journal.session.encode()
        body = text + b"[" * depth + b"]" * depth + b"}"
        path.write_bytes(path.read_bytes() + sealed(body, 2))
        assert "nested deeper than 32 levels" in read_journal(path).damage[0].what


def test_the_writer_goes_on_with_a_journal_whose_lines_are_damaged(journal, path, host):
    """Also where the damage is to its first bytes, by which a journal is known."""
    journal.append(note(0))
    path.write_bytes(b"\0" * 20 + path.read_bytes()[20:])
    with JournalWriter.open(path, host=host, settings={}) as later:
        later.append(note(1))
    assert [session.id for session in read_journal(path).sessions] == [later.session]


def test_a_later_version_is_told_by_its_number(journal, path, host):
    head = {**read_lines(path)[0], "version": 7}
    write_lines(path, [head])
    before = path.read_bytes()
    with pytest.raises(FormatVersionError, match=r"journal\.jsonl: written by format 7; this version reads 2$"):
        read_journal(path)
    with pytest.raises(FormatVersionError, match="written by format 7"):
        JournalWriter.open(path, host=host, settings={})
    assert path.read_bytes() == before


def test_a_later_version_in_a_later_session_is_told_with_its_line(journal, path, host):
    JournalWriter.open(path, host=host, settings={}).close()
    one, two = read_lines(path)
    write_lines(path, [one, {**two, "version": 12}])
    with pytest.raises(FormatVersionError, match=r"line 2: written by format 12; this version reads 2$"):
        read_journal(path)


def test_unknown_fields_and_kinds_are_kept(journal, path):
    journal.append({"record": "power", "watts": 5})
    journal.append(note(0, mood="good"))
    assert bodies(read_journal(path).records) == [{"record": "power", "watts": 5}, note(0, mood="good")]


def test_a_device_record_that_is_no_fingerprint_is_an_error(journal, path):
    journal.append({"record": "device", "digest": "x", "fingerprint": {}})
    with pytest.raises(JournalError, match=r"device record x: fingerprint\.device: missing"):
        read_journal(path).fingerprint("x")


# files that cannot be written


def test_a_full_device_is_a_clear_error(host):
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("no /dev/full on this system")
    with pytest.raises(JournalError, match="journal /dev/full: No space left on device after 0 records"):
        JournalWriter.open(full, host=host, settings={})


def test_a_folder_that_cannot_be_made_is_a_clear_error(tmp_path, host):
    (tmp_path / "file").touch()
    with pytest.raises(JournalError, match=r"File exists|Not a directory"):
        JournalWriter.open(tmp_path / "file" / "journal.jsonl", host=host, settings={})
    with pytest.raises(JournalError, match="Is a directory"):
        JournalWriter.open(tmp_path, host=host, settings={})


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

    def fsync(descriptor):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(line_file.os, "fsync", fsync)
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

    threads = [threading.Thread(target=write, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    records = read_journal(path).records
    for worker in range(4):
        assert [record["index"] for record in records if record["worker"] == worker] == list(range(20))


def test_the_file_stays_plain_json_lines(journal, path):
    journal.append(note(0, text="é\u2028\ud800"))
    lines = path.read_text(encoding="ascii").splitlines()
    assert json.loads(lines[1])["text"] == "é\u2028\ud800"
