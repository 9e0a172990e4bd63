"""Python processes that tests start, forked from one that has imported everything: most of a second less for each.

A *stem* (forked_stem.py) is a process with one thread that has imported what a run imports, and done nothing else. For
`python -m pytest ...` it forks a process that goes on with the arguments, environment, folder and open files that were
asked for, as a child of whoever asked, and ends as an interpreter does. That process has a stem of its own, made before
it does anything, for what it starts in turn. subprocess.Popen asks the stem for what `_can_fork` allows, and starts all
others afresh.

With NPUBENCH_TESTS_FRESH set every process but KILLED starts afresh; in the environment of one process, that one does
and all below it.

What jax compiles for one forked process is looked up by the others, in the folder that NPUBENCH_TESTS_COMPILED names.
"""

from __future__ import annotations

import atexit
import inspect
import os
import pickle
import resource
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_npubench.core import entry_points

FRESH = "NPUBENCH_TESTS_FRESH"
COMPILED = "NPUBENCH_TESTS_COMPILED"
READ_ONCE = ("PYTHON", "LD_", "LC_", "LANG", "TZ", "JAX_", "OMP_", "MKL_", "OPENBLAS_")
"""What the names of variables begin with that an interpreter or an imported package reads as it starts."""
READ_LATER = ("PYTHONPATH", "JAX_PLATFORMS")
"""Those of them that a forked process is told anew."""
CODE = (sys.executable, "-c")
WORKER = (sys.executable, "-u", "-c")
"""As xdist starts a worker of a run."""
COMMAND_LINE = "import sys; from pytest_npubench.cli.main import main; sys.exit(main())"
"""`npubench`, as its entry point calls it."""
KILLED = (sys.executable, str(Path(__file__).parent / "crash" / "kill_points.py"))
"""What tests kill a hundred times, which is forked always: what it starts is as the environment says."""
PROGRAMS = ((sys.executable, "-m", "pytest"), (*CODE, COMMAND_LINE))
UNITS = (
    "pytest_npubench.processes.owner",
    "pytest_npubench.extensions.pairs.partition.units.",
    "pytest_npubench.extensions.pairs.offload.",
)
"""Compute units of a pair, and what each sets before it imports torch."""
UNITS_SET = {"OMP_NUM_THREADS": "1"}
GUARD = (sys.executable, "-I", "-S", str(Path(__file__).parents[1] / "pytest_npubench" / "processes" / "guard.py"))
GUARD_ARGUMENTS = 4
STANDARD = ("p2cread", "c2pwrite", "errwrite")
SYS_CLONE = {"x86_64": 56, "aarch64": 220}
STEM = "stem"
"""What a stem is called in /proc/PID/comm, for a test that counts processes."""
PROGRAM = Path(__file__).with_name("forked_stem.py")
SIZE = struct.Struct("!Q")

_lock = threading.Lock()
_stems: dict[frozenset[tuple[str, str]], socket.socket] = {}
_execute = subprocess.Popen._execute_child  # type: ignore[attr-defined]


def install(stem: socket.socket | None = None) -> None:
    """Have subprocess.Popen fork from here on. Without a stem one starts with the first process that can be forked.

    A worker of the tests, which was forked itself, calls this again: it starts the tests' processes, from its own stem.
    """
    if sys.platform != "linux" or os.uname().machine not in SYS_CLONE:
        return
    signature = inspect.signature(_execute)
    limits = _limits()
    is_ours = stem is not None
    if stem is not None:
        _stems[_read_once(os.environ)] = stem

    def forked(self: subprocess.Popen[Any], *arguments: Any) -> None:
        asked = signature.bind(self, *arguments).arguments
        read_once = _read_once(_environment(asked)) if _can_fork(asked, is_ours=is_ours) else None
        if read_once is None or limits != _limits() or (is_ours and read_once not in _stems):
            _execute(self, *arguments)
            return
        with _lock:
            if read_once not in _stems:
                _stems[read_once] = _new_stem(read_once)
            self.pid = _start(_stems[read_once], asked)
        self._child_created = True  # type: ignore[attr-defined]
        ends = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(asked[end] for end in ends))  # type: ignore[attr-defined]

    subprocess.Popen._execute_child = forked  # type: ignore[attr-defined]


