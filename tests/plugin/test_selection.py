"""Which cases there are, which of them run, and what the others say: equal ids everywhere, probes only where needed."""

import re
from collections import Counter

import pytest

from pytest_npubench.core.families import declared
from pytest_npubench.core.hardware import FAMILIES
from pytest_npubench.core.hardware_reader import default_directory
from pytest_npubench.suites.hardware_files import load_all

from .project import Project, make_project, skipped

NO_JAX = "import sys\n\nsys.modules['jax'] = None  # as find_spec and import find it where it is not installed\n"
FAKE_ABSENCE = """
from pathlib import Path

from pytest_npubench.backends.protocol import Probe
from pytest_npubench.core.hardware import FAMILIES


class FakeAbsentBackend:
    def __init__(self, family):
        self.family = family

    def probe(self, timeout_s):
        with Path("probes.txt").open("a") as file:
            file.write(self.family + "\\n")
        return Probe(reason=f"fake absence of {self.family}")


def pytest_npubench_backends():
    return [FakeAbsentBackend(family) for family in FAMILIES]
"""


@pytest.fixture
def project(project):
    return project.with_shipped()


@pytest.fixture(scope="module")
def absent(tmp_path_factory):
    """A project on a machine where every family is asked for its devices and has none."""
    project = make_project(tmp_path_factory.mktemp("absent")).with_shipped()
    project.write("conftest.py", FAKE_ABSENCE + (project.root / "conftest.py").read_text())
    return project


def probes(project: Project) -> Counter[str]:
    """Families probed since the last call."""
    path = project.root / "probes.txt"
    found = Counter(path.read_text().split()) if path.exists() else Counter()
    path.unlink(missing_ok=True)
    return found


def collected(result: pytest.RunResult) -> list[str]:
    return [line for line in result.outlines if line.startswith("test_") and "::" in line]


def test_ids_are_the_same_on_every_machine_and_collecting_probes_nothing(absent, project):
    here = collected(absent.run("--collect-only", "-q"))
    assert probes(absent) == Counter()
    assert len(here) == len(set(here)) > 300
    project.write("conftest.py", NO_JAX + (project.root / "conftest.py").read_text())
    assert collected(project.run("--collect-only", "-q")) == here


def test_only_selected_families_are_probed_once_each(absent):
    result = absent.run("-m", "tpu or neuron", "-rs")
    assert result.ret == 0
    outcomes = result.parseoutcomes()
    assert outcomes.keys() == {"skipped", "deselected"}
    assert probes(absent) == {"tpu": 1, "neuron": 1}
    result.stdout.fnmatch_lines_random(["SKIPPED * fake absence of tpu", "SKIPPED * fake absence of neuron"])
    assert not absent.journal_path.exists()


def test_cases_fail_where_nobody_could_look_for_their_devices(project):
    """FAKE probes: of TPUs one that failed."""
    failing = FAKE_ABSENCE.replace('{self.family}")\n\n\ndef', '{self.family}", failed=self.family == "tpu")\n\n\ndef')
    project.write("conftest.py", failing + (project.root / "conftest.py").read_text())
    project.write("test_mine.py", "import pytest\n\n\n@pytest.mark.npu\ndef test_mine(npubench):\n    pass\n")
    result = project.run("-m", "(tpu or neuron) and not scheduling", "-k", "mine or canary")
    outcomes = result.parseoutcomes()
    assert result.ret == 1
    assert outcomes["errors"] > 1
    assert outcomes["skipped"] > 1
    result.stdout.fnmatch_lines(["ERROR *test_mine*tpu*fake absence of tpu"])
    refused = project.run("-m", "tpu", "--npubench-require", "tpu")
    assert refused.ret == pytest.ExitCode.USAGE_ERROR


