"""Node ids of shipped suites, and the root of a run that was given a path into them."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import SimpleNamespace

import pytest

from pytest_npubench.plugin import items
from pytest_npubench.plugin.settings import Settings


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed package of suites, in a folder beside that of the run."""
    package = tmp_path / "venv" / "site-packages" / "npubench_suites"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "test_one.py").touch()
    monkeypatch.syspath_prepend(package.parent)
    importlib.invalidate_caches()
    return package


def test_the_node_id_of_a_shipped_case_begins_with_its_module() -> None:
    module = SimpleNamespace(__name__="npubench_suites.buckets.test_profile")
    for nodeid in ("buckets/test_profile.py::test_profile[a::b-/.py]", "x/site-packages/y.py::test_profile[a::b-/.py]"):
        item = SimpleNamespace(module=module, nodeid=nodeid)
        assert items.node_id(item) == "npubench_suites.buckets.test_profile::test_profile[a::b-/.py]"


@pytest.mark.parametrize("module", ["suites.buckets.test_profile", "test_profile", "npubench_suites2.x", None])
def test_every_other_node_id_stays(module: str | None) -> None:
    item = SimpleNamespace(nodeid="suites/buckets/test_profile.py::test_profile[a]")
    if module:
        item.module = SimpleNamespace(__name__=module)
    assert items.node_id(item) == "suites/buckets/test_profile.py::test_profile[a]"


@pytest.mark.parametrize("target", ["", "/test_one.py", "/test_one.py::test_case[cpu]"])
def test_results_of_a_run_on_a_path_into_the_package_lie_in_the_current_folder(
    pytester: pytest.Pytester, package: Path, target: str
) -> None:
    found = Settings.from_pytest_config(pytester.parseconfig(f"{package}{target}"))
    assert found.baselines == pytester.path / "baselines"
    assert found.journal == pytester.path / ".npubench" / "journal.jsonl"


def test_a_root_that_the_user_gave_or_configured_stays(pytester: pytest.Pytester, package: Path) -> None:
    root = pytester.mkdir("root")
    assert items.root_of_run(pytester.parseconfig(f"--rootdir={root}", str(package))) == root
    (package.parent / "pytest.ini").write_text("[pytest]\n")
    assert items.root_of_run(pytester.parseconfig(str(package))) == package.parent


def test_a_path_elsewhere_has_the_root_that_pytest_finds(pytester: pytest.Pytester, package: Path) -> None:
    config = pytester.parseconfig(str(package.parent))
    assert items.root_of_run(config) == config.rootpath != pytester.path
