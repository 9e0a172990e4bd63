"""Files that users name: refused at once unless regular and of bounded size, replaced whole or not at all."""

import errno
import os
import re
import socket
import threading
from pathlib import Path

import pytest
from made_records import HOST

import pytest_npubench
from pytest_npubench.core import regular_file
from pytest_npubench.errors import NpubenchError
from pytest_npubench.extensions.pairs.partition.profile_file import read_profile
from pytest_npubench.store.baselines import Baselines
from pytest_npubench.store.journal import JournalWriter, read_journal
from pytest_npubench.suites.buckets.profile_source import profile_from_file
from pytest_npubench.suites.hardware_files import load_hardware
from pytest_npubench.workloads.loading import load

READERS = [read_journal, load_hardware, profile_from_file, read_profile, load]
KINDS = {"a folder": lambda path: path.mkdir(), "a pipe": os.mkfifo, "a socket": None, "a device": None}


@pytest.fixture
def make(tmp_path, monkeypatch):
    """make(kind) -> the path of something of that kind."""

    def make(kind):
        if kind == "a device":
            return tmp_path.__class__("/dev/null")
        path = tmp_path / "thing"
        if kind == "a socket":
            monkeypatch.chdir(tmp_path)  # a socket's name has at most 107 bytes
            with socket.socket(socket.AF_UNIX) as opened:
                opened.bind("thing")
        else:
            KINDS[kind](path)
        return path

    return make


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("read", READERS, ids=lambda read: read.__name__)
def test_what_is_no_regular_file_is_refused_by_kind(read, kind, make):
    with pytest.raises(NpubenchError, match=f"is {kind}; want a file"):
        read(make(kind))


@pytest.mark.parametrize("kind", ["a folder", "a pipe", "a socket"])
def test_nothing_else_is_written_to_as_a_journal(kind, make):
    with pytest.raises(NpubenchError, match=f"is {kind}; want a file|Is a directory|No such device"):
        JournalWriter.open(make(kind), host=HOST, settings={})


def test_a_giant_is_refused_before_it_is_read(tmp_path):
    path = tmp_path / "giant"
    with path.open("wb") as file:
        file.truncate(8 * 1024**4)  # a hole: it takes no room
    for read in READERS:
        with pytest.raises(NpubenchError, match=r"has 8796093022208 bytes; at most \d+ are read"):
            read(path)


def test_a_file_that_grows_beyond_the_limit_while_it_is_read_is_refused(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"x" * 10)
    with regular_file.opened(path, 10) as file:
        path.write_bytes(b"x" * 11)
        with pytest.raises(OSError, match="more than 10 bytes"):
            regular_file.read_rest(file, 10)


def test_a_pipe_that_took_the_files_place_is_not_waited_for(tmp_path, monkeypatch):
    """Between the look at the path and opening it."""
    path, regular = tmp_path / "pipe", tmp_path / "file"
    regular.touch()
    os.mkfifo(path)
    real = type(path).stat
    monkeypatch.setattr(type(path), "stat", lambda self, **about: real(regular, **about))
    done = threading.Event()

    def read():
        with pytest.raises(OSError, match="is a pipe"):
            regular_file.read_bytes(path, 10)
        done.set()

    threading.Thread(target=read, daemon=True).start()
    assert done.wait(10)


@pytest.mark.parametrize("link", ["cpu/round", "cpu/x.json", "cpu", "aliases.json", "README.md", "published"])
@pytest.mark.parametrize("target", [".", "../outside", "nowhere"])
def test_a_link_among_baselines_is_refused(link, target, tmp_path):
    (tmp_path / "outside").mkdir()
    path = tmp_path / "baselines" / link
    path.parent.mkdir(parents=True)
    path.symlink_to(target)
    with pytest.raises(NpubenchError, match=rf"{link}: is a link; want plain files in folders"):
        Baselines.load(tmp_path / "baselines")


@pytest.mark.parametrize("before", [None, b"precious"])
@pytest.mark.parametrize("fault", ["content", "fsync", "replace"])
def test_a_write_that_fails_leaves_what_was_there(fault, before, tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    def write():
        with regular_file.replacing(path) as file:
            file.write(b"half")
            if fault == "content":
                fail()

    path = tmp_path / "page.html"
    if before:
        path.write_bytes(before)
    if fault != "content":
        monkeypatch.setattr(*((os, "fsync") if fault == "fsync" else (Path, "replace")), fail)
    with pytest.raises(OSError, match="No space left") as caught:
        write()
    assert caught.value.filename == str(path)
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == ({path.name: before} if before else {})


def test_a_file_is_replaced_with_its_permissions_a_link_itself_and_a_stream_in_its_place(tmp_path):
    path, link, precious = tmp_path / "page.html", tmp_path / "link", tmp_path / "precious"
    for each in (path, precious):
        each.write_text("before")
    path.chmod(0o640)
    link.symlink_to(precious)
    for each in (path, link):
        regular_file.replace_text(each, "after")
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("after", 0o640)
    assert (link.is_symlink(), link.read_text(), precious.read_text()) == (False, "after", "before")
    with precious.open("r+") as redirected:  # as /dev/stdout is, where a shell writes it into a file
        inode = precious.stat().st_ino
        regular_file.replace_text(Path(f"/dev/fd/{redirected.fileno()}"), "streamed")
    assert (precious.read_text(), precious.stat().st_ino) == ("streamed", inode)


FRESH = {  # what writes files of its own making into folders of its own making, or a log while a process runs
    "backends/telemetry/neuron.py", "cli/demo.py", "cli/selfcheck.py", "comparison/ab_run.py",
    "engines/model_directory.py", "engines/safetensors_file.py", "extensions/planning/rivals/aiconfigurator.py",
    "nightly/measure.py", "plugin/selfcheck_tests.py", "core/regular_file.py",
}  # fmt: skip


def test_whole_files_are_written_by_nobody_else():
    package = Path(pytest_npubench.__file__).parent
    writing = re.compile(r"\.write_(text|bytes)\(|open\([^)\n]*[\"']w")
    writers = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if writing.search(path.read_text(encoding="utf-8"))
    }
    assert writers == FRESH