def test_class_and_suite_markers_select(absent):
    result = absent.run("--collect-only", "-q", "-m", "npu and buckets")
    specs = load_all([default_directory()]).values()
    npus = {spec.name for spec in specs if "npu" in spec.classes and declared(spec.family).runs_programs}
    rows = collected(result)
    assert {spec.name for spec in specs if any(f"[{spec.name}-" in row for row in rows)} == npus
    assert len(npus) > 2
    assert all(any(f"[{name}-" in row for name in npus) for row in rows)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ("-m tpu --npubench-require tpu", "tpu: fake absence of tpu"),
        ("-m tpu --npubench-require tpu -n2 -p no:benchmark", "tpu: fake absence of tpu"),
        ("-m cuda -o npubench_require=cuda", "cuda: fake absence of cuda"),
        ("--npubench-require amd-mi300x", "amd-mi300x: no backend opens ROCm devices"),
    ],
    ids=["marker", "under xdist", "ini file", "device that nothing runs on"],
)
def test_what_is_required_and_cannot_run_is_a_usage_error(absent, arguments, reason):
    result = absent.run(*arguments.split())
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert result.errlines[0].startswith(f"ERROR: --npubench-require {reason}")
    assert not re.search("Traceback|INTERNALERROR", result.stdout.str())


def test_an_unknown_required_name_lists_what_is_known(absent):
    result = absent.run("-k", "mini", "--npubench-require", "ptu")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    (line, *_) = result.errlines
    head, _, known = line.partition("; known: ")
    assert head == "ERROR: --npubench-require ptu: no such marker or hardware"
    assert {*FAMILIES, "npu", "gpu", "mini", "cpu"} <= set(known.split(", "))


def test_a_requirement_counts_also_where_no_case_of_ours_was_collected(absent):
    absent.write("other/test_plain.py", "def test_plain():\n    pass\n")
    assert absent.run("other", "--npubench-require", "cpu").ret == pytest.ExitCode.USAGE_ERROR
    assert absent.run("other").ret == 0


def test_without_a_tpu_the_reason_names_what_jax_found(project):
    result = project.run("-m", "tpu", "-rs")
    assert result.ret == 0
    assert skipped(result).keys() == {"no TPU: jax found platforms cpu, as JAX_PLATFORMS=cpu has it"}
    assert result.parseoutcomes().keys() == {"skipped", "deselected"}


FRESH = {"NPUBENCH_TESTS_FRESH": "1"}
PLAIN = """
import sys

import pytest


@pytest.mark.cpu
@pytest.mark.npubench(rounds=5)
def test_plain(npubench):
    npubench(sum, range(10_000))
"""
LATE = """

@pytest.mark.cpu
@pytest.mark.npubench(rounds=5)
def test_late(npubench):
    def product():
        import jax.numpy as jnp

        return jnp.ones(8) @ jnp.ones(8)

    npubench(product)
    assert sys.modules["jax"].config.jax_platforms == "cpu"
"""


def test_without_jax_the_reason_says_what_to_install(project):
    project.write("conftest.py", NO_JAX + (project.root / "conftest.py").read_text())
    reasons = [f"jax is not installed: pip install pytest-npubench[{family}]" for family in ("tpu", "cpu")]
    result = project.run("-m", "tpu or cpu", "-rs")
    assert result.ret == 0
    assert skipped(result).keys() == set(reasons)
    project.write("test_plain.py", PLAIN)
    result = project.run("-m", "tpu or cpu", "--npubench-other-load=1", env=FRESH)
    assert result.ret == 0
    assert result.parseoutcomes()["passed"] == 1  # what imports no framework needs none
    assert [line.partition("skipped: ")[2] for line in result.outlines if "case" in line and "pip" in line] == reasons
    (record,) = project.cases().values()
    stack = project.journal().fingerprint(record["fingerprint"]).device
    assert re.fullmatch(r"CPython 3\.\d+, numpy [\d.]+", stack.runtime)
    assert stack.compiler is None


def test_a_framework_is_part_of_the_stack_once_the_process_has_imported_it(project):
    project.write("test_plain.py", PLAIN + LATE)
    assert project.run("test_plain.py", "--npubench-other-load=1", env=FRESH).ret == 0
    runtimes = [project.journal().fingerprint(one["fingerprint"]).device.runtime for one in project.records("case")]
    assert ["jax" in runtime for runtime in runtimes] == [False, True]


@pytest.mark.parametrize(
    ("code", "arguments", "why"),
    [
        ("import sys\nsys.modules['jinja2'] = None\n", ("test_plain.py",), "jinja2 is not installed: pip install"),
        ("", ("test_plain.py", "-k", "nothing"), "no case ran"),
        ("", ("-m", "tpu"), "no case ran"),
    ],
)
def test_a_report_that_was_asked_for_and_is_not_there_is_an_error(project, code, arguments, why):
    project.write("conftest.py", code + (project.root / "conftest.py").read_text())
    project.write("test_plain.py", PLAIN)
    result = project.run(*arguments, "--npubench-other-load=1", "--npubench-report=r.html", env=FRESH)
    assert result.ret in (1, 5)
    result.stdout.fnmatch_lines([f"error: no HTML report *r.html: {why}*"])


