"""The plugin's settings are tested on pytest configurations made in process.

pytest loads this file for `pytest --help` in the checkout too, with or without the packages that the tests need. Which
of them are missing is said when tests are about to run.
"""

from __future__ import annotations

import gc
import importlib.util
import os
import signal
import sys
import tempfile
from collections.abc import Generator
from importlib import metadata
from pathlib import Path
from typing import Any

import forked_python
import pytest
from packaging.requirements import Requirement

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

pytest_plugins = ["pytester", "slow_tests"]
PUBLISHED_RUN = Path("shared/traces/measured/vllm0.19_RTXPRO6000_Llama-3.1-8B")

has_hypothesis = importlib.util.find_spec("hypothesis") is not None

# A run that a test starts is no worker of this one.
for name in ("PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT", "PYTEST_XDIST_TESTRUNUID"):
    os.environ.pop(name, None)

# A shell's background job ignores interrupts, and so would every process that a test starts and interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Device locks are the host's: those of this session's processes meet nobody else's.
os.environ["NPUBENCH_LOCK_SCOPE"] = f"tests-{os.getpid()}"

# Workers share the processors, and so do the processes of one; and one setting needs one stem of forked_python.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# What the tests have XLA compile runs for milliseconds: to make it faster takes most of its compile time.
if forked_python.FRESH not in os.environ:
    plain = ("backend_optimization_level=0", "llvm_disable_expensive_passes=true", "cpu_use_fusion_emitters=false")
    os.environ.setdefault("XLA_FLAGS", " ".join(f"--xla_{flag}" for flag in plain))
    if forked_python.COMPILED not in os.environ:
        compiled = tempfile.TemporaryDirectory(prefix="compiled-")
        os.environ[forked_python.COMPILED] = compiled.name

forked_python.install()

if has_hypothesis:
    from hypothesis import settings

    # A deadline is an absolute time, which says more about the machine's load than about the code.
    settings.register_profile("soak", deadline=None)
    settings.register_profile("quick", deadline=None, max_examples=10)
    settings.load_profile("quick")  # until --hypothesis-profile says otherwise


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    are_files = all(argument.partition("::")[0].endswith(".py") for argument in session.config.args)
    if not (has_hypothesis or are_files):  # every folder of tests needs it; a test that needs another package names it
        raise pytest.UsageError(
            f"the project's own tests need packages that are not installed: {', '.join(missing_packages())}; "
            "`make test` installs them and runs the tests (the suites are `pytest -m cpu suites/` or `npubench run`)"
        )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than there are processors: a test that waits leaves its own to another."""
    return len(os.sched_getaffinity(0)) + 1 if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1) + 1


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Without collections of garbage, which take a fifth of the processor's time: what is imported stays."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--hypothesis-profile", None) != "soak":
        for item in items:
            _take_fewer_examples(getattr(item, "obj", None))


def pytest_collection_finish() -> None:
    # a run that a test starts has no use for these plugins, which take up to half a second of each of its processes
    os.environ.setdefault("PYTEST_ADDOPTS", "-p no:hypothesispytest -p no:anyio")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """A file that imports a package of the extra `test` that is not installed is skipped."""
    report = yield
    call: pytest.CallInfo[Any] | None = getattr(report, "call", None)
    if call is not None and call.excinfo is not None:
        _skip_what_needs(call.excinfo.value.__cause__, report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Likewise a test that does."""
    report = yield
    if call.excinfo is not None:
        _skip_what_needs(call.excinfo.value, report)
    return report


def _skip_what_needs(error: BaseException | None, report: pytest.CollectReport | pytest.TestReport) -> None:
    """Where everything is installed, and for our own modules, the error stays one."""
    is_missing = isinstance(error, ModuleNotFoundError) and not str(error.name).startswith("pytest_npubench")
    if is_missing and (missing := missing_packages()):
        report.outcome = "skipped"
        why = f"Skipped: needs {error.name}; not installed: {', '.join(missing)} (`make test` installs them)"
        report.longrepr = (report.nodeid, 0, why)


def _take_fewer_examples(test: Any) -> None:
    """A property's own number of examples is for the soak; in a quick run it is the profile's, where that is less."""
    own = getattr(test, "_hypothesis_internal_use_settings", None)
    if own is not None and own.max_examples > settings.default.max_examples:
        test._hypothesis_internal_use_settings = settings(own, max_examples=settings.default.max_examples)


def missing_packages() -> list[str]:
    """What the extra `test` of pyproject.toml names and is not installed here."""
    path = Path(__file__).parents[1] / "pyproject.toml"
    extras = tomllib.loads(path.read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    return sorted({name for name in _names(extras, "test") if not _is_installed(name)})


def _names(extras: dict[str, list[str]], extra: str) -> list[str]:
    """The distributions of an extra and of those it takes in, as far as they are for this interpreter."""
    found = []
    for requirement in map(Requirement, extras[extra]):
        if requirement.name == "pytest-npubench":
            found += [name for inner in requirement.extras for name in _names(extras, inner)]
        elif requirement.marker is None or requirement.marker.evaluate():
            found.append(requirement.name)
    return found


def _is_installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


@pytest.fixture(scope="module", autouse=True)
def _imported_for_good() -> None:
    """What is imported stays, and no collection of garbage looks through it again: every round of a campaign collects,
    which takes 0.2 s where jax and torch are imported."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def is_soak(pytestconfig: pytest.Config) -> bool:
    """Whether what is repeated is repeated as often as it is worth, and not as often as one waits for."""
    return bool(pytestconfig.getoption("--hypothesis-profile", None) == "soak")


@pytest.fixture(scope="session")
def published_run() -> Path:
    """A real run of vLLM (casys-kaist/LLMServingSim, MIT), which is not part of the project."""
    for parent in Path(__file__).resolve().parents:
        if (parent / PUBLISHED_RUN).is_dir():
            return parent / PUBLISHED_RUN
    pytest.skip(f"no {PUBLISHED_RUN} beside the repository")
