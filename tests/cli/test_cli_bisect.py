"""npubench bisect, with packages and repositories that are made here and a slow-down planted in a known version.

pip, venv and git are the real ones. In place of pytest there is a stand-in, which leaves a journal written by the real
JournalWriter, as slow as the version that it imports says; the soak measures with the real one.
"""

from __future__ import annotations

import os
import re
import signal
import site
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from .conftest import Answer
from .test_cli_ab import journal_of

Run = Callable[..., Answer]
SLOW = "buckets/profile/h200-tiny-b4-bucket4"
NUM_JOURNALS = 40
BROKEN = "raise ImportError('no symbol')"
STAND_IN = """
import sys, time
from pathlib import Path
import planted
folder = Path({folder!r})
journal = Path(sys.argv[sys.argv.index("--npubench-journal") + 1])
with (folder / "log").open("a") as log:
    log.write(f"{{journal.parent.name}}/{{journal.stem}} {{planted.SLOWER}}\\n")
number = len((folder / "log").read_text().splitlines()) % {num_journals}
time.sleep({sleep_s})
journal.write_bytes((folder / str(planted.SLOWER) / str(number)).read_bytes())
"""


def wheel(links: Path, name: str, version: str, source: str = "", *requires: str) -> None:
    links.mkdir(exist_ok=True)
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    files = {
        f"{name}.py": source,
        f"{info}/METADATA": metadata + "".join(f"Requires-Dist: {line}\n" for line in requires),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(links / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
        archive.writestr(f"{info}/RECORD", "".join(f"{path},,\n" for path in (*files, f"{info}/RECORD")))


@dataclass
class Stage:
    """A folder to work in, with an index of wheels beside it and a stand-in for pytest."""

    folder: Path

    @property
    def links(self) -> Path:
        return self.folder / "links"

    def stand_in(self, *factors: float, sleep_s: float = 0.0) -> None:
        for factor in factors:
            journals = self.folder / str(factor)
            journals.mkdir(exist_ok=True)
            for number in range(NUM_JOURNALS):
                (journals / str(number)).write_bytes(journal_of(number, "0.10.2", ((SLOW, factor),), "5d41402abc4b"))
        module = self.folder / "stand-in" / "pytest"
        module.mkdir(parents=True, exist_ok=True)
        text = STAND_IN.format(folder=str(self.folder), num_journals=NUM_JOURNALS, sleep_s=sleep_s)
        (module / "__init__.py").touch()
        (module / "__main__.py").write_text(text)

    def releases(self, **sources: float | str) -> None:
        """By version, as v1_2: how slow it is, or its source."""
        for name, source in sources.items():
            text = source if isinstance(source, str) else f"SLOWER = {source}\n"
            wheel(self.links, "planted", name.removeprefix("v").replace("_", "."), text)

    @property
    def measured(self) -> list[str]:
        """The processes of pytest that there were, such as "1.0--1.1/pair-1-A 1.0"."""
        log = self.folder / "log"
        return log.read_text().splitlines() if log.exists() else []


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "links"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "stand-in"))
    return Stage(folder=tmp_path)


PACKAGE = ("bisect", "--package", "planted")
TESTS = ("--", "suites/")