def test_another_file_that_was_asked_for_and_is_not_there_is_an_error(project):
    project.write("run.csv", "of an earlier run\n")
    result = project.run("-m", "tpu", "--npubench-csv=run.csv", env=FRESH)
    assert result.ret == 1
    result.stdout.fnmatch_lines(["error: no file *run.csv: no case ran"])


def test_a_probe_that_hangs_ends_in_a_skip(project):
    result = project.run("-m", "tpu and buckets", "-rs", "--npubench-probe-timeout", "0.01")
    assert result.ret == 0
    (reason,) = skipped(result)
    assert reason.startswith("no TPU: jax did not answer within 0.01 s")


def test_a_device_that_no_hardware_file_describes_is_named(project):
    project.fake(match="^Another accelerator$")
    result = project.run("-k", "fake and profile", "-rs")
    next_step = "no hardware file describes it; `npubench hardware --new hw/NAME.toml` writes one"
    assert skipped(result).keys() == {f"no the test's device: found Fake accelerator (openvino:0: {next_step})"}
    result = project.run("-k", "fake and profile", "--npubench-require", "openvino")
    assert f"found Fake accelerator, which no selected case is for (openvino:0: {next_step})" in result.stderr.str()
    text = (project.root / "hw" / "fake.toml").read_text(encoding="utf-8")
    project.write("hw/wide.toml", text.replace("^Another accelerator$", ".*"))
    project.write("hw/close.toml", text.replace("^Another accelerator$", "Fake acc"))
    reasons = skipped(project.run("-k", "wide and profile", "-rs"))
    assert reasons.keys() == {
        "no the test's device: found Fake accelerator (openvino:0: close describes it more closely)"
    }


@pytest.mark.parametrize(
    ("marker", "text"),
    [
        (
            "npubench_cases('nothing')",
            "no case kind 'nothing'; known: answers, band_coverage, batch_search, bucket_choice, bucket_search, canary",
        ),
        ("npubench_cases()", "npubench_cases takes one kind"),
        ("npubench_cases('steps', bucket=1)", "npubench_cases takes one kind"),
    ],
)
def test_a_wrong_kind_marker_names_the_test(project, marker, text):
    project.write("test_wrong.py", f"import pytest\n\n@pytest.mark.{marker}\ndef test_it(npubench_case):\n    pass\n")
    result = project.run("test_wrong.py")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "test_wrong.py::test_it: " in result.errlines[0]
    assert text in result.errlines[0]


def test_every_marker_is_registered(absent):
    markers = absent.run("--markers").stdout.str()
    for name in (*FAMILIES, "gpu", "npu", "buckets", "scheduling", "partition", "offload"):
        assert f"@pytest.mark.{name}: " in markers
    strict = absent.run("-p", "no:xdist", "--strict-markers", "--collect-only", "-q", "-k", "mini")
    assert strict.ret == 0, strict.stdout.str()


def test_a_bad_hardware_file_is_named_once(project):
    project.write("hw/mini.toml", (project.root / "hw/mini.toml").read_text().replace("title", "tilte"))
    result = project.run("-k", "mini")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "mini.toml: tilte: unknown key, did you mean 'title'?" in result.errlines[0]
    assert "Traceback" not in result.stdout.str()


def test_help_lists_the_options(absent):
    result = absent.run("--help")
    assert result.ret == 0
    result.stdout.fnmatch_lines_random(["*--npubench-require=NAME?,NAME?*", "*npubench_profile (string):*"])


def test_a_run_that_measures_nothing_says_why(absent):
    """Each reason with its number of cases, also where pytest's own list of them is not asked for."""
    result = absent.run("-m", "tpu or neuron")
    said = [line for line in result.outlines if "cases skipped: " in line]
    numbers = [int(line.split()[0]) for line in said]
    assert len(said) == 2
    assert sum(numbers) == result.parseoutcomes()["skipped"]
    assert numbers == sorted(numbers, reverse=True)
    assert not [line for line in absent.run("-m", "tpu or neuron", "-rs").outlines if "cases skipped: " in line]
