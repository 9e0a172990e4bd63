"""What holds once a killed run was resumed and has ended: the same cases, in history and baselines exactly once."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from plugin.project import Project

from pytest_npubench.store.accept_run import accept_run
from pytest_npubench.store.baselines import Baselines
from pytest_npubench.store.history import upload_journal
from pytest_npubench.store.journal import Session

from .invariants import HISTORY, OLD_JOURNAL, all_sessions, check_baselines, journal_bytes

Record = Mapping[str, Any]


def check_ending(project: Project, cases: Mapping[str, Record]) -> None:
    """The journal's last session has exactly these cases; history and baselines are what the journals say."""
    check_cases(project, cases)
    check_history_is_the_journal(project)
    check_accepted_once(project)


def begin_another_day(project: Project) -> None:
    """Put the journal of a run that ended behind yesterday's, so that the next run begins at its beginning."""
    with (project.root / OLD_JOURNAL).open("ab") as stream:
        stream.write(journal_bytes(project))
    project.journal_path.unlink()


def check_cases(project: Project, cases: Mapping[str, Record]) -> None:
    """The last session has each case once, from as many samples, measured or taken over whole."""
    journal = project.journal()
    last = [record for record in journal.sessions[-1].records if record["record"] == "case"]
    assert sorted(record["case"] for record in last) == sorted(cases)
    earlier = {
        (record["case"], record["digest"]): record
        for session in journal.sessions[:-1]
        for record in session.records
        if record["record"] == "case" and not record["resumed"]
    }
    for record in last:
        expected = cases[record["case"]]
        assert record["digest"] == expected["digest"]
        assert _num_samples(record) == _num_samples(expected)
        if record["resumed"]:
            assert record["metrics"] == earlier[record["case"], record["digest"]]["metrics"]


def _num_samples(record: Record) -> dict[str, int]:
    return {name: len(metric["samples"] or ()) for name, metric in record["metrics"].items()}


def check_history_is_the_journal(project: Project) -> None:
    """check_all has compared the rows; here, that none is missing, and that one upload more writes nothing."""
    with closing(sqlite3.connect(project.root / HISTORY)) as database:
        uploaded = dict(database.execute("SELECT id, num_records FROM npubench_sessions").fetchall())
    assert uploaded == {name: len(session.records) for name, (_, session) in all_sessions(project).items()}
    again = upload_journal(str(project.root / HISTORY), project.journal())
    assert (again.num_new_sessions, again.num_grown_sessions, again.num_cases) == (0, 0, 0)


def check_accepted_once(project: Project) -> None:
    """Whatever a kill kept from being accepted still can be, and accepting all of it once more changes no file."""
    directory = project.root / "baselines"
    green = [(journal, one) for journal, one in all_sessions(project).values() if one.end and _has_measured(one)]
    for journal, session in green:
        accept_run(journal, [session], directory)
    before = _baselines(directory)
    accepted = Baselines.load(directory).files
    names = {session.session for file in accepted for case in file.cases.values() for session in case.sessions}
    assert names == {session.id for _, session in green}
    for journal, session in green:
        assert accept_run(journal, [session], directory).paths == ()
    assert _baselines(directory) == before
    check_baselines(project, all_sessions(project))


def _has_measured(session: Session) -> bool:
    return any(record["record"] == "case" and not record["resumed"] for record in session.records)


def _baselines(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in directory.glob("*/*.json")}
