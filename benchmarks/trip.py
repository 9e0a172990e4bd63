"""What a run of the bucket suite alone takes with it: modules, files on the way of a value, CPU time to collect.

python benchmarks/trip.py [--list]

A module counts when the process that the user starts has imported it. A file counts as entered when one of its
functions is called there: in the whole run, and on the trip of a bucket from the hardware file's TOML to the case's
verdict on record. The campaign's own process, which opens the device, is not looked into.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "pytest_npubench"
SUITE = "suites/buckets"
FILE = f"{SUITE}/test_profile.py"
CASE = "cpu-tiny-llama-b1-bucket128"
# short, and whatever else the machine does: what is looked at is no time
RUN = ("-q", FILE, "-k", CASE, "-p", "no:cacheprovider", "--npubench-other-load", "1")
FIRST, LAST = ("core/hardware.py", "load_all"), ("plugin/session.py", "record")
REPEATS = 7
LIMITS = {"modules": 120, "trip": 60, "cpu_s": 0.6}


class Entered:
    """Files of the package whose functions were called, while sys.setprofile calls this."""

    def __init__(self) -> None:
        self.run: set[str] = set()
        self.trip: set[str] = set()
        self._is_on_trip = False

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event != "call" or not code.co_flags & inspect.CO_OPTIMIZED:  # bodies of modules and classes are none
            return
        _, found, file = code.co_filename.rpartition(f"/{PACKAGE}/")
        if not found:
            return
        self._is_on_trip |= (file, code.co_name) == FIRST
        self.run.add(file)
        if self._is_on_trip:
            self.trip.add(file)
        if (file, code.co_name) == LAST:
            self._is_on_trip = False


def look(arguments: list[str], place: Path) -> None:
    """In a process of its own: run pytest, and write down what it took."""
    import pytest

    entered = Entered()
    threading.setprofile(entered)
    sys.setprofile(entered)
    status = int(pytest.main(arguments))
    sys.setprofile(None)
    modules = sorted(name for name in sys.modules if name.partition(".")[0] == PACKAGE)
    found = {"status": status, "modules": modules, "run": sorted(entered.run), "trip": sorted(entered.trip)}
    place.write_text(json.dumps(found), encoding="utf-8")


def looked_at(*arguments: str) -> dict[str, Any]:
    """Raises SystemExit where pytest was not content."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "found.json"
        journal = f"--npubench-journal={folder}/journal.jsonl"
        command = [sys.executable, __file__, "--look", str(place), *arguments, journal]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if not place.is_file():
            sys.exit(done.stdout + done.stderr)
        found: dict[str, Any] = json.loads(place.read_text(encoding="utf-8"))
    if found["status"]:
        sys.exit(done.stdout + done.stderr)
    return found


def cpu_s(*arguments: str, folder: Path = ROOT) -> float:
    """CPU seconds of a pytest that collects, the least of several: what else the machine does only adds to it."""
    seconds = []
    for _ in range(REPEATS):
        before = os.times()
        command = [sys.executable, "-m", "pytest", "--collect-only", "-q", *arguments]
        subprocess.run(command, cwd=folder, capture_output=True, check=True)
        after = os.times()
        user_s, system_s = (
            getattr(after, name) - getattr(before, name) for name in ("children_user", "children_system")
        )
        seconds.append(user_s + system_s)
    return min(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False, description=__doc__.partition("\n")[0])
    parser.add_argument("--list", action="store_true", help="name the modules and files")
    if "--look" in sys.argv:
        _, _, place, *rest = sys.argv
        look(rest, Path(place))
        return
    arguments = parser.parse_args()
    collected, run = looked_at("--collect-only", "-q", SUITE), looked_at(*RUN)
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "test_plain.py").write_text("def test_plain():\n    pass\n")
        plain_s = cpu_s("-p", "no:npubench", folder=Path(name))
    print(f"modules imported to collect {SUITE}: {len(collected['modules'])} (limit {LIMITS['modules']})")
    print(f"modules imported to run one case of it: {len(run['modules'])} (limit {LIMITS['modules']})")
    print(f"files that it enters: {len(run['run'])}; from TOML to verdict: {len(run['trip'])} (limit {LIMITS['trip']})")
    print(f"CPU seconds to collect {FILE}: {cpu_s(FILE):.2f} (limit {LIMITS['cpu_s']}); a plain pytest: {plain_s:.2f}")
    if arguments.list:
        print("", *run["modules"], "", *run["trip"], sep="\n")


if __name__ == "__main__":
    main()
