"""Plays a fault or a harmless change on a copy of the accepted nights, through the entry points that users have."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from forked_python import FRESH
from nightly.runner import SCRIPT
from plugin.project import OWN_HARDWARE, SHAPES, SUITE, Project, make_project, put_under_git
from plugin.test_own_nights import CLOCK
from suite_folder import serving

from pytest_npubench.errors import BaselineError
from pytest_npubench.store.baselines import Baselines
from pytest_npubench.store.journal import read_journal
from pytest_npubench.store.journal_reader import Session

from .catalogue import ANSWERS, OWN, PAIR, PREDICTION, PROFILE, SERVING, STEPS, Fault, Harmless

HERE = Path(__file__).parent
CONFTEST = """
import planted_device


def pytest_npubench_backends():
    return [planted_device.install()]
"""
PEAK = """
[peak.flops_per_s]
fp32 = {value = 1e9, unit = "FLOP/s", source = "the test's own"}
tf32 = {value = 1e9, unit = "FLOP/s", source = "the test's own"}
"""
"""By which a prefill of 64 tokens takes 2.6 of the fake's 6.4 ms at least."""
SECTIONS = (
    serving(
        dtype="bf16",
        experiments=["answers", "policy", "expert_loads", "chunk_sweep"],
        policies=["chunked", "layered"],
        num_requests=4,
    )
    + """
[[slo]]
model = "*"
workload = "*"
ttft_s = 600
tbt_s = 600
source = "none: a regression of what is served is what these nights are about"
[partition]
pair = "host"
models = ["tiny-split"]
standard_sizes = [16, 64]
tile = 8
decode_shares = [0.5]
prefill_shares = [0.5]
[partition.profile.quick]
experiments = ["npu_stage", "gpu_linear"]
lengths = [1, 20]
min_rounds = 2
max_rounds = 2
budget_s = 1
"""
)
FOLDERS = {
    SERVING: ("scheduling", "planted_serving", ("test_policy.py", "test_expert_loads.py", "test_chunk_sweep.py")),
    PAIR: ("partition", "planted_pair", ("test_npu_stage.py", "test_gpu_linear.py")),
}
"""Of the project, with the suite, what is planted in it, and its tests."""
ENDING = """

def pytest_runtest_logfinish():
    import pytest

    pytest.exit("seen enough", returncode=0)

"""
RERUNNING = """

def pytest_runtest_protocol(item):
    from _pytest.runner import runtestprotocol

    for number in (1, 2):
        item.execution_count = number
        item._initrequest()
        reports = runtestprotocol(item, log=False)
        if number == 1 and any(report.failed for report in reports):
            for report in reports:
                report.outcome = "rerun" if report.failed else report.outcome
                item.ihook.pytest_runtest_logreport(report=report)
            continue
        for report in reports:
            item.ihook.pytest_runtest_logreport(report=report)
        return True

"""
"""As pytest-rerunfailures runs a test that failed once more."""
FILES = (PROFILE, PREDICTION, STEPS)
ANOTHER_RELEASE = ("jax==0.9.2", "jaxlib==0.9.2")
ACCEPT = ("--npubench-accept", "--npubench-remeasure=1", "-p", "no:benchmark")


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """A run that is over: its exit status and output, its case records, and the cases that were accepted of it, with
    the number of sessions that stand beside it there."""

    result: pytest.RunResult
    records: Mapping[str, Mapping[str, Any]]
    accepted: Mapping[str, int]

    @property
    def output(self) -> str:
        return self.result.stdout.str() + self.result.stderr.str()

    @property
    def kinds(self) -> dict[str, str]:
        """Case -> its verdict."""
        return {case: record["verdict"]["kind"] for case, record in self.records.items()}


def first_night(root: Path) -> Project:
    """The project before anything was accepted: three buckets, LENS on them, and tests of a user's own."""
    root.mkdir(parents=True)
    project = make_project(root)
    project.fake(case_error=0.10, mean_error=0.05, min_rounds=4, max_rounds=4)
    (project.root / "hw" / "mini.toml").unlink()
    with (project.root / "hw" / "fake.toml").open("a", encoding="utf-8") as file:
        file.write(PEAK + SECTIONS)
    for path in project.root.glob("test_*.py"):
        if path.name not in FILES:
            path.unlink()
    project.write("test_real.py", (HERE / "real_case.py").read_text(encoding="utf-8"))
    project.write(OWN, (HERE / "own_cases.py").read_text(encoding="utf-8"))
    for folder, (suite, stand_in, tests) in FOLDERS.items():
        project.write(f"{folder}/conftest.py", f"import {stand_in}\n\n{stand_in}.install()\n")
        for test in tests:
            project.write(f"{folder}/{test}", (SUITE.parent / suite / test).read_text(encoding="utf-8"))
    project.write("clock.py", CLOCK)
    project.write("conftest.py", OWN_HARDWARE + CONFTEST + SHAPES)
    return project


