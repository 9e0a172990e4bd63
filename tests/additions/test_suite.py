"""A suite from outside: three files and an entry point, run, judged, reported, accepted and compared as ours are."""

from __future__ import annotations

from pathlib import Path

import pytest
from plugin.project import Project

from pytest_npubench import suites
from pytest_npubench.errors import BrokenEntryError

from .conftest import OnPath
from .third_party import distribution, fake_project, npubench, with_path

PACKAGE = '''
"""How long a ping of the device takes."""

from dataclasses import dataclass
from itertools import count

from pytest_npubench.campaign.points import VisitedOnce
from pytest_npubench.campaign.visits import Timing
from pytest_npubench.core.case import Case
from pytest_npubench.core.record_reader import Counts, Positive
from pytest_npubench.suites.protocol import Suite

PING_S = 0.002


@dataclass(frozen=True, kw_only=True)
class PingSection:
    """[pings] of a hardware file."""

    sizes: Counts
    limit_s: Positive


@dataclass(frozen=True, kw_only=True)
class PingPoint(VisitedOnce):
    size: int

    @property
    def name(self):
        return f"ping/{self.size}"


@dataclass(frozen=True, kw_only=True)
class PingPlan:
    spec: object
    size: object
    pings: PingSection
    framework = "jax"

    @property
    def key(self):
        return f"{self.spec.name}-pings"

    @property
    def settings(self):
        return {"sizes": self.pings.sizes}

    @property
    def limits(self):
        return {"limit_s": self.pings.limit_s}

    def includes(self, kind):
        return True

    def case(self, suite, kind, axes):
        return Case(
            suite=suite, kind=kind, hardware=self.spec.name, family=self.spec.family, model="none", batch_size=1,
            axes=axes,
        )


class PingBench:
    def __init__(self):
        self._noise = count()

    def load(self, points, earlier, stage):
        return {}

    def warm_up(self, point):
        return PING_S, True

    def sample(self, point, round_index):
        return Timing(seconds=point.size * PING_S * (1 + 1e-4 * (next(self._noise) % 7)))


class Pings(Suite):
    name = "pings"
    about = "how long a ping takes"
    section = "pings"

    def read(self, root):
        return root.read("pings", PingSection)

    def plans(self, spec, choice):
        pings = spec.section(PingSection)
        return [PingPlan(spec=spec, size=spec.profile(choice.profile), pings=pings)] if pings else []

    def bench(self, runtime, plan, site):
        return PingBench()


SUITE = Pings()
'''
KIND = """
from npubench_pings import PingPoint

from pytest_npubench.verdict.result import Judgement, Metric
from pytest_npubench.verdict import Gate, judge_gates


class PingKind:
    name = "ping"
    suite = "pings"

    def axes(self, plan):
        return ((("size", size),) for size in plan.pings.sizes)

    def points(self, case, plan):
        return (PingPoint(size=int(case.axis("size"))),)

    def judge(self, case, plan, measured):
        (point,) = self.points(case, plan)
        samples = measured.samples(point.name)
        gate = Gate(metric="ping", value=samples.mean_s, limit=plan.pings.limit_s, unit="s")
        return Judgement(
            verdict=judge_gates((gate,)),
            what=f"ping of {point.size}",
            metrics=(Metric(name="ping_s", unit="s", value=samples.mean_s, samples=samples.samples_s),),
            measured_s=samples.mean_s,
        )

    def settled(self, case, plan, measured):
        return True


KIND = PingKind()
"""
TEST = """
import pytest


@pytest.mark.npubench_cases("ping")
def test_ping(npubench_case):
    npubench_case.run()
"""
FILES = {"npubench_pings/__init__.py": PACKAGE, "npubench_pings/kinds/ping.py": KIND}
SECTION = "[pings]\nsizes = [1, 5]\nlimit_s = 0.005\n"
POINTS = {"pytest_npubench.suites": {"pings": "npubench_pings:SUITE"}}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project whose hardware file has a section of the suite, with the test of its kind."""
    project = fake_project(tmp_path)
    project.write("test_pings.py", TEST)
    with (project.root / "hw" / "fake.toml").open("a", encoding="utf-8") as file:
        file.write(SECTION)
    return project


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    return tmp_path / "outside"


def test_a_suite_is_three_files_and_an_entry_point(project: Project, outside: Path) -> None:
    assert len({*FILES, "test_pings.py"}) == 3
    env = with_path(distribution(outside, "npubench-pings", FILES, POINTS))
    arguments = (
        "test_pings.py",
        "-m",
        "pings and npu",
        "--npubench-require",
        "pings",
        "--npubench-report",
        "report.html",
    )
    done = project.run(*arguments, "--npubench-accept", env=env)
    done.assert_outcomes(passed=1, failed=1)
    verdicts = {case: record["verdict"]["kind"] for case, record in project.cases().items()}
    assert verdicts == {"pings/ping/fake-none-b1-size1": "no-baseline", "pings/ping/fake-none-b1-size5": "failed"}
    assert {record["campaign"] for record in project.records("round")} == {"fake-pings"}
    page = (project.root / "report.html").read_text(encoding="utf-8")
    for shown in ("fake", "none, pings", "ping_s", "ping of 5"):
        assert shown in page
    nobody = project.run("test_pings.py", "-k", "size9", "--npubench-require", "pings", env=env)
    assert "--npubench-require pings: no case of the suite pings was selected" in nobody.stderr.str()
    assert "pings: a suite of npubench-pings" in project.run("--markers", env=env).stdout.str()
    assert "no fault found" in npubench(project, "hardware", "--check", "hw/fake.toml", path=outside).stdout
    fit = npubench(project, "hardware", "--fit", path=outside)
    assert fit.returncode == 0, fit.stderr
    assert "warning: fake: what fits is unknown here: " in fit.stderr, "only a conftest knows its shapes"
    project.run(*arguments, env=env).assert_outcomes(passed=1, failed=1)
    assert project.cases()["pings/ping/fake-none-b1-size1"]["metrics"]["ping_s"]["verdict"] is not None
    replayed = npubench(project, "show", "--html", str(project.journal_path), "-o", "later.html", path=project.root)
    assert replayed.returncode == 0, replayed.stderr
    assert "ping of 5" in (project.root / "later.html").read_text(encoding="utf-8"), "without the suite installed"


BROKEN = {
    "the import fails": (
        {**FILES, "npubench_pings/__init__.py": "import nowhere_at_all\n"},
        POINTS,
        "suite 'pings' of npubench-pings cannot be imported: ModuleNotFoundError: No module named 'nowhere_at_all'",
    ),
    "it exits": (
        {**FILES, "npubench_pings/__init__.py": "raise SystemExit(3)\n"},
        POINTS,
        "suite 'pings' of npubench-pings cannot be imported: SystemExit: 3",
    ),
    "it is no suite": (
        {**FILES, "npubench_pings/__init__.py": "SUITE = 'pings'\n"},
        POINTS,
        "suite 'pings' of npubench-pings: npubench_pings:SUITE is no Suite of that name",
    ),
    "it has another name": (
        FILES,
        {"pytest_npubench.suites": {"pongs": "npubench_pings:SUITE"}},
        "suite 'pongs' of npubench-pings: npubench_pings:SUITE is no Suite of that name",
    ),
    "its kind cannot be imported": (
        {**FILES, "npubench_pings/kinds/ping.py": "import nowhere_at_all\n"},
        POINTS,
        "npubench_pings.kinds.ping cannot be imported: ModuleNotFoundError: No module named 'nowhere_at_all'",
    ),
    "it has no kinds": (
        {name: text for name, text in FILES.items() if "kinds" not in name},
        POINTS,
        "suite 'pings' has no kinds: want a package npubench_pings.kinds",
    ),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_suite_that_cannot_be_had_says_why_to_who_asks_for_it(outside: Path, on_path: OnPath, what: str) -> None:
    files, points, words = BROKEN[what]
    on_path(distribution(outside, "npubench-pings", files, points))
    with pytest.raises(BrokenEntryError) as raised:
        suites.case_kind("ping")
    assert words in str(raised.value)
    assert suites.case_kind("profile").suite == "buckets"


def test_the_rest_of_a_run_goes_on_without_it(project: Project, outside: Path) -> None:
    """Its section of the hardware file is nobody's then, and its test says why."""
    files, points, words = BROKEN["the import fails"]
    env = with_path(distribution(outside, "npubench-pings", files, points))
    selected = ("-k", "bucket16 and fake or broken", "-m", "openvino")
    done = project.run("test_profile.py", "test_pings.py", *selected, env=env)
    done.assert_outcomes(passed=1, errors=1)
    assert words in done.stdout.str()
    assert [record["verdict"]["kind"] for record in project.cases().values()] == ["no-baseline"]


