"""The settings of a run, each read once from command line, ini or [tool.npubench], in that order."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_npubench.core.run_folders import DEFAULT_BASELINES, RunFolders, settings_table
from pytest_npubench.core.run_option import Option
from pytest_npubench.errors import HistoryError, did_you_mean
from pytest_npubench.plain_text import plain
from pytest_npubench.plugin.items import root_of_run
from pytest_npubench.plugin.options import GONE, OF_SUITES, OPTIONS
from pytest_npubench.processes import CHILD

if TYPE_CHECKING:
    from pytest_npubench.store.history.address import Address

REMEASURING = "NPUBENCH_REMEASURING"  # set in the environment of a process that measures suspects again


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Paths are absolute; limits are fractions; times are seconds; None where nothing was said. of_suites: by name, the
    values of suites' own options."""

    require: tuple[str, ...]
    profile: str
    engine: str
    hardware: Path | None
    devices: tuple[int, ...] | None
    baselines: Path
    journal: Path
    report: Path | None
    markdown: Path | None
    step_summary: Path | None
    csv: Path | None
    openmetrics: Path | None
    annotates: bool
    disturbed: str
    of_suites: Mapping[str, Any]
    compile_cache: Path | None
    margin: float
    remeasure: int
    compare_across: tuple[str, ...]
    require_judged: float | None
    other_load: float
    history: Address | None
    shard: tuple[int, int] | None
    durations: Path | None
    lock_timeout: float
    probe_timeout: float
    stall_timeout: float
    accept: bool
    accept_answers: bool
    resume: bool
    is_default_baselines: bool
    remeasuring: bool

    @classmethod
    def from_pytest_config(cls, config: pytest.Config) -> Settings:
        """Raises pytest.UsageError naming the option or key, its value and what is allowed."""
        root, here = root_of_run(config), config.invocation_params.dir
        table = _table(root / "pyproject.toml")
        for name in GONE:
            if config.getini(f"npubench_{name}"):
                raise pytest.UsageError(f"{config.inipath}: npubench_{name} is unknown by now: {GONE[name]}")
        values = {option.name: _value(option, config, table) for option in OPTIONS}
        of_suites = {option.name: values.pop(option.name) for option in OF_SUITES}
        remeasuring, child = REMEASURING in os.environ, CHILD in os.environ
        if remeasuring or child:  # samples are wanted, and nothing else
            values |= dict.fromkeys(("markdown", "csv", "openmetrics"))
            values |= {"require": (), "report": None, "history": None, "shard": None, "remeasure": 0}
            values["require_judged"] = None
        folders = RunFolders.of(root, here, values)
        return cls(
            **{
                **values,
                "hardware": _directory("--npubench-hardware", values["hardware"], here),
                "baselines": folders.baselines,
                "journal": folders.journal,
                "durations": here / values["durations"] if values["durations"] else None,
                "report": _report(values["report"], here),
                **{name: _file(name, values[name], here) for name in ("markdown", "csv", "openmetrics")},
                "history": _history(values["history"]),
                "of_suites": of_suites,
                "compile_cache": here / values["compile_cache"] if values["compile_cache"] else None,
            },
            accept=bool(config.getoption("npubench_accept")) and not (remeasuring or child),
            accept_answers=config.getoption("npubench_accept_answers"),
            resume=config.getoption("npubench_resume") and not (remeasuring or child),
            is_default_baselines=values["baselines"] == DEFAULT_BASELINES,
            remeasuring=remeasuring,
            step_summary=None if remeasuring or child else _step_summary(),
            annotates=os.environ.get("GITHUB_ACTIONS") == "true" and not (remeasuring or child),
        )


def _value(option: Option, config: pytest.Config, table: Mapping[str, Any]) -> Any:
    ini = config.getini(option.key)
    for source, text in (
        (option.flag, config.getoption(option.key)),
        (option.key, ini if isinstance(ini, str) and ini else None),
        (f"[tool.npubench] {option.name}", table.get(option.name)),
    ):
        if text is not None:
            try:
                return option.read(",".join(map(str, text)) if isinstance(text, list) else str(text))
            except ValueError as error:
                raise pytest.UsageError(f"{source} = {text!r}: {error}") from None
    return option.default


def _table(path: Path) -> Mapping[str, Any]:
    try:
        table = settings_table(path)
    except ValueError as error:
        raise pytest.UsageError(str(error)) from None
    names = [option.name for option in OPTIONS]
    for name in table:
        if name in GONE:
            raise pytest.UsageError(f"{path}: [tool.npubench] {name} is unknown by now: {GONE[name]}")
        if name not in names:
            what = f"{path}: [tool.npubench] {name} is not a setting{did_you_mean(name, names)}"
            raise pytest.UsageError(plain(f"{what} (known: {', '.join(names)})"))
    return table


def _directory(flag: str, text: str | None, here: Path) -> Path | None:
    if text is None:
        return None
    if not _is_folder(here / text):
        raise pytest.UsageError(f"{flag} = {text!r}: no such directory")
    return here / text


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # a name that no file system takes
        return False


def _history(text: str | None) -> Address | None:
    """The history's address, checked before anything is measured. Its error masks the password."""
    if text is None:
        return None
    from pytest_npubench.store.history.address import parse_address

    try:
        address = parse_address(text)
    except HistoryError as error:
        raise pytest.UsageError(f"--npubench-history: {error}") from None
    if importlib.util.find_spec("sqlalchemy") is None:
        raise pytest.UsageError("--npubench-history: sqlalchemy is not installed: pip install pytest-npubench[history]")
    return address


def _file(name: str, text: str | None, here: Path) -> Path | None:
    if text is None:
        return None
    if not text or _is_folder(here / text):
        raise pytest.UsageError(f"--npubench-{name} = {text!r}: want the path of a file")
    return here / text


def _step_summary() -> Path | None:
    """The file that a step of GitHub Actions writes its summary to; GitHub makes it anew for each step."""
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    return Path(path) if path else None


def _report(text: str | None, here: Path) -> Path | None:
    if text is None:
        return None
    path = here / text
    if path.suffix != ".html" or _is_folder(path):
        raise pytest.UsageError(f"--npubench-report = {text!r}: want the path of an .html file")
    return path
