"""What tests start by a fork is what they would have started afresh."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from forked_python import FRESH, STEM

from pytest_npubench.processes.child import hosted

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere every process starts afresh")

TELLS = """
import json, os, signal, subprocess, sys
from importlib import metadata
from pytest_npubench.processes import guarded

def test_tells(request):
    told = {
        "arguments": sys.argv[1:], "folder": os.getcwd(), "path": sys.path[:3], "own": os.environ["OWN"],
        "package": guarded.__file__,
        "leads": os.getsid(0) == os.getpid(), "parent": os.getppid(), "cores": sorted(os.sched_getaffinity(0)),
        "interrupt": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
        "files": sorted(int(number) for number in os.listdir("/proc/self/fd") if int(number) < 200)[:4],
    }
    by_name = [each for each in vars(request._fixturemanager).values() if isinstance(each, dict)]
    told["fixtures"] = sorted(str(name) for each in by_name for name in each)
    hooks = {name: hook for name, hook in vars(request.config.hook).items() if name[0] != "_"}
    told["hooks"] = {name: len(hook.get_hookimpls()) for name, hook in hooks.items()}
    told["entries"] = sorted(map(str, metadata.entry_points()))
    command = [sys.executable, "-m", "pytest", "--version"]
    told["below"] = subprocess.run(command, capture_output=True, text=True).stdout
    asks = [sys.executable, "-c", "import sys; print('torch' in sys.modules)"]
    told["is_forked_below"] = guarded.run(asks, limit_s=60.0).stdout.strip() == "True"
    with os.fdopen(int(os.environ["TOLD"]), "w") as file:
        json.dump(told, file)
"""


def started(folder: Path, *arguments: str, **variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:hypothesispytest", *arguments],
        cwd=folder,
        env={**os.environ, "JAX_PLATFORMS": "cpu", **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        pass_fds=[int(variables["TOLD"])] if "TOLD" in variables else (),
    )


def told(folder: Path, **variables: str) -> dict[str, Any]:
    reading, writing = os.pipe()
    try:
        process = started(folder, "-q", "test_tells.py", OWN="1", TOLD=str(writing), **variables)
        out, err = process.communicate(timeout=60)
    finally:
        os.close(writing)
    with os.fdopen(reading) as file:
        return {**json.loads(file.read()), "status": process.returncode, "err": err, "passed": "1 passed" in out}


def test_a_forked_process_is_as_a_fresh_one(tmp_path: Path) -> None:
    (tmp_path / "test_tells.py").write_text(TELLS)
    forked, fresh = told(tmp_path), told(tmp_path, **{FRESH: "1"})
    is_forked = FRESH not in os.environ
    assert (forked.pop("is_forked_below"), fresh.pop("is_forked_below")) == (is_forked, False)
    assert forked == fresh
    assert forked["status"] == 0
    assert forked["parent"] == os.getpid()


def test_a_child_that_answers_is_forked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its guard too, with whatever arguments guard.py takes: otherwise all children start afresh, and slowly."""
    (tmp_path / "own_words.py").write_text(
        "import sys\n\nclass Words:\n    def __init__(self, arguments):\n"
        "        pass\n\n    def is_imported(self, name):\n        return name in sys.modules\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    child = hosted("own_words:Words", {}, name="a child of the tests")
    try:
        child.started()
        assert child.call("is_imported", "torch") is (FRESH not in os.environ)
    finally:
        child.close()


@pytest.mark.parametrize("variables", [{}, {FRESH: "1"}], ids=["forked", "fresh"])
@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("def test_it(): assert False", 1),
        ("import os; os._exit(7)", 7),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
    ],
    ids=["red", "left", "killed"],
)
def test_its_end_is_told(tmp_path: Path, variables: dict[str, str], code: str, status: int) -> None:
    (tmp_path / "test_it.py").write_text(code)
    process = started(tmp_path, "-q", **variables)
    process.communicate(timeout=60)
    assert process.returncode == status


def test_nothing_is_left_of_one_that_is_killed(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import time\n\ndef test_it():\n    print('ready', flush=True)\n    time.sleep(60)"
    )
    process = started(tmp_path, "-q", "-s")
    assert process.stdout is not None
    while process.stdout.readline().strip() != "ready":
        assert process.poll() is None
    below = [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]
    if FRESH not in os.environ:
        assert [Path(f"/proc/{pid}/comm").read_text().strip() for pid in below] == [STEM]
    process.kill()
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    until_s = time.monotonic() + 30.0
    while any(map(_runs, below)) and time.monotonic() < until_s:
        time.sleep(0.01)
    assert not any(map(_runs, below))


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
