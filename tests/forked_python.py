"""Python processes that tests start, forked from one that has imported everything: most of a second less for each.

A *stem* is a process with one thread that has imported what a run imports, and done nothing else. For
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
import ctypes
import fcntl
import gc
import importlib
import inspect
import os
import pickle
import resource
import runpy
import signal
import socket
import struct
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from _pytest.config import default_plugins
from _pytest.fixtures import FixtureFunctionDefinition

from pytest_npubench.core import entry_points

FRESH = "NPUBENCH_TESTS_FRESH"
COMPILED = "NPUBENCH_TESTS_COMPILED"
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
LATER = (
    *(f"pytest_npubench.{name}." for name in ("backends", "engines")),
    *(f"pytest_npubench.extensions.{name}." for name in ("adapters", "compilers", "vllm")),
    "pytest_npubench.plugin.worker_devices",  # of xdist, which pytest wants to load itself
    *UNITS,
)
"""Modules of ours that import a vendor's packages, or that a process imports with an environment of its own."""
UNITS_SET = {"OMP_NUM_THREADS": "1"}
GUARD = (sys.executable, "-I", "-S", str(Path(__file__).parents[1] / "pytest_npubench" / "processes" / "guard.py"))
GUARD_ARGUMENTS = 4
STANDARD = ("p2cread", "c2pwrite", "errwrite")
PR_SET_NAME = 15  # prctl(2)
CLONE_PARENT = 0x8000  # clone(2)
SYS_CLONE = {"x86_64": 56, "aarch64": 220}
MADV_COLLAPSE = 25  # madvise(2)
LARGE_PAGE_BYTES = 2**21
STEM = "stem"
"""What a stem is called in /proc/PID/comm, for a test that counts processes."""
VERSION = metadata.version
HIGH = 200  # no process asks for this number of a file
SIZE = struct.Struct("!Q")

_libc = ctypes.CDLL(None)
_syscall = ctypes.PyDLL(None, use_errno=True).syscall  # which keeps the interpreter's lock
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
    command = [sys.executable, __file__, str(theirs.fileno())]
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
    (pid,) = SIZE.unpack(_received(stem, SIZE.size))
    return int(pid)


def _received(stem: socket.socket, size: int) -> bytes:
    text = b""
    while len(text) < size:
        if not (more := stem.recv(size - len(text))):
            raise EOFError("the other end is gone")
        text += more
    return text


def _fork_for(owner: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """What a stem does while its owner lives. Returns in each forked process: what was asked for, and the files."""
    while True:
        header, files, _, _ = socket.recv_fds(owner, SIZE.size, 64)
        if not header:
            os._exit(0)
        request = pickle.loads(_received(owner, *SIZE.unpack(header)))
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
    sys.modules["forked_python"] = sys.modules["__main__"]  # a worker's conftest.py imports it and installs it again
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