def _can_fork(asked: Mapping[str, Any], *, is_ours: bool) -> bool:
    """Whether it is one of PROGRAMS or a worker on this interpreter, with nothing special. Code that a run of ours
    starts is the package's own; a test's own code may ask what is imported."""
    command, environment = asked["args"], os.environ if asked["env"] is None else asked["env"]
    if not isinstance(command, (list, tuple)):
        return False
    program = tuple(map(str, command))
    if FRESH in environment and program[: len(KILLED)] != KILLED:
        return False
    if program[: len(GUARD)] == GUARD:
        program = program[len(GUARD) + GUARD_ARGUMENTS :]
    has_program = (
        program[: len(KILLED)] == KILLED
        or program[:3] in PROGRAMS
        or _is_unit(program)
        or program[:3] == WORKER
        or (is_ours and program[:2] == CODE)
    )
    special = (
        asked["shell"] or asked["preexec_fn"] or asked["executable"] or asked.get("process_group") not in (None, -1)
    )
    return has_program and not special


def _limits() -> list[tuple[int, int]]:
    """A process that limits itself limits what it starts."""
    return [resource.getrlimit(limit) for limit in (resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE, resource.RLIMIT_AS)]


def _is_unit(program: Sequence[str]) -> bool:
    return program[:2] == (sys.executable, "-m") and program[2].startswith(UNITS)


def _environment(asked: Mapping[str, Any]) -> dict[str, str]:
    """As it is when the process imports what it needs."""
    given = dict(os.environ if asked["env"] is None else asked["env"])
    return given | UNITS_SET if _is_unit(tuple(map(str, asked["args"]))[:3]) else given


def _read_once(environment: Mapping[str, str]) -> frozenset[tuple[str, str]]:
    """A stem is for one such setting."""
    given = ((name, value) for name, value in environment.items() if value and name not in READ_LATER)
    return frozenset((name, value) for name, value in given if name.startswith(READ_ONCE))


def _new_stem(read_once: frozenset[tuple[str, str]]) -> socket.socket:
    ours, theirs = socket.socketpair()
    others = {name: value for name, value in os.environ.items() if not name.startswith(READ_ONCE)}
    package = {"PYTHONPATH": str(Path(entry_points.__file__).parents[2])}  # of whoever asks, installed or not
    variables = others | dict(read_once) | package
    command = [sys.executable, str(PROGRAM), str(theirs.fileno())]
    process = subprocess.Popen(command, pass_fds=[theirs.fileno()], cwd="/", env=variables, stdin=subprocess.DEVNULL)
    theirs.close()
    atexit.register(_end_stem, ours, process)
    return ours


def _end_stem(ours: socket.socket, process: subprocess.Popen[bytes]) -> None:
    ours.close()
    process.wait()


def _start(stem: socket.socket, asked: Mapping[str, Any]) -> int:
    """The id of the process, which is a child of this one, as the stem is."""
    standard = {number: number if asked[end] == -1 else asked[end] for number, end in enumerate(STANDARD)}
    files = standard | {number: number for number in asked["pass_fds"]}
    request = {
        "arguments": [os.fspath(argument) for argument in asked["args"][1:]],
        "environment": dict(os.environ if asked["env"] is None else asked["env"]),
        "folder": os.path.abspath(asked["cwd"] or "."),  # noqa: PTH100 - as the interpreter names it
        "numbers": list(files),
        "leads_session": asked["start_new_session"],
        "cores": os.sched_getaffinity(0),
    }
    text = pickle.dumps(request)
    socket.send_fds(stem, [SIZE.pack(len(text))], list(files.values()))
    stem.sendall(text)
    (pid,) = SIZE.unpack(received(stem, SIZE.size))
    return int(pid)


def received(stem: socket.socket, size: int) -> bytes:
    """All of them. Raises EOFError where the other end is gone before."""
    text = b""
    while len(text) < size:
        if not (more := stem.recv(size - len(text))):
            raise EOFError("the other end is gone")
        text += more
    return text
