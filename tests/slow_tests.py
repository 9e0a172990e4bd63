"""Slow tests begin first, and an extension's are left out while nothing that the extension rests on has changed.

A test is slow that takes SLOW_S of the processor, its processes' time included. durations.json has what each took, and
`NPUBENCH_TESTS_MEASURE=1 make test` writes it anew. Files go to workers of pytest-xdist as wholes (`make test`).

git says what has changed: files of the working tree, and commits since HEAD parted from origin's main. Where there is
no such branch, it is the last release's tag. The variable NPUBENCH_TESTS_SINCE names another commit. Where git cannot
say, in a shallow clone for example, all tests run. So they do with `--hypothesis-profile=soak`, and an extension's do
where the command line names its folder of tests.
"""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
from collections import defaultdict
from collections.abc import Generator, Set
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

SLOW_S = 1.0
ROOT = Path(__file__).resolve().parents[1]
DURATIONS = Path(__file__).parent / "durations.json"
MEASURE = "NPUBENCH_TESTS_MEASURE"
SINCE = "NPUBENCH_TESTS_SINCE"
SLOW_TESTS_S: dict[str, float] = json.loads(DURATIONS.read_text(encoding="utf-8")) if DURATIONS.exists() else {}
TOGETHER = (
    # the engines of engines/conftest.py, each of which takes 12 s to compile
    (
        "tests/engines/test_binaries.py",
        "tests/engines/test_path.py",
        "tests/engines/test_tokens.py",
        "tests/engines/openvino_dense/",
    ),
    # four accepted nights each, and a run that was rehearsed
    tuple(
        f"tests/plugin/test_{name}.py" for name in ("baselines", "over_nights", "regression", "require_judged", "reset")
    ),
    ("tests/nightly/",),
    ("tests/crash/",),
    # what they import from transformers takes 4 s
    (
        *(f"tests/engines/test_{name}.py" for name in ("against_transformers", "answer_reference", "hf_config")),
        "tests/engines/test_layered_config.py",
        *(f"tests/engines/torch_moe/test_{name}.py" for name in ("against_transformers", "checkpoint")),
    ),
)
"""Files that share what is dear: one worker's."""
WITH_VLLM = (
    "tests/engines/http/test_bench_serve.py",  # waits for most of its time
    "tests/extensions/vllm/test_vllm_engine.py",
    "tests/extensions/vllm/test_suites_on_vllm.py",
    "tests/extensions/vllm/layered/test_vllm.py",
    "tests/extensions/vllm/test_lens_on_vllm.py",
)
"""Files whose processes end after their tests, so that nothing is measured of them: they begin first."""
EXTENSIONS = "pytest_npubench/extensions"
IMPORT = re.compile(r"\b(?:from|import)\s+(?:tests\.)?([a-z_]\w*(?:\.\w+)*)")
UNCHANGED = pytest.StashKey[list[str]]()
COUNTS = pytest.StashKey[dict[str, Any]]()
"""How many tests are left out, and what each test took of the processor."""


