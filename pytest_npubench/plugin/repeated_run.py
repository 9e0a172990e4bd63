"""`--npubench-accept=3`: the run is repeated until the cases that it accepts have three sessions each.

A session is what one process measured, so each run is a pytest of its own. This process only starts one after the
other, at most as many as sessions are wanted, and says between them how many there are.
"""

from __future__ import annotations

import os
import sys

import pytest

from pytest_npubench.errors import StoreError
from pytest_npubench.plugin.settings import REMEASURING, Settings
from pytest_npubench.processes import CHILD
from pytest_npubench.processes.guarded import Guarded
from pytest_npubench.store.baselines import Baselines
from pytest_npubench.store.journal_format import RUN, new_id
from pytest_npubench.store.journal_reader import read_journal
from pytest_npubench.store.journal_runs import case_records

GRACE_S = 30.0
MEASURED = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, 10, 11, 12)
"""Exit statuses after which another run may accept more."""


def repeat(config: pytest.Config) -> int | None:
    """Runs pytest again and again; returns the first exit status that is not 0, else 0. None for a run that is one of
    these, or part of one."""
    if any(name in os.environ for name in (RUN, CHILD, REMEASURING)):
        return None
    wanted, first_failure = config.getoption("npubench_accept"), 0
    for number in range(1, wanted + 1):
        run = new_id()
        try:
            status = _run(config, run)
        except KeyboardInterrupt:
            return pytest.ExitCode.INTERRUPTED
        first_failure = first_failure or status
        try:
            fewest = _fewest_sessions(Settings.from_pytest_config(config), run) if status in MEASURED else 0
        except StoreError:  # the run has said so
            fewest = 0
        is_last = not 0 < fewest < wanted or number == wanted
        if fewest:
            goes_on = "" if is_last else ": the run is repeated"
            sys.stdout.write(f"\n{min(fewest, wanted)} of {wanted} sessions are accepted{goes_on}\n\n")
            sys.stdout.flush()
        if is_last:
            break
    return first_failure


def _run(config: pytest.Config, run: str) -> int:
    command = [sys.executable, "-m", "pytest", *map(str, config.invocation_params.args)]
    guarded = Guarded(command, grace_s=GRACE_S, env={**os.environ, RUN: run}, folder=config.invocation_params.dir)
    try:
        return guarded.process.wait()
    finally:
        guarded.end()


def _fewest_sessions(settings: Settings, run: str) -> int:
    """The fewest accepted sessions of a case that this run accepted; 0 where it accepted none."""
    if not settings.journal.exists():
        return 0
    journal = read_journal(settings.journal)
    sessions = [session for session in journal.sessions if session.run == run]
    ids, counts = {session.id for session in sessions}, []
    accepted = Baselines.load(settings.baselines, missing_ok=True)
    for record in case_records(sessions):
        key = journal.fingerprint(record["fingerprint"]).key() if record["fingerprint"] else None
        for history in accepted.histories(record["case"], key, digest=record["digest"]) if key else ():
            if any(entry.session.partition("@")[0] in ids for entry in history):
                counts.append(len(history))
    return min(counts, default=0)
