"""Files that users name: regular and of bounded size, or refused with what they are, at once."""

import os
import socket
import threading

import pytest

from pytest_npubench.cli.profile_source import profile_from_file
from pytest_npubench.core import regular_file
from pytest_npubench.errors import NpubenchError
from pytest_npubench.extensions.pairs.partition.profile_file import read_profile
from pytest_npubench.store.baselines import Baselines
from pytest_npubench.store.fingerprint import HostFacts
from pytest_npubench.store.journal import JournalWriter, read_journal
from pytest_npubench.suites.hardware_files import load_hardware
from pytest_npubench.workloads.loading import load

HOST = HostFacts(
    name="h", cpu_model="c", num_cores=1, system="s", python="p", libraries=(), plugin_version="0", git_revision=None
)
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


def test_baselines_with_links_in_a_circle_are_refused(tmp_path):
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "round").symlink_to(tmp_path)
    with pytest.raises(NpubenchError, match=r"cpu/round is a link that leads in a circle"):
        Baselines.load(tmp_path)