def test_the_release_that_became_slower(call: Run, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """One release is broken, one cannot be installed, and a distribution of this environment has to follow."""
    stage.stand_in(1.0, 1.08)
    stage.releases(v1_0=1.0, v1_1=1.0, v1_2=BROKEN, v1_4=1.08, v1_10=1.08)
    wheel(stage.links, "planted", "1.3", "SLOWER = 1.0\n", "not-to-be-had")
    wheel(stage.links, "follower", "2.0", "", "planted>=1.4")
    wheel(stage.folder / "here", "follower", "1.0", "", "planted<1.4")
    with zipfile.ZipFile(stage.folder / "here" / "follower-1.0-py3-none-any.whl") as archive:
        archive.extractall(stage.folder / "below")
    monkeypatch.syspath_prepend(stage.folder / "below")
    below = [str(stage.folder / "below"), *site.getsitepackages()]
    monkeypatch.setattr(site, "getsitepackages", lambda: below)
    answer = call(*PACKAGE, "1.0..1.10", "--pairs", "3", "--keep", "kept", *TESTS)
    assert answer.status == 3, answer.err
    first, *others = answer.out.splitlines()
    assert first.startswith(f"between planted 1.1 and planted 1.4: {SLOW} tbt_s +"), answer.out
    assert first.endswith("; not told more closely")
    text = "\n".join(others)
    assert "passed over: 1.2: pytest of environment B (" in text
    assert "measures no case: ImportError: no symbol; see " in text
    assert "passed over: 1.3: planted==1.3: ERROR: No matching distribution found for not-to-be-had" in text
    assert "   planted 1.1 -> 1.4" in text
    assert "   follower 1.0 -> 2.0" in text
    assert stage.measured[0].startswith("1.0--1.10/")
    assert (stage.folder / "work" / "kept" / "environments" / "1.4").is_dir()


def test_killed_it_goes_on_where_it_was_and_cleans_up(call: Run, stage: Stage) -> None:
    stage.stand_in(1.0, 1.2, sleep_s=0.3)
    stage.releases(v1_0=1.0, v1_1=1.0, v1_2=1.2, v1_3=1.2)
    asked = [*PACKAGE, "1.0..1.3", "--pairs", "3", *TESTS]
    command = [sys.executable, "-c", "from pytest_npubench.cli.main import main; import sys; sys.exit(main())", *asked]
    with (stage.folder / "killed.log").open("w") as log:
        running = subprocess.Popen(command, stdout=log, stderr=log)
        until = time.monotonic() + 120
        while len(stage.measured) < 9 and time.monotonic() < until:
            time.sleep(0.02)
        os.kill(running.pid, signal.SIGKILL)
        running.wait(60)
    assert (stage.folder / "work" / ".npubench" / "bisect" / "bisect.json").exists()
    stage.stand_in()
    assert "holds a run of other versions" in call(*PACKAGE, "1.0..1.2", *TESTS).error
    answer = call(*asked)
    assert answer.status == 0, answer.err
    assert answer.out.startswith(f"between planted 1.1 and planted 1.2: {SLOW} tbt_s +")
    processes = [line.split()[0] for line in stage.measured]
    assert len(processes) - len(set(processes)) <= 1  # the one that was killed
    assert not (stage.folder / "work" / ".npubench" / "bisect").exists()


@pytest.mark.parametrize(
    ("span", "status", "said"),
    [
        ("1.0..1.1", 4, "planted 1.1 does not differ from planted 1.0"),
        ("1.2..1.1", 0, "between planted 1.2 and planted 1.1: "),  # what made it faster on the way back
        ("1.0..1.7", 1, "planted 1.7 is not released for this Python; there are 1.0, 1.1, 1.2"),
        ("1.0..1.0", 1, "want two releases"),
        ("1.0", 1, "want two ends, such as 0.9.2..0.10.2"),
        ("1.0..new", 1, "'new' is no version"),
    ],
)
def test_ends(call: Run, stage: Stage, span: str, status: int, said: str) -> None:
    stage.stand_in(1.0, 1.2)
    stage.releases(v1_0=1.0, v1_1=1.0, v1_2=1.2)
    answer = call(*PACKAGE, span, "--pairs", "3", *TESTS)
    assert (answer.status, said in answer.out + answer.err) == (status, True), answer.out + answer.err


def test_what_is_not_decided_is_kept_and_measured_on(call: Run, stage: Stage) -> None:
    stage.stand_in(1.0, 1.02)
    stage.releases(v1_0=1.0, v1_1=1.02)
    asked = (*PACKAGE, "1.0..1.1", "--pairs", "3", "--margin", "0.015")
    answer = call(*asked, "--most-pairs", "3", *TESTS)
    assert answer.status == 3, answer.out
    said = rf"not decided whether planted 1.1 differs from planted 1.0: {SLOW} tbt_s \+\d.* % \(.* to .*\)\n"
    assert re.match(said, answer.out), answer.out
    assert answer.err.endswith(
        f"kept in {Path('.npubench').absolute() / 'bisect'}: the same command with --most-pairs 6 goes on there\n"
    )
    num_measured = len(stage.measured)
    assert call(*asked, "--most-pairs", "6", *TESTS).status != 1
    assert (num_measured, len(stage.measured)) == (6, 12)


def git(*arguments: str) -> str:
    settings = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    return subprocess.run(["git", *settings, *arguments], check=True, capture_output=True, text=True).stdout.strip()


def test_the_commit_that_became_slower(call: Run, stage: Stage) -> None:
    stage.stand_in(1.0, 1.2)
    git("init", "--quiet")
    for number, factor in enumerate((1.0, 1.0, 1.2, 1.2)):
        Path("planted.py").write_text(f"SLOWER = {factor}\nNUMBER = {number}\n")
        git("add", ".")
        git("commit", "--quiet", "-m", f"Change {number}")
    Path("planted.py").write_text("SLOWER = 7\n")  # what is not committed is not measured
    document = call("bisect", "--commits", "HEAD~3..HEAD", "--pairs", "3", "--json", *TESTS).json
    assert [document["before"], document["after"]] == [git("rev-parse", f"HEAD~{back}")[:10] for back in (2, 1)]
    assert document["step"]["ratio"] == pytest.approx(1.2, abs=0.03)
    assert git("worktree", "list", "--porcelain").count("worktree ") == 1
    compared = call("ab", "--commits", "HEAD~2..HEAD~1", "--pairs", "3", *TESTS)
    assert (compared.status, "(Change 1) (3 sessions)" in compared.out) == (1, True), compared.out
    assert call("bisect", "--commits", "HEAD..HEAD~1", *TESTS).error.endswith("want a commit and one that follows it\n")
    assert "fatal: Needed a single revision" in call("bisect", "--commits", "nothing..HEAD", *TESTS).error
    Path("setup.py").touch()
    git("add", ".")
    git("commit", "--quiet", "-m", "To be installed, with what no index here has")
    said = call("bisect", "--commits", "HEAD~1..HEAD", *TESTS).err
    assert "worktree: ERROR: No matching distribution found for setuptools" in said, said


@pytest.mark.soak
def test_real_measurements_of_a_callable(call: Run, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls that sleep: where another program shares the core, quartiles of ones that compute scatter by a third from
    process to process, and 40 pairs may not decide whether a release has the planted 50 %."""
    monkeypatch.delenv("PYTHONPATH")
    stage.releases(**{f"v1_{number}": f"SECONDS = {0.002 if number < 2 else 0.003}" for number in range(4)})
    Path("pytest.ini").write_text("[pytest]\n")
    Path("test_planted.py").write_text(
        "import planted, pytest, time\n\n\n@pytest.mark.cpu\n@pytest.mark.npubench(rounds=100)\n"
        "def test_sleep(npubench):\n    npubench(lambda: time.sleep(planted.SECONDS))\n"
    )
    options = ["--npubench-other-load=1", "--npubench-lock-timeout=60", "test_planted.py"]
    answer = call(*PACKAGE, "1.0..1.3", "--", *options)
    assert answer.status == 0, answer.out + answer.err
    assert "between planted 1.1 and planted 1.2" in answer.out
