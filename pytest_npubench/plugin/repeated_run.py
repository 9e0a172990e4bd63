"""`--npubench-accept=3`: the run is repeated until the cases that it accepts have three sessions each.

A session is what one process measured, so each run is a pytest of its own. This process only starts one after the
other, until each case that one of them accepted has the sessions, and says between them how many there are. A case
may be disturbed in one of them, so there are more runs than sessions where they are needed, at most twice as many.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

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
MOST_RUNS = 2
"""For each session that is wanted."""
MEASURED = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, 10, 11, 12)
"""Exit statuses after which another run may accept more."""


def repeat(config: pytest.Config) -> int | None:
    """Runs pytest again and again; returns the first exit status that is not 0, else 0. None for a run that is one of
    these, or part of one."""
    if any(name in os.environ for name in (RUN, CHILD, REMEASURING)):
        return None
    wanted, first_failure = config.getoption("npubench_accept"), 0
    runs: list[str] = []
    while True:
        runs.append(new_id())
        try:
            status = _run(config, runs[-1])
        except KeyboardInterrupt:
            return pytest.ExitCode.INTERRUPTED
        first_failure = first_failure or status
        try:
            fewest = _fewest_sessions(Settings.from_pytest_config(config), runs) if status in MEASURED else 0
        except StoreError:  # the run has said so
            fewest = 0
        is_last = not 0 < fewest < wanted or len(runs) == MOST_RUNS * wanted
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


def _fewest_sessions(settings: Settings, runs: Sequence[str]) -> int:
    """The fewest accepted sessions of a case that one of these runs accepted; 0 where the last accepted none."""
    if not settings.journal.exists():
        return 0
    journal = read_journal(settings.journal)
    sessions = [session for session in journal.sessions if session.run in runs]
    run_of, counts = {session.id: session.run for session in sessions}, []
    has_new = False
    accepted = Baselines.load(settings.baselines, missing_ok=True)
    for record in case_records(sessions):
        key = journal.fingerprint(record["fingerprint"]).key() if record["fingerprint"] else None
        for history in accepted.histories(record["case"], key, digest=record["digest"]) if key else ():
            if accepted_in := {run_of.get(entry.session.partition("@")[0]) for entry in history} & {*runs}:
                counts.append(len(history))
                has_new |= runs[-1] in accepted_in
    return min(counts) if has_new else 0