def test_a_suite_under_a_name_of_ours_is_left_out_and_told(project: Project, outside: Path) -> None:
    distribution(outside, "npubench-pings", FILES, {"pytest_npubench.suites": {"buckets": "npubench_pings:SUITE"}})
    project.write("hw/fake.toml", (project.root / "hw" / "fake.toml").read_text().replace(SECTION, ""))
    done = project.run("test_profile.py", "-k", "bucket16 and fake", env=with_path(outside))
    done.assert_outcomes(passed=1)
    assert "error: a second suite is called 'buckets': that of npubench-pings, which is left out" in done.stdout.str()


def test_a_kind_of_the_name_of_ours_is_told_apart_by_the_suites_marker(project: Project, outside: Path) -> None:
    files = {name.replace("kinds/ping", "kinds/profile"): text for name, text in FILES.items()}
    files["npubench_pings/kinds/profile.py"] = KIND.replace('name = "ping"', 'name = "profile"')
    marked = TEST.replace("import pytest\n", "import pytest\n\npytestmark = pytest.mark.pings\n").replace(
        '"ping"', '"profile"'
    )
    project.write("test_pings.py", marked)
    env = with_path(distribution(outside, "npubench-pings", files, POINTS))
    done = project.run("test_profile.py", "test_pings.py", "-k", "fake and (bucket16 or size1)", env=env)
    done.assert_outcomes(passed=2)
    assert set(project.cases()) == {"buckets/profile/fake-mini-llama-b2-bucket16", "pings/profile/fake-none-b1-size1"}
