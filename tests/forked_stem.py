"""What forked_python.py starts as a stem: it imports everything, and forks the processes that its owner asks for."""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import gc
import importlib
import os
import pickle
import runpy
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from _pytest.config import default_plugins
from _pytest.fixtures import FixtureFunctionDefinition
from forked_python import COMPILED, GUARD, SIZE, STEM, SYS_CLONE, UNITS, install, received

from pytest_npubench.core import entry_points

COMPILED_BYTES = 2**31
IMPORTED = (
    "_strptime",
    "execnet",
    "jax.numpy",
    "jinja2",
    "numpy.random",
    "pdb",
    "pytest",
    "pytest_benchmark.plugin",
    "pytest_benchmark.storage.file",
    "scipy.special",
    "scipy.stats",
    "sqlalchemy.dialects.sqlite.pysqlite",
    "tomllib",
    "torch",
    "xml.etree.ElementTree",
    *(f"_pytest.{name}" for name in default_plugins),
)
LATER = (
    *(f"pytest_npubench.{name}." for name in ("backends", "engines")),
    *(f"pytest_npubench.extensions.{name}." for name in ("adapters", "compilers", "vllm")),
    "pytest_npubench.plugin.worker_devices",  # of xdist, which pytest wants to load itself
    *UNITS,
)
"""Modules of ours that import a vendor's packages, or that a process imports with an environment of its own."""
PR_SET_NAME = 15  # prctl(2)
CLONE_PARENT = 0x8000  # clone(2)
MADV_COLLAPSE = 25  # madvise(2)
LARGE_PAGE_BYTES = 2**21
VERSION = metadata.version
HIGH = 200  # no process asks for this number of a file

_libc = ctypes.CDLL(None)
_syscall = ctypes.PyDLL(None, use_errno=True).syscall  # which keeps the interpreter's lock


