"""Journals that cannot be read: what is damaged is named, and leaves its session out alone."""

import os
import re
import tracemalloc

import pytest
from store.journal_lines import edited, note, read_lines, round_record, write_lines

from pytest_npubench.errors import FormatVersionError, JournalError
from pytest_npubench.store.journal import JournalWriter, read_journal
from pytest_npubench.store.journal_format import sealed


def test_an_empty_file_has_no_sessions_and_what_is_no_file_is_named(tmp_path):
    (tmp_path / "empty").touch()
    read = read_journal(tmp_path / "empty")
    assert (read.sessions, read.records, read.torn) == ((), (), ())
    os.mkfifo(tmp_path / "pipe")
    for name, message in (
        ("absent.jsonl", r"absent\.jsonl: No such file or directory"),
        (".", "is a folder; want a file"),
        ("pipe", "is a pipe; want a file"),
    ):
        with pytest.raises(JournalError, match=message):
            read_journal(tmp_path / name)


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


@pytest.mark.parametrize(("session", "line"), [(0, "jsonl"), (1, "line 2")])
def test_a_later_version_is_told_by_its_number_and_the_file_is_kept(journal, path, host, session, line):
    JournalWriter.open(path, host=host, settings={}).close()
    lines = read_lines(path)
    lines[session] = {**lines[session], "version": 7}
    write_lines(path, lines)
    before = path.read_bytes()
    with pytest.raises(FormatVersionError, match=rf"{line}: written by format 7; this version reads 2$"):
        read_journal(path)
    if session == 0:
        with pytest.raises(FormatVersionError, match="written by format 7"):
            JournalWriter.open(path, host=host, settings={})
    assert path.read_bytes() == before