def answering(root: Path) -> Project:
    """A project with a real engine: the jax decoder on this machine's processors, and the case of its answers."""
    project = _answering(root, SUITE / ANSWERS, "planted_answers")
    path = project.root / "hw" / "mini.toml"
    path.write_text(path.read_text(encoding="utf-8").replace("mini-llama", "answering"), encoding="utf-8")
    return project


def answering_mixture(root: Path) -> Project:
    """The same of the torch engine and a mixture of experts, under the policies of the scheduling suite."""
    pytest.importorskip("torch", reason="torch is not installed")
    project = _answering(root, SUITE.parent / "scheduling" / ANSWERS, "planted_mixture")
    with (project.root / "hw" / "mini.toml").open("a", encoding="utf-8") as file:
        file.write(SECTIONS.replace("small-gpt-oss", "answers-moe").replace("bf16", "fp32"))
    return project


def answering_server(root: Path) -> Project:
    """The same of a server, which is a stand-in: what it answers hangs on what it is asked, and on nothing else."""
    pytest.importorskip("aiohttp", reason="aiohttp is not installed")
    from plugin.test_server_suite import write_hardware

    project = _answering(root, SUITE.parent / "server" / ANSWERS, "planted_server")
    write_hardware(project)
    return project


def _answering(root: Path, test: Path, plants: str) -> Project:
    root.mkdir(parents=True)
    project = make_project(root)
    project.hardware("mini", buckets=[32, 64])
    for path in project.root.glob("test_*.py"):
        path.unlink()
    shutil.copy(test, project.root)
    project.write("conftest.py", OWN_HARDWARE + f"from {plants} import *\n\ninstall()\n")
    return project


def play(project: Project, row: Fault | Harmless) -> Played:
    """The row's night, accepted as far as the gate lets it."""
    played: Played = globals()[row.play](project, row)
    return played


def environment(plant: str = "", more: Sequence[tuple[str, str]] = ()) -> dict[str, str]:
    """Of a run with this planted; stand-ins of other tests are imported from here."""
    paths = [*(text for name, text in more if name == "PYTHONPATH"), str(HERE), str(HERE.parent)]
    return {**dict(more), "PLANTED": plant, "PYTHONPATH": os.pathsep.join(paths)}


def night(project: Project, row: Fault | Harmless, *options: str) -> Played:
    before = sessions_of(project)
    num_before = len(project.journal().sessions) if project.journal_path.exists() else 0
    more = row.environ if isinstance(row, Harmless) else ()
    result = project.run(*row.files, *(options or ACCEPT), *row.options, env=environment(row.plant, more))
    sessions = project.journal().sessions[num_before:] if project.journal_path.exists() else ()
    return played_of(result, sessions, before, sessions_of(project))


def played_of(
    result: pytest.RunResult,
    sessions: Sequence[Session],
    before: Mapping[str, Sequence[str]],
    after: Mapping[str, Sequence[str]],
) -> Played:
    cases = [record for session in sessions for record in session.records if record["record"] == "case"]
    return Played(
        result=result,
        records={record["case"]: record for record in cases},
        accepted=accepted(before, after),
    )


def without_accepting(project: Project, row: Fault | Harmless) -> Played:
    return night(project, row, "--npubench-remeasure=1")


def with_longer_points(project: Project, row: Fault | Harmless) -> Played:
    """Profile points of 13 tokens, where those of 9 were accepted."""
    path = project.root / "hw" / "fake.toml"
    path.write_text(path.read_text().replace("profile_output_tokens = 9", "profile_output_tokens = 13"))
    return night(project, row)


def with_an_edited_baseline(project: Project, row: Fault | Harmless) -> Played:
    (path,) = (project.root / "baselines" / "fake").glob("buckets-*.json")
    text = path.read_text()
    path.write_text(text.replace("0.003", "0.004", 1))
    assert path.read_text() != text
    return night(project, row)


