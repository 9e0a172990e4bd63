"""Self-hosted runners of a bare git remote on the disk: what a CI service does between nights, and nothing kinder.

The work tree is checked out as actions/checkout does it: fetch, a forced checkout, `git clean -ffdx`. Only the state
folder beside it stays. The device is the fake accelerator; its times are multiplied by what the environment says.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from plugin.project import Project, make_project
from store.journal_lines import read_lines, write_lines

from pytest_npubench.nightly.state import StateFolder
from pytest_npubench.store.baselines import Baselines
from pytest_npubench.store.journal import read_journal

BRANCH = "npubench-baselines"
SCRIPT = "import sys; from pytest_npubench.cli.main import main; sys.exit(main())"
TIMEOUT_S = 300
CASES = 3  # test_profile in the buckets of 16, 32 and 64 tokens
SELECT = (  # the three cases, and nothing that depends on how busy this machine is
    "test_profile.py",
    "-k",
    "fake",
    "--npubench-hardware=hw",
    "--npubench-other-load=1",
    "--npubench-remeasure=0",
)
SECRETS = {"GITHUB_TOKEN": "s3cret", "GH_TOKEN": "s3cret"}
SLOWED = """
assert "s3cret" not in os.environ.values(), "what is measured sees a token"


def slowed(requests, run):
    factor = float(os.environ.get("FAKE_FACTOR", "1"))
    segments = tuple(dataclasses.replace(part, duration_s=part.duration_s * factor) for part in run.segments)
    return dataclasses.replace(run, segments=segments, e2e_s=run.e2e_s * factor)

"""


def slowed_project(project: Project) -> None:
    """The fake accelerator, its times multiplied by $FAKE_FACTOR."""
    project.fake("noise=0.002, alter=slowed, driver=os.environ.get('FAKE_DRIVER', 'fake driver 1')")
    project.in_front(SLOWED)


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=a person", "-c", "user.email=person@localhost")
    command = ["git", "-C", str(folder), *identity, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@dataclass(frozen=True)
class Done:
    status: int
    out: str
    err: str


@dataclass(frozen=True)
class Remote:
    """A bare repository whose branch main holds a project for a fake accelerator."""

    path: Path

    @classmethod
    def make(cls, root: Path) -> Remote:
        (root / "seed").mkdir()
        project = make_project(root / "seed")
        slowed_project(project)
        git(root, "init", "--quiet", "--bare", "--initial-branch=main", "origin.git")
        git(project.root, "init", "--quiet", "--initial-branch=main")
        git(project.root, "add", "--all")
        git(project.root, "commit", "--quiet", "-m", "the suite")
        git(project.root, "push", "--quiet", str(root / "origin.git"), "main")
        return cls(path=root / "origin.git")

    def baselines(self, folder: Path, branch: str = BRANCH) -> Baselines:
        """What a branch holds, read by git's own means into an empty folder."""
        folder.mkdir(parents=True)
        archive = subprocess.run(
            ["git", "-C", str(self.path), "archive", branch, "baselines"], capture_output=True, check=True
        )
        subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True)
        return Baselines.load(folder / "baselines")

    def sessions(self, folder: Path, branch: str = BRANCH) -> dict[str, list[str]]:
        """Case -> the sessions accepted for it on a branch, in their order."""
        return {
            name: [session.session for session in case.sessions]
            for file in self.baselines(folder, branch).files
            for name, case in file.cases.items()
        }


@dataclass
class Runner:
    """One runner: its work tree and its state folder."""

    remote: Remote
    root: Path
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.root.mkdir(parents=True)
        git(self.root, "clone", "--quiet", "--depth=1", f"file://{self.remote.path}", "work")

    @property
    def work(self) -> Path:
        return self.root / "work"

    @property
    def state(self) -> StateFolder:
        return StateFolder(path=self.root / "state")

    @property
    def out(self) -> Path:
        return self.work / "npubench-nightly"

    def checkout(self) -> None:
        git(self.work, "fetch", "--quiet", "--depth=1", "origin", "main")
        git(self.work, "checkout", "--quiet", "--force", "--detach", "FETCH_HEAD")
        git(self.work, "clean", "-ffdxq")

    def start(
        self, step: str, *arguments: str, env: Mapping[str, str] | None = None, **options: Any
    ) -> subprocess.Popen[str]:
        command = [
            sys.executable,
            "-c",
            SCRIPT,
            "nightly",
            step,
            "--family",
            "openvino",
            "--state",
            str(self.state.path),
        ]
        return subprocess.Popen(
            [*command, *arguments],
            cwd=self.work,
            env={
                **Project(self.work).environment(),
                "PYTEST_ADDOPTS": "-p no:hypothesispytest -p no:anyio",
                **self.environment,
                **(env or {}),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,
        )

    def call(self, step: str, *arguments: str, env: Mapping[str, str] | None = None) -> Done:
        process = self.start(step, *arguments, env=env)
        try:
            out, err = process.communicate(timeout=TIMEOUT_S)
        finally:
            process.kill()
        return Done(status=process.returncode, out=out, err=err)

    def night(self, *arguments: str, env: Mapping[str, str] | None = None) -> Done:
        """A checkout and all steps."""
        self.checkout()
        return self.call("run", *arguments, "--", *SELECT, env=env)

    def measured(self, journal: Path, session: str) -> str:
        """As if a night had measured just what is in `journal`, a night's own one, in a session of this name."""
        (old,) = read_journal(journal).sessions
        self.state.path.mkdir(exist_ok=True)
        renamed = self.root / "renamed.jsonl"
        renamed.write_text(journal.read_text(encoding="utf-8").replace(old.id, session), encoding="utf-8")
        write_lines(renamed, [{**line, "run": session} if "run" in line else line for line in read_lines(renamed)])
        with self.state.journal.open("ab") as file:
            file.write(renamed.read_bytes())
        return session

    def steps(self) -> dict[str, Any]:
        return dict(json.loads((self.out / "night.json").read_text(encoding="utf-8")))