def _fork_for(owner: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """What a stem does while its owner lives. Returns in each forked process: what was asked for, and the files."""
    while True:
        header, files, _, _ = socket.recv_fds(owner, SIZE.size, 64)
        if not header:
            os._exit(0)
        request = pickle.loads(received(owner, *SIZE.unpack(header)))
        if (pid := _fork_beside()) == 0:
            return request, files
        owner.sendall(SIZE.pack(pid))
        for number in files:
            os.close(number)


def _fork_beside() -> int:
    """os.fork of a process with one thread, but that the new one is a child of this one's parent."""
    python = ctypes.pythonapi
    python.PyOS_BeforeFork()
    arguments = (SYS_CLONE[os.uname().machine], CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0)
    pid = int(_syscall(*map(ctypes.c_long, arguments)))
    (python.PyOS_AfterFork_Parent if pid else python.PyOS_AfterFork_Child)()
    if pid < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return pid


def _look_through_what_is_installed() -> None:
    """Once for all that is forked, where it finds no more than the stem."""
    from pytest_npubench.core import hardware_reader
    from pytest_npubench.core.toml_table import TomlTable
    from pytest_npubench.errors import HardwareFileError
    from pytest_npubench.store import fingerprint

    for path in hardware_reader.default_directory().glob("*.toml"):
        TomlTable.of(path, HardwareFileError)
    entry_points.groups()
    metadata.version = cache(VERSION)
    points = {str(each._path): each.entry_points for each in metadata.distributions()}  # type: ignore[attr-defined]
    read = metadata.Distribution.entry_points.fget  # type: ignore[attr-defined]
    metadata.Distribution.entry_points = property(  # type: ignore[assignment]
        lambda self: read(self) if (kept := points.get(str(self._path))) is None else kept
    )
    fingerprint.installed(fingerprint.LIBRARIES)


def _name_hooks_and_fixtures_alone() -> None:
    """Of each module that pytest takes for a plugin: it looks at every name of one in every process anew."""
    names = {*(f"_pytest.{name}" for name in default_plugins), "pytest_benchmark.plugin", "pytest_npubench.plugin"}
    for module in (sys.modules[name] for name in names & sys.modules.keys()):
        looked_for = [
            name
            for name, value in vars(module).items()
            if name.startswith("pytest_") or isinstance(value, FixtureFunctionDefinition)
        ]
        module.__dir__ = lambda looked_for=looked_for: looked_for  # type: ignore[method-assign]


def _take_large_pages() -> None:
    """A fork copies the table of pages: 280 MB are 70,000 small ones. Where the kernel has no large page, they stay."""
    for line in Path("/proc/self/maps").read_text(encoding="ascii").splitlines():
        ends, access, *_ = line.split()
        first, last = (int(end, 16) // LARGE_PAGE_BYTES for end in ends.split("-"))
        if access == "rw-p" and (size := last - first - 1) > 0:
            place = (ctypes.c_void_p((first + 1) * LARGE_PAGE_BYTES), ctypes.c_size_t(size * LARGE_PAGE_BYTES))
            _libc.madvise(*place, MADV_COLLAPSE)


def _go_on(owner: socket.socket, path: list[str]) -> NoReturn:
    """Be a stem, and in each forked process what was asked for. `path` is where every one of them finds modules."""
    _libc.prctl(PR_SET_NAME, STEM.encode())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # its owner's to hear, whose end ends a stem
    request, files = _fork_for(owner)
    owner.close()
    _libc.prctl(PR_SET_NAME, b"python")
    _take_over(request, files, path)
    arguments = request["arguments"]
    if tuple(arguments[:3]) == GUARD[1:]:
        _be_guard(arguments[3:], path)
    _be(arguments, path)


def _take_over(request: Mapping[str, Any], files: list[int], path: list[str]) -> None:
    """Everything but the program: open files, environment, folder, session."""
    away = [_moved(file) for file in files]
    os.closerange(3, HIGH)
    for number, file in zip(request["numbers"], away, strict=True):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    os.sched_setaffinity(0, request["cores"])
    if request["leads_session"]:
        os.setsid()
    if "jax" in sys.modules:
        sys.modules["jax"].config.update("jax_platforms", os.environ.get("JAX_PLATFORMS") or None)
    extra = [os.path.abspath(part) for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]  # noqa: PTH100
    sys.path[:] = [request["folder"], *extra, *path]
    if any(next(Path(part).glob("*.dist-info"), None) for part in (request["folder"], *extra)):
        entry_points._by_group.cache_clear()  # the stem looked on another path
        metadata.version = VERSION


def _be_guard(arguments: list[str], path: list[str]) -> NoReturn:
    """Be guard.py, whose command goes on from its fork instead of starting afresh there."""
    from pytest_npubench.processes import guard

    def become(command: list[str], parent: int) -> NoReturn:
        _libc.prctl(guard.PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        if os.getppid() != parent:
            os._exit(127)
        _be(command[1:], path)

    guard._become = become
    lifeline, limit_s, grace_s, kind, *command = arguments
    guard.main(int(lifeline), float(limit_s), float(grace_s), kind == "child", command)
    os._exit(1)  # it never returns


def _be(arguments: list[str], path: list[str]) -> NoReturn:
    """Be `python ARGUMENTS`, with a stem of its own."""
    ours, theirs = _pair()
    if os.fork() == 0:
        ours.close()
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(nothing, number)
        os.closerange(3, HIGH)
        _go_on(theirs, path)
    theirs.close()
    install(ours)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _open_standard_streams()
    if arguments[0] == "-u":  # standard error is unbuffered anyway, and a worker writes to its files by number
        arguments = arguments[1:]
    try:
        if arguments[0] == "-m":
            sys.argv = ["-m", *arguments[2:]]
            runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        elif arguments[0] != "-c":
            sys.argv, sys.path[0] = arguments, os.path.dirname(arguments[0])  # noqa: PTH120 - as the interpreter does
            runpy.run_path(arguments[0], run_name="__main__")
        else:
            sys.argv = ["-c", *arguments[2:]]
            sys.modules["__main__"] = ModuleType("__main__")
            exec(arguments[1], vars(sys.modules["__main__"]))
    except SystemExit as end:
        if isinstance(end.code, str):
            sys.stderr.write(f"{end.code}\n")
        _end(1 if isinstance(end.code, str) else int(end.code or 0))
    except BaseException:  # noqa: BLE001 - as an interpreter does at its end
        traceback.print_exc()
        _end(1)
    _end(0)


def _open_standard_streams() -> None:
    """Python's own were made for what the stem's files are, a terminal maybe."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        old = getattr(sys, f"__{name}__")
        buffering = 1 if number == 2 or os.isatty(number) else -1
        modes = {"mode": "w" if number else "r", "encoding": old.encoding, "errors": old.errors, "closefd": False}
        stream = open(number, buffering=buffering, **modes)  # noqa: PTH123, SIM115
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _end(status: int) -> NoReturn:
    """An interpreter's end, but for taking every module apart, which takes longer than many a run."""
    threading._shutdown()  # type: ignore[attr-defined] # waits for the threads
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


def _compile_once() -> None:
    """Have jax look up what another process has compiled. A run without a cache of its own calls it compiled cold."""
    import jax
    from jax._src.lru_cache import LRUCache

    from pytest_npubench.backends import jax_runtime

    LRUCache._evict_if_needed = lambda *_, **__: None  # it would look at every entry for each new one
    use_cache, counter = jax_runtime._use_compilation_cache, jax_runtime._counter

    class Cold:
        num_cache_hits = 0
        num_compiles = property(lambda self: counter.num_compiles)

    def use_kept(cache_dir: str | None) -> None:
        kept = os.environ.get(COMPILED)
        use_cache(cache_dir or kept)
        jax_runtime._counter = counter if cache_dir or not kept else Cold()  # type: ignore[assignment]
        jax.config.update("jax_compilation_cache_max_size", -1 if cache_dir else COMPILED_BYTES)  # with it, jax locks

    jax_runtime._use_compilation_cache = use_kept


def _moved(file: int) -> int:
    return fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, HIGH)


def _pair() -> tuple[socket.socket, socket.socket]:
    """Two ends whose numbers no program has a use for."""
    ends = socket.socketpair()
    ours, theirs = (socket.socket(fileno=_moved(end.fileno())) for end in ends)
    for end in ends:
        end.close()
    return ours, theirs


def _ours() -> Iterator[str]:
    """All other modules of the package."""
    root = Path(__file__).parents[1]
    for path in sorted((root / "pytest_npubench").rglob("*.py")):
        name = ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
        if not name.startswith(LATER) and path.stem != "__main__":
            yield name


if __name__ == "__main__":
    for name in (*IMPORTED, *_ours()):
        with suppress(ImportError):  # of an extra that is not installed
            importlib.import_module(name)
    with suppress(ImportError):
        _compile_once()
    _look_through_what_is_installed()
    _name_hooks_and_fixtures_alone()
    gc.freeze()  # a collection would copy all of it
    _take_large_pages()
    _go_on(socket.socket(fileno=_moved(int(sys.argv[1]))), sys.path[2:])  # without this folder and the package