def with_another_release(project: Project, row: Fault | Harmless) -> Played:
    """The release of jax before that of the accepted nights, in front of the installed one."""
    folder = project.root.parent / "release"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder)]
    done = subprocess.run([*pip, *ANOTHER_RELEASE], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"{' '.join(ANOTHER_RELEASE)} cannot be had here: {done.stderr.strip()}")
    played = night(project, replace(row, environ=(("PYTHONPATH", str(folder)), (FRESH, "1"))))
    assert f"jaxlib {ANOTHER_RELEASE[0].partition('==')[2]}" in project.journal_path.read_text(encoding="utf-8")
    return played


def backwards(project: Project, row: Fault | Harmless) -> Played:
    project.in_front("\n\ndef pytest_collection_modifyitems(items):\n    items.reverse()\n\n")
    return night(project, row)


def with_more_rounds(project: Project, row: Fault | Harmless) -> Played:
    path = project.root / "hw" / "fake.toml"
    path.write_text(path.read_text().replace("_rounds = 4", "_rounds = 8"))
    return night(project, row)


def with_another_test(project: Project, row: Fault | Harmless) -> Played:
    project.write("test_new.py", "def test_new():\n    pass\n")
    return night(project, row)


def resumed(project: Project, row: Fault | Harmless) -> Played:
    night(project, row, "--npubench-remeasure=1")
    return night(project, row, *ACCEPT, "--npubench-resume")


def resumed_at_another_commit(project: Project, row: Fault | Harmless) -> Played:
    """What an earlier commit measured lies in the journal; the fault is in the commit of now."""
    night(project, replace(row, plant=""), "--npubench-remeasure=1")
    put_under_git(project.root)
    return night(project, row, *ACCEPT, "--npubench-resume")


def with_a_journal_elsewhere(project: Project, row: Fault | Harmless) -> Played:
    """It exists already, so that pytest could take its path for a test's, and the folder above both for its root; what
    it holds is read where it lies."""
    (project.root.parent / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    elsewhere = project.root.parent / "elsewhere" / "journal.jsonl"
    elsewhere.parent.mkdir()
    shutil.copy(project.journal_path, elsewhere)
    row = replace(row, options=("--npubench-journal", str(elsewhere)))
    before, num_before = sessions_of(project), len(project.journal().sessions)
    result = project.run(*row.files, *ACCEPT, *row.options, env=environment(row.plant))
    return played_of(result, read_journal(elsewhere).sessions[num_before:], before, sessions_of(project))


def ended_half_way(project: Project, row: Fault | Harmless) -> Played:
    project.in_front(ENDING)
    return night(project, row)


def run_again(project: Project, row: Fault | Harmless) -> Played:
    project.in_front(RERUNNING)
    return night(project, row)


def counted_twice(project: Project, row: Fault | Harmless) -> Played:
    """The cases that have two sessions of the run."""
    before = sessions_of(project)
    played = night(project, row)
    after = sessions_of(project)
    twice = {name: held for name, held in after.items() if len(held) > len(before.get(name, ())) + 1}
    return replace(played, accepted=accepted(before, twice))


def accepted_twice(project: Project, row: Fault | Harmless) -> Played:
    """What the second acceptance adds."""
    played = night(project, row)
    assert played.accepted
    before = sessions_of(project)
    command = [sys.executable, "-c", SCRIPT, "baseline", "accept", str(project.journal_path)]
    subprocess.run(command, cwd=project.root, env=project.environment(), capture_output=True, check=True)
    return replace(played, accepted=accepted(before, sessions_of(project)))


def sessions_of(project: Project) -> dict[str, list[str]]:
    """The sessions of each entry that the baselines hold, by case and key; nothing where they cannot be read."""
    try:
        files = Baselines.load(project.root / "baselines", missing_ok=True).files
    except BaselineError:
        return {}
    return {
        f"{name} {file.key}": [one.session.partition("@")[0] for one in case.sessions]
        for file in files
        for name, case in file.cases.items()
    }


def accepted(before: Mapping[str, Sequence[str]], after: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """The cases that a run put into the baselines, and how many sessions now stand beside its own."""
    return {name.partition(" ")[0]: len(held) - 1 for name, held in after.items() if held != before.get(name)}
