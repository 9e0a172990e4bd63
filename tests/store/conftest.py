"""Fingerprints to write down, and how to run a second process that uses the store."""

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from made_records import H200, HOST
from written_runs import WrittenRuns

from pytest_npubench.store.baselines import Baselines
from pytest_npubench.store.fingerprint import Fingerprint, FingerprintKey, HostFacts
from pytest_npubench.store.journal import JournalWriter


@pytest.fixture(scope="session")
def host() -> HostFacts:
    return HOST


@pytest.fixture(scope="session")
def fingerprint(host: HostFacts) -> Fingerprint:
    return Fingerprint(device=replace(H200, extra=(("uuid", "GPU-1"),)), host=host)


@pytest.fixture(scope="session")
def key(fingerprint: Fingerprint) -> FingerprintKey:
    return fingerprint.key()


@pytest.fixture(scope="session")
def other_driver(key: FingerprintKey) -> FingerprintKey:
    """The key after a driver upgrade."""
    return replace(key, driver="580.12")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "baselines"


@pytest.fixture
def baselines(directory: Path) -> Baselines:
    return Baselines.load(directory, missing_ok=True)


@pytest.fixture(scope="session")
def start() -> Callable[..., subprocess.Popen[str]]:
    """start(script, *arguments) runs a Python script in a process of its own, with pipes to and from it."""

    def start(script: str, *arguments: object) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", script, *map(str, arguments)]
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    return start


@pytest.fixture(scope="session")
def run_at_once() -> Callable[[Sequence[subprocess.Popen[str]]], None]:
    """run_at_once(processes): each says that it is ready, goes on when it is told so, and ends without an error."""

    def run(processes: Sequence[subprocess.Popen[str]]) -> None:
        for process in processes:
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            process.stdin.write("go\n")
            process.stdin.flush()
        for process in processes:
            assert process.communicate(timeout=120)[1] == ""
            assert process.returncode == 0

    return run


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / ".npubench" / "journal.jsonl"


@pytest.fixture
def journal(path: Path, host: HostFacts) -> Iterator[JournalWriter]:
    with JournalWriter.open(path, host=host, settings={"profile": "quick"}) as writer:
        yield writer


@pytest.fixture
def runs(tmp_path: Path, fingerprint: Fingerprint) -> WrittenRuns:
    return WrittenRuns(tmp_path, fingerprint)


@pytest.fixture
def name_sessions(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """name_sessions(*names) gives the next sessions these names."""

    def name(*names: str) -> None:
        left = iter(names)
        monkeypatch.setattr("pytest_npubench.store.journal.new_id", lambda: next(left))

    return name