def changed_paths(root: Path, since: str | None = None) -> set[str] | None:
    """Paths from the root that differ from what HEAD parted from; None where git cannot tell."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(root), *arguments]
        return subprocess.run(command, capture_output=True, check=True, encoding="utf-8", errors="replace").stdout

    try:
        is_shallow = git("rev-parse", "--is-shallow-repository").strip() != "false"
        if is_shallow or Path(git("rev-parse", "--show-toplevel").strip()).resolve() != root.resolve():
            return None
        base = git("merge-base", "HEAD", since or _reference(git)).strip()
        tracked = git("diff", "--name-only", "--no-renames", "-z", base)
        return set(filter(None, (tracked + git("ls-files", "--others", "--exclude-standard", "-z")).split("\0")))
    except (OSError, subprocess.CalledProcessError):
        return None


def _reference(git: Any) -> str:
    """Origin's main or, without it, the last release's tag."""
    if git("branch", "--remotes", "--list", "origin/main").strip():
        return "origin/main"
    return str(git("describe", "--tags", "--abbrev=0", "--match", "v*")).strip()


def unchanged_extensions(root: Path, changed: Set[str]) -> list[str]:
    """Names of the extensions that rest on none of the changed paths."""
    extensions = sorted(folder.parent.name for folder in (root / EXTENSIONS).glob("*/__init__.py"))
    return [name for name in extensions if not any(_rests_on(root, name, PurePosixPath(path)) for path in changed)]


def _rests_on(root: Path, extension: str, path: PurePosixPath) -> bool:
    """An extension rests on its folders, on modules that their files import, and on what is no module: hardware files,
    pyproject.toml. Pages are for people."""
    match path.parts:
        case ("docs" | ".ci" | ".github", *_):
            return False
        case ("pytest_npubench" | "tests", "extensions", folder, _, *_):
            return folder == extension
        case ("pytest_npubench" | "benchmarks", *_) | ("tests", _, _, *_) if path.suffix == ".py":
            return _is_imported(_module(path), _imported(root, extension))
        case ("tests", file) if file.startswith("test_"):
            return False
    return path.suffix != ".md"


def _module(path: PurePosixPath) -> str:
    """The name by which files of the project import it: `plugin.project` for `tests/plugin/project.py`."""
    parts = path.with_suffix("").parts if path.parts[0] == "pytest_npubench" else path.with_suffix("").parts[1:]
    return ".".join(parts)


def _is_imported(module: str, imported: Set[str]) -> bool:
    """`from a import b` may import the module a.b, and every module of a package imports the package."""
    package, _, name = module.rpartition(".")
    if name == "__init__":
        return any(f"{other}.".startswith(f"{package}.") for other in imported)
    return module in imported or package in imported


def _imported(root: Path, extension: str) -> set[str]:
    folders = (root / EXTENSIONS / extension, root / "tests/extensions" / extension)
    files = (file for folder in folders for file in folder.rglob("*.py"))
    return {name for file in files for name in IMPORT.findall(file.read_text(encoding="utf-8"))}


def pytest_configure(config: pytest.Config) -> None:
    is_worker = hasattr(config, "workerinput")
    config.stash[UNCHANGED] = config.workerinput["unchanged"] if is_worker else _unchanged(config)
    config.stash[COUNTS] = config.workeroutput if is_worker else {}
    config.stash[COUNTS].update(num_left_out=0, tests_s={})


def _unchanged(config: pytest.Config) -> list[str]:
    """Extensions of which the run takes the quick tests alone."""
    if config.getoption("--hypothesis-profile", None) == "soak" or MEASURE in os.environ:
        return []
    arguments = [(config.invocation_params.dir / argument.partition("::")[0]).resolve() for argument in config.args]

    def is_among_others(name: str) -> bool:
        folder = ROOT / "tests/extensions" / name
        return any(argument in folder.parents for argument in arguments) and not any(
            folder in (argument, *argument.parents) for argument in arguments
        )

    changed = changed_paths(ROOT, os.environ.get(SINCE))
    return [] if changed is None else list(filter(is_among_others, unchanged_extensions(ROOT, changed)))


def pytest_report_header(config: pytest.Config) -> str | None:
    unchanged = ", ".join(config.stash[UNCHANGED])
    return f"left out: slow tests of extensions that did not change: {unchanged}" if unchanged else None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import LoadFileScheduling

    class FilesTogether(LoadFileScheduling):  # type: ignore[misc] # xdist has no types here
        def _split_scope(self, nodeid: str) -> str:
            return _scope(nodeid)

    return FilesTogether(config, log) if config.getvalue("dist") == "loadfile" else None


def _scope(nodeid: str) -> str:
    """What goes to one worker as a whole: the test's file, or the first of the files that share something."""
    return next((files[0] for files in TOGETHER if nodeid.startswith(files)), nodeid.partition("::")[0])


@pytest.hookimpl(trylast=True)  # after -m and -k
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    folders = tuple(f"tests/extensions/{name}/" for name in config.stash[UNCHANGED])
    left_out = [item for item in items if item.nodeid.startswith(folders) and _function(item.nodeid) in SLOW_TESTS_S]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]
    scopes_s: dict[str, float] = defaultdict(float)
    for test, test_s in SLOW_TESTS_S.items():
        scopes_s[_scope(test)] += test_s
    scopes_s.update(dict.fromkeys(WITH_VLLM, math.inf))
    items.sort(key=lambda item: -scopes_s[_scope(item.nodeid)])
    config.stash[COUNTS]["num_left_out"] = len(left_out)


def _function(nodeid: str) -> str:
    """The test without its parameters."""
    return nodeid.partition("[")[0]


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["unchanged"] = node.config.stash[UNCHANGED]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Every worker collects all tests, leaves the same ones out and runs some of the others."""
    counts, of_worker = node.config.stash[COUNTS], getattr(node, "workeroutput", {})
    counts["num_left_out"] = of_worker.get("num_left_out", 0)
    for test, test_s in of_worker.get("tests_s", {}).items():
        counts["tests_s"][test] = counts["tests_s"].get(test, 0.0) + test_s


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    began_s, tests_s = _processor_s(), item.config.stash[COUNTS]["tests_s"]
    result = yield
    test = _function(item.nodeid)
    tests_s[test] = tests_s.get(test, 0.0) + _processor_s() - began_s
    return result


def _processor_s() -> float:
    """What this process has used, and those of its children that have ended."""
    return sum(os.times()[:4])


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    counts = config.stash[COUNTS]
    if num := counts["num_left_out"]:
        terminalreporter.write_line(f"left out: {num} slow tests of extensions that did not change: make test-all")
    if MEASURE in os.environ:
        tests_s = sorted({**SLOW_TESTS_S, **counts["tests_s"]}.items())
        slow = {test: round(test_s, 1) for test, test_s in tests_s if test_s >= SLOW_S}
        DURATIONS.write_text(f"{json.dumps(slow, indent=0)}\n", encoding="utf-8")
