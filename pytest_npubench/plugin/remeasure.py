"""Measuring a test of the user's own once more in a fresh process: another pytest with the same settings, this test and
a journal of its own, whose samples are all that is taken from it. It ends with this one, and after two hours.

A fresh process has its own memory layout, its own compiled binaries and, on some devices, its own clocks: what one
process measures twice agrees better than two processes do.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_npubench.backends.protocol import Device
from pytest_npubench.comparison.observation import Key, of_record
from pytest_npubench.errors import MeasurementError, StoreError
from pytest_npubench.plugin import fresh_process
from pytest_npubench.plugin.fresh_process import again_folder, fresh_command, fresh_environment
from pytest_npubench.plugin.settings import REMEASURING, Settings
from pytest_npubench.processes import guarded
from pytest_npubench.store.journal import read_journal
from pytest_npubench.store.journal_reader import Record

TIMEOUT_S = 7200.0
UNUSABLE = frozenset({"invalid", "failed"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Remeasured:
    """Samples by (case, metric) of one fresh process."""

    samples: Mapping[Key, tuple[float, ...]]


def measure_again(
    config: pytest.Config, settings: Settings, tests: Sequence[str], devices: Sequence[Device]
) -> Remeasured:
    """One fresh process; `tests` with absolute paths.

    Raises MeasurementError with the reason, or its last words, where it measured nothing.
    """
    time.sleep(fresh_process.COOLDOWN_S)
    with again_folder() as folder:
        journal = folder / "journal.jsonl"
        ordinals = ",".join(str(device.ordinal) for device in devices)
        options = {"--npubench-journal": journal, "--npubench-devices": ordinals}
        try:
            done = guarded.run(
                fresh_command(config, tests, options),
                limit_s=TIMEOUT_S,
                env=fresh_environment(**{REMEASURING: "1"}),
                folder=config.invocation_params.dir,
            )
        except subprocess.TimeoutExpired:
            raise MeasurementError(f"the fresh process did not end within {TIMEOUT_S:g} s") from None
        records = _case_records(journal)
    samples = _samples(records)
    if not samples:
        raise MeasurementError(f"the fresh process measured nothing: {_why(records, done)}")
    return Remeasured(samples=samples)


def _case_records(path: Path) -> list[Record]:
    """Raises MeasurementError where they are damaged."""
    try:
        journal = read_journal(path)
    except StoreError:  # not even a journal: the process says why
        return []
    if journal.damage:
        raise MeasurementError(f"what the fresh process wrote cannot be used: {journal.left_out}")
    return [record for record in journal.records if record["record"] == "case"]


def _samples(records: Sequence[Record]) -> dict[Key, tuple[float, ...]]:
    usable = [record for record in records if record["verdict"]["kind"] not in UNUSABLE]
    return {found.key: found.processes[0] for record in usable for found in of_record(record)}


def _why(records: Sequence[Record], done: subprocess.CompletedProcess[str]) -> str:
    if records:
        return str(records[0]["verdict"]["reason"])
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    return f"exit status {done.returncode}: {lines[-1] if lines else 'no output'}"
