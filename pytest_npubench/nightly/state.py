"""The folder in which a night leaves things for the next one, outside of the work tree that a checkout cleans.

STATE/journal.jsonl           the latest nights, what a doubtful metric's nights are counted in
STATE/journals/SESSION.jsonl  older journals as they were, from which a lost history is filled again
STATE/history.db              the history, unless it is a server
STATE/baselines/              baselines as last seen on the branch, or the baselines themselves
STATE/state.json              what became of each session of the journal
STATE/scratch/                where baselines are put together before they are pushed
STATE/state.lock              held while a step runs, by its pytest too
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_npubench.core.documents import json_value
from pytest_npubench.core.regular_file import SMALL_BYTES, read_text, replace_text, replacing
from pytest_npubench.errors import NightlyError
from pytest_npubench.store.journal_format import MAX_BYTES
from pytest_npubench.store.journal_reader import read_journal
from pytest_npubench.store.line_file import lines_before, opened_whole

LOCK_TIMEOUT_S = 10.0
LOCK_POLL_S = 0.1
FORMAT = "npubench-nightly-state"
VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class NightlyState:
    """What became of the sessions: of each that has an end, in words; whether the history has all of them.

    `owner` tells this state folder's topic branches from those of other runners.
    """

    owner: str
    settled: Mapping[str, str] = field(default_factory=dict)
    is_uploaded: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class StateFolder:
    """A state folder by its path, which need not exist yet."""

    path: Path

    @property
    def journal(self) -> Path:
        return self.path / "journal.jsonl"

    @property
    def shelf(self) -> Path:
        return self.path / "journals"

    @property
    def baselines(self) -> Path:
        return self.path / "baselines"

    @property
    def history(self) -> Path:
        return self.path / "history.db"

    def read(self) -> NightlyState:
        """Reads the state; a missing file is a new state. Raises NightlyError for one that cannot be read."""
        path = self.path / "state.json"
        try:
            content = json_value(read_text(path, SMALL_BYTES))
            if (content["format"], content["version"]) != (FORMAT, VERSION):
                raise NightlyError(f"{path}: written by another version; this one reads {FORMAT} {VERSION}")
            settled = {str(name): str(end) for name, end in content["settled"].items()}
            return NightlyState(owner=str(content["owner"]), settled=settled, is_uploaded=bool(content["is_uploaded"]))
        except FileNotFoundError:
            return NightlyState(owner=secrets.token_hex(3))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise NightlyError(
                f"{path}: cannot be read ({error}); move it away, sessions are then settled anew"
            ) from None

    def write(self, state: NightlyState) -> None:
        """Replace the file as a whole. Raises OSError."""
        content = {
            "format": FORMAT,
            "version": VERSION,
            "owner": state.owner,
            "settled": dict(state.settled),
            "is_uploaded": state.is_uploaded,
        }
        replace_text(self.path / "state.json", json.dumps(content, indent=1) + "\n")

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """An empty folder for the time of the context, while the state is locked. What a kill leaves is removed by the
        next one. Raises OSError."""
        folder = self.path / "scratch"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        try:
            yield folder
        finally:
            shutil.rmtree(folder)

    def keep_baselines(self, made: Path) -> None:
        """Puts a folder out of the scratch in the place of the baselines of the last time. Raises OSError."""
        shutil.rmtree(self.baselines, ignore_errors=True)
        made.replace(self.baselines)

    @contextmanager
    def locked(self) -> Iterator[int]:
        """Locks the folder inside of the context. Yields the lock's file descriptor: a child process that inherits it
        keeps the folder locked where it outlives this one.

        Raises NightlyError where another night has it, OSError where the folder cannot be written.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path / "state.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            if not _locked(descriptor):
                raise NightlyError(
                    f"state folder {self.path}: another nightly, or pytest that a killed one left, has it; "
                    "runners of one host each need a --state of their own"
                )
            yield descriptor
        finally:
            os.close(descriptor)


def _locked(descriptor: int) -> bool:
    """Whether the lock was obtained. flock(2): the kernel releases it when the last process that has it ends."""
    deadline_s = time.monotonic() + LOCK_TIMEOUT_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= deadline_s:
                return False
            time.sleep(LOCK_POLL_S)


def default_state_path(environment: Mapping[str, str], repository: str, name: str) -> Path:
    """$NPUBENCH_STATE_DIR, else $XDG_STATE_HOME/npubench, else ~/.local/state/npubench; in it REPOSITORY/NAME.

    `repository` is the remote's address or the work tree's path, of which the last two parts count:
    https://github.com/ann/bench.git and "tpu" give ann-bench/tpu.
    """
    public = re.sub(r"://\S*@", "://", repository.removesuffix(".git"))
    parts: list[Any] = [part for part in re.split(r"[/:\\]", public) if part][-2:]
    folder_name = re.sub(r"[^A-Za-z0-9._-]", "_", "-".join(parts)) or "repository"
    if asked := environment.get("NPUBENCH_STATE_DIR"):
        return Path(asked).expanduser().absolute() / folder_name / name
    home = Path(environment.get("XDG_STATE_HOME") or "~/.local/state").expanduser()
    return home.absolute() / "npubench" / folder_name / name


def write_sessions(journal: Path, sessions: Collection[str], target: Path) -> None:
    """Writes the journal's lines of these sessions, in their order, without damaged sessions. Raises OSError,
    JournalError."""
    kept = {line for session in read_journal(journal).sessions if session.id in sessions for line in session.lines}
    target.parent.mkdir(parents=True, exist_ok=True)
    with opened_whole(journal, MAX_BYTES) as (file, end, _), replacing(target) as written:
        lines = enumerate(lines_before(file, end), start=1)
        written.writelines(line + b"\n" for number, (_, line) in lines if number in kept)
