"""A suite's section of a hardware file is read when that suite asks for it: a mistake there is told to it alone."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from plugin.project import make_project

from pytest_npubench.core.hardware_reader import default_directory
from pytest_npubench.errors import HardwareFileError
from pytest_npubench.extensions.pairs.suites.offload.spec import OffloadSpec
from pytest_npubench.extensions.pairs.suites.partition.spec import PartitionSpec
from pytest_npubench.suites.hardware_files import load_all
from pytest_npubench.suites.scheduling.spec import ServingSpec
from pytest_npubench.suites.server.spec import ServerSpec

CPU = (default_directory() / "cpu.toml").read_text(encoding="utf-8")
SECTIONS = (PartitionSpec, OffloadSpec, ServingSpec, ServerSpec)
MISTAKE = ("kv_capacity_tokens = 16384", "kv_capacity_tokens = 0")
MESSAGE = "serving.kv_capacity_tokens: want a whole number"
SCHEDULED = """
import pytest
@pytest.mark.npubench_cases("policy")
def test_policy(npubench_case):
    npubench_case.run()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Callable[..., Path]:
    """folder((old, new), ...): a folder with the CPU's hardware file, edited."""

    def write(*edits: tuple[str, str]) -> Path:
        text = CPU
        for old, new in edits:
            assert old in text
            text = text.replace(old, new, 1)
        (tmp_path / "edited.toml").write_text(text, encoding="utf-8")
        return tmp_path

    return write


def test_each_section_of_each_shipped_file_is_the_same_read_early_and_late() -> None:
    early, late = (load_all([default_directory()], deferred=deferred) for deferred in (False, True))
    assert early.keys() == late.keys()
    for name, spec in early.items():
        assert [late[name].section(of) for of in SECTIONS] == [spec.section(of) for of in SECTIONS], name


def test_a_mistake_is_told_to_the_suite_that_asks_for_the_section(folder: Callable[..., Path]) -> None:
    spec = load_all([folder(MISTAKE)], deferred=True)["edited"]
    assert spec.section(PartitionSpec) is not None
    assert spec.section(OffloadSpec) is not None
    for _ in range(2):
        with pytest.raises(HardwareFileError, match=re.escape(MESSAGE)):
            spec.section(ServingSpec)


def test_read_at_once_a_mistake_is_told_at_once(folder: Callable[..., Path]) -> None:
    with pytest.raises(HardwareFileError, match=re.escape(MESSAGE)):
        load_all([folder(MISTAKE)])


@pytest.mark.parametrize("deferred", [False, True])
def test_a_section_of_nobody_is_an_error_at_once(folder: Callable[..., Path], deferred: bool) -> None:
    with pytest.raises(HardwareFileError, match=re.escape("servin: unknown key, did you mean 'serving'?")):
        load_all([folder(("[probe]", "[servin]\nmodels = []\n[probe]"))], deferred=deferred)


def test_a_run_of_another_suite_goes_on(tmp_path: Path) -> None:
    project = make_project(tmp_path)
    project.hardware("mistaken")
    path = project.root / "hw" / "mistaken.toml"
    path.write_text(path.read_text(encoding="utf-8") + "[serving]\nmodels = 3\n", encoding="utf-8")
    project.write("test_scheduled.py", SCHEDULED)
    buckets = project.run("--collect-only", "-q", "-k", "mistaken", "test_profile.py")
    assert (buckets.ret, buckets.errlines) == (0, [])
    assert any("test_profile[mistaken-" in line for line in buckets.outlines)
    scheduled = project.run("--collect-only", "-q", "test_scheduled.py")
    assert scheduled.ret == pytest.ExitCode.USAGE_ERROR
    assert "mistaken.toml: serving.models: want" in "\n".join(scheduled.errlines)
