"""Measuring cases once more in a fresh process: another pytest with the same settings, these cases and a journal of its
own, whose samples are all that is taken from it.

A fresh process has its own memory layout, its own compiled binaries and, on some devices, its own clocks: what one
process measures twice agrees better than two processes do.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_npubench.backends.protocol import Device
from pytest_npubench.comparison.observation import Key, of_record
from pytest_npubench.errors import MeasurementError, StoreError
from pytest_npubench.plugin.again_folder import again_folder
from pytest_npubench.plugin.settings import REMEASURING, Settings
from pytest_npubench.plugin.shipped import is_shipped
from pytest_npubench.store.journal import read_journal
from pytest_npubench.store.journal_reader import Record

COOLDOWN_S = 2.0
TIMEOUT_S = 7200.0
UNUSABLE = frozenset({"invalid", "failed"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Remeasured:
    """Samples by (case, metric) of one fresh process."""

    samples: Mapping[Key, tuple[float, ...]]


def measure_again(
    config: pytest.Config, settings: Settings, node_ids: Sequence[str], devices: Sequence[Device]
) -> Remeasured:
    """One fresh process. Raises MeasurementError with the reason, or its last words, where it measured nothing."""
    time.sleep(COOLDOWN_S)
    with again_folder() as folder:
        journal = folder / "journal.jsonl"
        command = _command(config, settings, node_ids, devices, journal)
        try:
            done = subprocess.run(
                command,
                cwd=config.rootpath,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise MeasurementError(f"the fresh process did not end within {TIMEOUT_S:g} s") from None
        records = _case_records(journal)
    samples = _samples(records)
    if not samples:
        raise MeasurementError(f"the fresh process measured nothing: {_why(records, done)}")
    return Remeasured(samples=samples)


def _command(
    config: pytest.Config, settings: Settings, node_ids: Sequence[str], devices: Sequence[Device], journal: Path
) -> list[str]:
    asked: dict[str, object] = {
        "--rootdir": config.rootpath,
        "--npubench-journal": journal,
        "--npubench-profile": settings.profile,
        "--npubench-engine": settings.engine,
        "--npubench-hardware": settings.hardware,
        "--npubench-devices": ",".join(str(device.ordinal) for device in devices),
        "--npubench-compile-cache": settings.compile_cache,
        "--npubench-lock-timeout": settings.lock_timeout,
        "--npubench-probe-timeout": settings.probe_timeout,
        "--npubench-other-load": settings.other_load,
    }
    options = [f"{flag}={value}" for flag, value in asked.items() if value is not None]
    if config.inipath is not None:
        options.append(f"--config-file={config.inipath}")
    if any(map(is_shipped, node_ids)):
        options.append("--pyargs")
    plugins = [text for name in config.option.plugins for text in ("-p", name)]
    overrides = [text for pair in config.option.override_ini or () for text in ("-o", pair)]
    if config.pluginmanager.hasplugin("xdist"):
        options.append("-n0")
    if config.pluginmanager.hasplugin("benchmark") and not config.getoption("benchmark_only", False):
        options.append("--benchmark-disable")
    return [sys.executable, "-m", "pytest", "-q", *plugins, *overrides, *options, *node_ids]


def _environment() -> dict[str, str]:
    private = ("PYTEST_XDIST", "PYTEST_CURRENT_TEST")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(private)}
    return kept | {REMEASURING: "1"}


def _case_records(path: Path) -> list[Record]:
    try:
        return [record for record in read_journal(path).records if record["record"] == "case"]
    except StoreError:  # not even a journal: the process says why
        return []


def _samples(records: Sequence[Record]) -> dict[Key, tuple[float, ...]]:
    usable = [record for record in records if record["verdict"]["kind"] not in UNUSABLE]
    return {found.key: found.processes[0] for record in usable for found in of_record(record)}


def _why(records: Sequence[Record], done: subprocess.CompletedProcess[str]) -> str:
    if records:
        return str(records[0]["verdict"]["reason"])
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    return f"exit status {done.returncode}: {lines[-1] if lines else 'no output'}"
