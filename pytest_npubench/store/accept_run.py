"""Accepting a finished run: the cases that its sessions left in a journal become one baseline session each.

Only a green run enters: every session of it has ended with exit status 0, and no case of it is failed, invalid (also
one that was throttled or shared its device) or regressed. Results that a resumed run took over from an earlier one are
left out, since an earlier run's samples are not a new session; so are metrics that nothing is judged by (gate "none").

A baseline session is named as the journal's session that measured it; where that session measured on several devices,
SESSION@DEVICE. So the same run is recognised however often, and by whatever part, it is accepted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_npubench.errors import JournalError, RunNotAcceptedError
from pytest_npubench.store.acceptance import CaseResult, MetricResult
from pytest_npubench.store.accepted_session import BETTER, GATES, JUDGED
from pytest_npubench.store.baselines import Baselines
from pytest_npubench.store.journal_reader import Journal, Record, Session
from pytest_npubench.store.journal_runs import run_of
from pytest_npubench.store.json_fields import items
from pytest_npubench.store.json_text import JsonError, take

# nothing that fails, and nothing that was not measured
GREEN = frozenset({"passed", "unchanged", "improved", "no-baseline", "inconclusive", "incomparable"})
NUM_NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedRun:
    """What accepting a run did: baseline sessions, how many cases, and files changed (none: they held them already)."""

    sessions: tuple[str, ...]
    num_cases: int
    num_resumed: int
    paths: tuple[Path, ...]

    def __str__(self) -> str:
        """In words, as run and command line say it."""
        where = ", ".join(map(str, self.paths)) or "files that held them already"
        rest = f"; {self.num_resumed} cases taken over from an earlier run are left out" if self.num_resumed else ""
        return f"accepted {self.num_cases} cases into {where}{rest}"


def accept_run(
    journal: Journal, sessions: Sequence[Session], directory: Path, *, exit_status: int | None = None
) -> AcceptedRun:
    """Accept the cases of a run's sessions into the baselines in `directory`, which is made where it is missing.

    `exit_status` is the whole run's where the caller knows it; the sessions' own count in any case. Raises
    RunNotAcceptedError with the reason where the run is not green, JournalError where a record cannot be used,
    BaselineError as Baselines.accept: then nothing was written, or the groups of devices before.
    """
    _check_ended(journal, sessions, exit_status)
    records = _latest(record for session in sessions for record in session.records if record["record"] == "case")
    _check_green(records)
    measured = [record for record in records if not record.get("resumed", False)]
    groups = {name: results for name, results in _groups(journal, measured).items() if results[1]}
    if not groups:
        raise RunNotAcceptedError(_nothing(len(records), len(measured)))
    paths: set[Path] = set()
    for name, (digest, results) in groups.items():
        fingerprint = journal.fingerprint(digest)
        paths.update(
            Baselines(directory=directory, files=()).accept(
                results, session=name, key=fingerprint.key(), git_revision=fingerprint.host.git_revision
            )
        )
    return AcceptedRun(
        sessions=tuple(groups),
        num_cases=sum(len(results) for _, results in groups.values()),
        num_resumed=len(records) - len(measured),
        paths=tuple(sorted(paths)),
    )


def _check_ended(journal: Journal, sessions: Iterable[Session], exit_status: int | None) -> None:
    """One worker that failed makes the whole run red, also where another worker's session is accepted."""
    if exit_status:
        raise RunNotAcceptedError(f"the run ended with exit status {exit_status}")
    for session in (member for chosen in sessions for member in run_of(journal, chosen)):
        if session.end is None:
            raise RunNotAcceptedError(f"session {session.id} has no end record: it still runs or was killed")
        if session.end["exit_status"] != 0:
            raise RunNotAcceptedError(f"session {session.id} ended with exit status {session.end['exit_status']}")


def _check_green(records: Iterable[Record]) -> None:
    red = [record for record in records if record["verdict"]["kind"] not in GREEN]
    if red:
        named = [f"{record['case']} is {record['verdict']['kind']}{_reason(record)}" for record in red[:NUM_NAMED]]
        more = [f"{len(red) - NUM_NAMED} more are not green"] if len(red) > NUM_NAMED else []
        raise RunNotAcceptedError("; ".join(named + more))


def _reason(record: Record) -> str:
    reason = record["verdict"].get("reason")
    return f" ({reason})" if reason else ""


def _nothing(num_cases: int, num_measured: int) -> str:
    if not num_cases:
        return "no case ran"
    if not num_measured:
        return f"no case was measured: {num_cases} were taken over from an earlier run"
    return "no case has a metric to judge by"


def _latest(records: Iterable[Record]) -> list[Record]:
    """A case that a session repeated counts once, with its latest record."""
    latest: dict[tuple[Any, ...], Record] = {}
    for record in records:
        place = (record["session"], record["fingerprint"], record.get("device"), record["case"], record["digest"])
        latest[place] = record
    return list(latest.values())


def _groups(journal: Journal, records: Sequence[Record]) -> dict[str, tuple[str, list[CaseResult]]]:
    """Baseline session -> fingerprint digest and results: one for each journal session and device."""
    by_place: dict[tuple[str, str, str], list[CaseResult]] = {}
    for record in records:
        try:
            place = (record["session"], take(record, "fingerprint", (str,)), take(record, "device", (str,)))
            results = by_place.setdefault(place, [])
            result = _result(record)
        except JsonError as error:
            raise JournalError(f"journal {journal.path}: case record {record['case']}: {error}") from None
        if result.metrics:
            results.append(result)
    devices = [session for session, _, _ in by_place]
    return {
        session if devices.count(session) == 1 else f"{session}@{device}": (digest, results)
        for (session, digest, device), results in by_place.items()
    }


def _result(record: Record) -> CaseResult:
    metrics = take(record, "metrics", (dict,))
    return CaseResult(
        hardware=record["hardware"],
        case=record["case"],
        digest=record["digest"],
        metrics=tuple(
            _metric(name, metrics[name])
            for name in metrics
            if take(metrics, name, (Mapping,), "metrics").get("gate") != "none"
        ),
        frozen=_frozen(record),
    )


def _frozen(record: Record) -> dict[str, float]:
    found = take(record, "frozen", (Mapping,)) if "frozen" in record else {}
    return {name: float(take(found, name, (int, float), "frozen")) for name in found}


def _metric(name: str, metric: Record) -> MetricResult:
    place = f"metrics.{name}"
    return MetricResult(
        name=name,
        unit=take(metric, "unit", (str,), place),
        better=BETTER[_one_of(metric, "better", tuple(BETTER), place)],
        gate=GATES[_one_of(metric, "gate", JUDGED, place)] if "gate" in metric else "ratio",
        margin=take(metric, "margin", (int, float), place) if metric.get("margin") is not None else None,
        processes=_processes(metric, place),
    )


def _one_of(metric: Record, name: str, allowed: Collection[str], place: str) -> str:
    found: str = take(metric, name, (str,), place)
    if found not in allowed:
        raise JsonError(f"{place}.{name}: want {' or '.join(allowed)}, found {found!r}")
    return found


def _processes(metric: Record, place: str) -> tuple[tuple[float, ...], ...]:
    """Those of a suspect measured again in fresh processes; else one, of the samples or of the value alone."""
    if metric.get("processes"):
        found = items(metric, "processes", (list,), place)
        return tuple(tuple(items({"processes": samples}, "processes", (int, float), place)) for samples in found)
    samples = items(metric, "samples", (int, float), place) if metric.get("samples") is not None else []
    return (tuple(samples) or (take(metric, "value", (int, float), place),),)
