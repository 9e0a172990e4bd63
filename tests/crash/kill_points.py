"""Places inside of a process where a kill can be put: each change of a file that the project keeps, each SQL statement.

A kill from outside seldom meets the microseconds between two system calls. `install` counts these places as the process
passes them, and at a chosen one kills the process group. A write is torn there: a part of its bytes goes out first, as
a kill amid a long write leaves it.

Worked example: in ("append journal", 7, 0.5) the seventh line to a journal is cut in its middle and ends the process.

`kill_points.py '["append journal", 7, 0.5]' pytest ARGUMENTS...` runs pytest, or npubench, with it in the current
folder; with `null` it kills nothing and leaves the counts in points.json.
"""

from __future__ import annotations

import fcntl
import io
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

POINTS = "points.json"
WRITING = set("wax+")
SQL = ("BEGIN", "CREATE", "INSERT", "UPDATE", "DELETE")
KEPT = {".jsonl": "journal", ".json": "baseline", ".tmp": "baseline", ".html": "report", ".holder": "holder's note"}


class KillPoint(NamedTuple):
    """The `number`-th place of a kind, counted from 1; `fraction` of the bytes of a write go out."""

    kind: str
    number: int
    fraction: float


def install(root: Path, target: KillPoint | None) -> Counter[str]:
    """Count the places that this process passes below `root`, and end it at the target."""
    counts: Counter[str] = Counter()

    def is_here(kind: str) -> bool:
        counts[kind] += 1
        return target is not None and (kind, counts[kind]) == target[:2]

    fraction = 1.0 if target is None else target.fraction
    _replace_writes(root, is_here, fraction)
    _replace_names(root, is_here)
    _listen_to_sql(is_here)
    return counts


def kill_own_group() -> None:
    os.killpg(0, signal.SIGKILL)


def _replace_writes(root: Path, is_here: Callable[[str], bool], fraction: float) -> None:
    write, fsync, open_ = os.write, os.fsync, io.open

    def torn_write(descriptor: int, data: bytes) -> int:
        kept = _kept(root, _path(descriptor))
        if kept and is_here(f"append {kept}"):
            write(descriptor, data[: int(len(data) * fraction)])
            kill_own_group()
        return write(descriptor, data)

    def torn_sync(descriptor: int) -> None:
        """Python writes a whole file beyond our reach, so here it is cut to what a kill before would have left."""
        kept = _kept(root, _path(descriptor))
        if kept and is_here(f"sync {kept}"):
            if not fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_APPEND:
                os.truncate(descriptor, int(os.fstat(descriptor).st_size * fraction))
            kill_own_group()
        fsync(descriptor)

    def open_and_die(file: Any, mode: str = "r", *arguments: Any, **keywords: Any) -> Any:
        opened = open_(file, mode, *arguments, **keywords)
        kept = _kept(root, file) if WRITING & set(mode) and not isinstance(file, int) else None
        if kept and is_here(f"begin {kept}"):  # "w" has emptied it
            kill_own_group()
        return opened

    os.write, os.fsync, io.open = torn_write, torn_sync, open_and_die


def _replace_names(root: Path, is_here: Callable[[str], bool]) -> None:
    """Renaming, deleting and cutting, each before it is done."""

    def dying(name: str) -> Callable[..., Any]:
        original = getattr(os, name)

        def call(path: Any, *arguments: Any, **keywords: Any) -> Any:
            kept = _kept(root, _path(path) if isinstance(path, int) else path)
            if kept and is_here(f"{name} {kept}"):
                kill_own_group()
            return original(path, *arguments, **keywords)

        return call

    for name in ("replace", "rename", "unlink", "remove", "ftruncate"):
        setattr(os, name, dying(name))


def _listen_to_sql(is_here: Callable[[str], bool]) -> None:
    from sqlalchemy import Engine, event

    def statement(_connection: Any, _cursor: Any, text: str, *_arguments: Any) -> None:
        word = text.split()[0].upper()
        if word in SQL and is_here(f"sql {word.lower()}"):
            kill_own_group()

    def commit(_connection: Any) -> None:
        if is_here("sql commit"):
            kill_own_group()

    event.listen(Engine, "before_cursor_execute", statement)
    event.listen(Engine, "commit", commit)


def _path(descriptor: int) -> str:
    return str(Path(f"/proc/self/fd/{descriptor}").readlink())


def _kept(root: Path, path: Any) -> str | None:
    """What a path is to us; None for what is none of the project's files."""
    whole = Path.cwd() / os.fspath(path)
    return KEPT.get(whole.suffix) if whole.is_relative_to(root) else None


def main(target: str, command: Sequence[str]) -> int:
    """Be the command, with kill points in the current folder; its exit status."""
    sys.path[0] = ""  # as `python -m` has it
    given = json.loads(target)
    counts = install(Path.cwd(), KillPoint(*given) if given else None)
    status = _run(command)
    sys.stdout.flush()
    sys.stderr.flush()
    if given is None:
        Path(POINTS).write_text(json.dumps(counts))
    return status


def _run(command: Sequence[str]) -> int:
    if command[0] == "pytest":
        import pytest

        return int(pytest.main(list(command[1:])))
    from pytest_npubench.cli.main import main

    return main(command[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
