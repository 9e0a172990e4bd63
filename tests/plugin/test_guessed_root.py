"""Root and ini of a run stay where they are, whatever the values of options and paths; shipped suites' node ids."""

from __future__ import annotations

import importlib
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from cli.option_fuzz import VALUES

from pytest_npubench.plugin import items
from pytest_npubench.plugin.guessed_root import joined
from pytest_npubench.plugin.options import OPTIONS
from pytest_npubench.plugin.settings import Settings


@pytest.fixture
def checkout(tmp_path):
    """A checkout with an ini file of its own, and a folder outside of it that has one too."""
    for folder in ("checkout/part", "nights/hw"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "checkout/pytest.ini").write_text("[pytest]\nnpubench_margin = 0.02\n")
    (tmp_path / "nights/pytest.ini").write_text("[pytest]\n")
    (tmp_path / "nights/journal.jsonl").touch()
    (tmp_path / "checkout/part/test_it.py").write_text(
        "def test_it(pytestconfig):\n    assert pytestconfig.getini('npubench_margin') == '0.02'\n"
    )
    return tmp_path / "checkout"


@pytest.mark.parametrize(
    ("value", "tests", "is_in_environment"),
    [
        ("--npubench-journal ../nights/journal.jsonl", (), False),
        ("--npubench-hardware ../nights/hw", ("part",), False),
        ("--npubench-journal ../nights/journal.jsonl", ("part",), True),
    ],
)
def test_a_value_after_a_blank_moves_nothing(checkout, monkeypatch, value, tests, is_in_environment):
    given = shlex.split(value)
    monkeypatch.setenv("PYTEST_ADDOPTS", f"-p no:cacheprovider {value if is_in_environment else ''}")
    command = [sys.executable, "-m", "pytest", *(() if is_in_environment else given), *tests]
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("test session starts") == 1
    assert {f"rootdir: {checkout}", "configfile: pytest.ini"} < set(done.stdout.splitlines())
    assert "part/test_it.py" in done.stdout


def test_a_run_whose_root_another_plugins_option_moved_is_refused(checkout):
    (checkout / "part/test_own.py").write_text(
        "import pytest\n\n@pytest.mark.cpu\ndef test_sum(npubench):\n    npubench(sum, [1, 2])\n"
    )
    (checkout.parent / "out").mkdir()
    command = [sys.executable, "-m", "pytest", "-m", "cpu", "--benchmark-storage", "../out"]
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert f"its root is {checkout.parent} (ini file None) in place of {checkout} (ini file " in done.stderr


def test_what_is_no_option_of_ours_stays_as_it_is():
    words = [
        "--npubench-journal",
        "a b",
        "-k",
        "x",
        "--npubench-margin=1",
        "--npubench-resume",
        "tests",
        "--journal",
        "c",
    ]
    assert list(joined(words)) == ["--npubench-journal=a b", *words[2:]]
    assert list(joined(["--", "--npubench-journal", "a"])) == ["--", "--npubench-journal", "a"]
    assert list(joined(["--npubench-journal"])) == ["--npubench-journal"]


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_a_strange_value_is_taken_or_named(option, tmp_path):
    """From the command line and from an ini file alike."""
    num_named = 0
    for value in (*VALUES, "a\0b", "n" * 300 + ".html"):
        for place in ("flag", "ini"):
            config = SimpleNamespace(
                getoption=lambda key, place=place, value=value: (
                    value if (key, place) == (option.key, "flag") else None if key.startswith("npubench_") else False
                ),
                getini=lambda key, place=place, value=value: value if (key, place) == (option.key, "ini") else None,
                invocation_params=SimpleNamespace(dir=tmp_path),
                rootpath=tmp_path,
                inipath=Path("x"),
                option=SimpleNamespace(rootdir=None),
            )
            said = ""
            try:
                Settings.from_pytest_config(config)
            except pytest.UsageError as error:
                said = str(error)
                num_named += 1
            assert said.isprintable(), value
            assert not said or option.flag in said or option.key in said, value
    assert num_named or option.read is str or option.name in ("require", "compare_across")


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
