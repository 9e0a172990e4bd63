"""Accepting a finished run, case by case: what its sessions left in a journal becomes baseline sessions.

Every green case enters that was measured by a test that passed and has a metric to judge by; every other is named with
its reason (docs/baselines.md lists them). A run that was killed, interrupted or ended by an internal error enters not
at all, and neither does one that failed while each of its cases and their tests are green.

A case that a run measured several times, because its test was tried again or several workers ran it, counts once, by
its worst try; of tries that are all green the first.

A baseline session is named as the journal's session that measured it; where that session measured on several devices,
or with several stacks on one, SESSION@DEVICE. So the same run is recognised however often, and by whatever part, it is
accepted. Two stacks on one device, such as jax and torch, have keys and files of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pytest_npubench.errors import BaselineError, JournalError, RunNotAcceptedError
from pytest_npubench.plain_text import counted, plain
from pytest_npubench.store.acceptance import CaseResult, MetricResult, SessionResults
from pytest_npubench.store.accepted_session import AcceptedStack, began_at, is_ahead
from pytest_npubench.store.baselines import Baselines
from pytest_npubench.store.fingerprint import FingerprintKey
from pytest_npubench.store.journal_reader import Journal, Record, Session
from pytest_npubench.store.journal_runs import Faults, check_whole, run_of, test_faults, worse
from pytest_npubench.store.json_text import take
from pytest_npubench.store.waiting import WAITS, Allowed, Waiting, answers_changed, changed_since
from pytest_npubench.verdict import VerdictKind
from pytest_npubench.verdict.case_record import metrics_of
from pytest_npubench.verdict.result import Metric

# nothing that fails, and nothing that was not measured
GREEN = frozenset({"passed", "unchanged", "improved", "no-baseline", "inconclusive", "incomparable", "unavailable"})
TESTS_FAILED = 1
ENDINGS = {2: "interrupted", 3: "an internal error", 4: "a usage error", 5: "no tests"}
NUM_ON_ONE_LINE = 3
RESUMED = "was taken over from an earlier run"
NOT_JUDGEABLE = "has no metric to judge by"
UNKNOWN = "0001-01-01T00:00:00+00:00"
NO_OUTCOME = "was measured by a test whose outcome is not on record"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A case of the run that was not accepted, and why: "is failed (...)"."""

    case: str
    reason: str
    waits: bool = False
    """For a person, who accepts it by name."""

    def __str__(self) -> str:
        return plain(f"{self.case} {self.reason}")


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedRun:
    """What accepting a run did: baseline sessions, how many cases, which not, and files changed (none: they held them
    already). left_out has the cases that were taken over from an earlier run too, num_resumed of them."""

    sessions: tuple[str, ...]
    num_cases: int
    num_resumed: int
    left_out: tuple[LeftOut, ...]
    paths: tuple[Path, ...]

    def __str__(self) -> str:
        """Says it in words, as run and command line do."""
        where = ", ".join(map(str, self.paths)) or "files that held them already"
        rest = (
            f"; {counted(self.num_resumed, 'case')} taken over from an earlier run left out" if self.num_resumed else ""
        )
        named = [found for found in self.left_out if found.reason != RESUMED]
        cases = counted(self.num_cases + len(named), "case")
        of = f"{self.num_cases} of " if named else ""
        return f"accepted {of}{cases} into {where}{rest}{f': {_listed(named)}' if named else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """What measured a case: the journal's session, the run's own name for the device, and the fingerprint."""

    session: str
    device: str
    fingerprint: str


@dataclass(slots=True)
class _Sorted:
    """The records of a run: results by baseline session and key, and what is left out before anything is written."""

    groups: dict[tuple[str, FingerprintKey], tuple[AcceptedStack, dict[str, CaseResult]]]
    left_out: list[LeftOut]


def accept_run(
    journal: Journal,
    sessions: Sequence[Session],
    directory: Path,
    *,
    exit_status: int | None = None,
    allowed: Allowed | None = None,
    options: str = "",
) -> AcceptedRun:
    """Accept the green cases of a run's sessions into the baselines in `directory`, which is made where it is missing.

    `exit_status` is the whole run's where the caller knows it; the sessions' own count in any case. `allowed` is what a
    person lets in by name, `options` belong to the commands that say how (baselines_option). Raises RunNotAcceptedError
    with the reasons where no case can be accepted, JournalError where a record cannot be used, BaselineError where a
    baseline cannot be read or written, or a case would be lost without a word.
    """
    _check_ended(journal, sessions, exit_status)
    run = _whole_run(journal, sessions)
    faults = test_faults(run)
    records = _counted(journal, sessions, faults)
    waiting = Waiting(
        records=_counted(journal, run, faults),
        directory=directory,
        journal=journal.path,
        key_of=cache(lambda digest: journal.fingerprint(digest).key()),
        allowed=allowed or Allowed(),
        options=options,
    )
    waiting.allowed.check(records)
    earlier = _since_changes(journal, run, [record for record in records if waiting.is_let_in(record)], waiting)
    sorted_out = _sorted_out(journal, records, faults, waiting, earlier)
    groups = tuple(
        SessionResults(
            session=name,
            key=key,
            git_revision=stack.fingerprint.host.git_revision,
            results=tuple(results.values()),
            stack=stack,
        )
        for (name, key), (stack, results) in sorted_out.groups.items()
        if results
    )
    num_green = sum(len(group.results) for group in groups) - len(earlier)
    if num_green + len(sorted_out.left_out) != len(records):
        raise BaselineError(
            f"journal {journal.path}: of {len(records)} cases {num_green} can be accepted and "
            f"{len(sorted_out.left_out)} are left out: some would be lost without a word; nothing was accepted, please "
            "report this"
        )
    if not groups:
        raise RunNotAcceptedError(_nothing(len(records), sorted_out.left_out), waiting_texts(sorted_out.left_out))
    accepted = Baselines(directory=directory, files=()).accept_sessions(groups)
    before = {record["session"] for record in earlier}  # of these none is counted
    refused = [
        LeftOut(case=case, reason=f"is refused ({why})")
        for session, case, why in accepted.refused
        if session.partition("@")[0] not in before
    ]
    left_out, num_cases = (*sorted_out.left_out, *refused), num_green - len(refused)
    if not num_cases:
        raise RunNotAcceptedError(_nothing(len(records), left_out), waiting_texts(left_out))
    return AcceptedRun(
        sessions=tuple(dict.fromkeys(group.session for group in groups)),
        num_cases=num_cases,
        num_resumed=sum(one.reason == RESUMED for one in left_out),
        left_out=left_out,
        paths=accepted.paths,
    )


def _is_case(record: Record) -> bool:
    return bool(record["record"] == "case")


def _check_ended(journal: Journal, sessions: Iterable[Session], exit_status: int | None) -> None:
    """A worker that was killed or interrupted, or whose session is damaged, keeps the whole run out, also where another
    worker's is accepted."""
    run = _whole_run(journal, sessions)
    try:
        check_whole(journal, run)
    except JournalError as error:
        raise RunNotAcceptedError(str(error)) from None
    ends = [("the run", exit_status)] if exit_status is not None else []
    for session in run:
        if session.end is None:
            raise RunNotAcceptedError(f"session {session.id} has no end record: it still runs or was killed")
        ends.append((f"session {session.id}", session.end["exit_status"]))
    for who, status in ends:
        if status not in (0, TESTS_FAILED):
            why = f" ({ENDINGS[status]})" if status in ENDINGS else ""
            raise RunNotAcceptedError(f"{who} ended with exit status {status}{why}")
    others = [node for session in run if session.end for node in session.end.get("failed_tests", ())]
    if others:
        more = f" (and {len(others) - 1} more)" if len(others) > 1 else ""
        raise RunNotAcceptedError(f"{others[0]}{more} failed; it measures no case, so it may be about every case")
    cases = [record for session in run for record in session.records if _is_case(record)]
    failed = [who for who, status in ends if status == TESTS_FAILED]
    if failed and all(map(_is_green, cases)) and not any(test_faults(run).values()):
        raise RunNotAcceptedError(f"{failed[0]} ended with exit status 1, and no case is red: something else failed")


def _whole_run(journal: Journal, sessions: Iterable[Session]) -> list[Session]:
    return list({member.id: member for chosen in sessions for member in run_of(journal, chosen)}.values())


def _is_green(record: Record) -> bool:
    return record["verdict"]["kind"] in GREEN


def waiting_texts(left_out: Iterable[LeftOut]) -> tuple[str, ...]:
    """Names those that a person may accept by name, and how."""
    return tuple(str(case) for case in left_out if case.waits)


def _nothing(num_cases: int, left_out: Sequence[LeftOut]) -> str:
    named = [found for found in left_out if found.reason != RESUMED]
    if not num_cases:
        return "no case ran"
    if not named:
        return f"no case was measured: {num_cases} were taken over from an earlier run"
    return _listed(named)


def _listed(left_out: Sequence[LeftOut]) -> str:
    if len(left_out) <= NUM_ON_ONE_LINE and (len(left_out) == 1 or not any(found.waits for found in left_out)):
        return "; ".join(map(str, left_out))
    return "".join(f"\n  {found}" for found in left_out)


def _counted(journal: Journal, sessions: Iterable[Session], faults: Faults) -> list[Record]:
    """Each case once for each device and key, by its worst try. A try whose device could not be opened has no key: it
    counts with the others of its case."""
    key_of = cache(lambda digest: journal.fingerprint(digest).key())
    tries: dict[tuple[object, str], list[tuple[FingerprintKey | None, Record]]] = {}
    for record in (record for session in sessions for record in session.records if _is_case(record)):
        key = None if record["fingerprint"] is None else key_of(record["fingerprint"])
        tries.setdefault((record.get("device"), record["case"]), []).append((key, record))
    return [
        max((record for key, record in of_case if key in (wanted, None)), key=lambda record: _how_bad(record, faults))
        for of_case in tries.values()
        for wanted in dict.fromkeys(key for key, _ in of_case if key is not None) or (None,)
    ]


def _how_bad(record: Record, faults: Faults) -> int:
    if record.get("resumed", False):
        return 0
    return 1 if _is_green(record) and not _fault(record, faults) else 2


def _fault(record: Record, faults: Faults) -> str:
    return faults.get((record["session"], record.get("device"), record["case"]), NO_OUTCOME)


def _since_changes(
    journal: Journal, run: Sequence[Session], let_in: Sequence[Record], waiting: Waiting
) -> list[Record]:
    """The nights that enter along with cases which a person lets in: what the journal holds of them since they changed
    and before this run, oldest first, of a case that was tried again the worst. A green case whose test failed for
    another reason is left out."""
    ids = {session.id for session in run}
    begin = {_measured(record, waiting): changed_since(record) for record in let_in}
    faults = test_faults(journal.sessions)
    nights: dict[tuple[object, ...], Record] = {}
    for record in filter(_is_case, journal.records):
        since = begin.get(_measured(record, waiting))
        is_between = since is not None and since <= record["session"] < max(ids) and record["session"] not in ids
        is_usable = record["verdict"]["kind"] == "regressed" or (_is_green(record) and not _fault(record, faults))
        if is_between and is_usable and not record.get("resumed", False):
            night = (record["session"], *_measured(record, waiting))
            nights[night] = worse(nights.get(night), record)
    return sorted(nights.values(), key=lambda record: str(record["session"]))


def _measured(record: Record, waiting: Waiting) -> tuple[object, ...]:
    """What it is of, whatever the commit and the host."""
    key = waiting.key_of(record["fingerprint"]) if record["fingerprint"] else None
    return record["case"], record["digest"], record.get("device"), key


def _sorted_out(
    journal: Journal, records: Sequence[Record], faults: Faults, waiting: Waiting, earlier: Sequence[Record]
) -> _Sorted:
    sorted_out = _Sorted({}, [])
    sessions = {record["session"] for record in earlier}
    whole = [record for record in journal.records if _is_case(record) and record["session"] in sessions]
    names = session_names(records) | session_names(whole)
    fingerprint_of = cache(journal.fingerprint)
    since = {_measured(record, waiting): changed_since(record) for record in records}
    for record, reason in (
        *((one, None) for one in earlier),
        *((one, _against(one, faults, waiting)) for one in records),
    ):
        if reason is None:
            why = waiting.allowed.reason if record in earlier else waiting.reason(record)
            try:
                measured_by, result = session_place(record), _result(record, why, since[_measured(record, waiting)])
            except ValueError as error:
                raise JournalError(f"journal {journal.path}: case record {record['case']}: {error}") from None
            stack = AcceptedStack(device=measured_by.device, fingerprint=fingerprint_of(measured_by.fingerprint))
            _, results = sorted_out.groups.setdefault((names[measured_by], stack.fingerprint.key()), (stack, {}))
            if result.metrics:
                results[result.case] = result
            else:
                reason = NOT_JUDGEABLE
        if reason is not None:
            sorted_out.left_out.append(LeftOut(case=record["case"], reason=reason, waits=reason.startswith(WAITS)))
    return sorted_out


def _against(record: Record, faults: Faults, waiting: Waiting) -> str | None:
    """What is against accepting a case. The test of answers that changed failed for that alone, as a rule."""
    if record.get("resumed", False):
        return RESUMED
    if is_ahead(began_at(record["session"], UNKNOWN)):
        return f"is of the session {record['session']}, which began in the future by this machine's clock"
    if not answers_changed(record) and not waiting.is_let_in(record):
        if not _is_green(record):
            return _red(record)
        if fault := _fault(record, faults):
            return fault
    return waiting.why(record) or None


def _red(record: Record) -> str:
    reason = record["verdict"].get("reason")
    return f"is {record['verdict']['kind']}" + (f" ({reason})" if reason else "")


def session_place(record: Record) -> _Place:
    """What measured a case, by which session_names names the baseline session."""
    return _Place(
        session=record["session"],
        device=take(record, "device", (str,)),
        fingerprint=take(record, "fingerprint", (str,)),
    )


def session_names(records: Iterable[Record]) -> dict[_Place, str]:
    """The name of the baseline session of each place; the colour of its cases does not change it."""
    measured = [record for record in records if not record.get("resumed", False)]
    with_device = [record for record in measured if isinstance(record.get("device"), str) and record["fingerprint"]]
    places = list(dict.fromkeys(map(session_place, with_device)))
    num_places = [place.session for place in places]
    return {
        place: place.session if num_places.count(place.session) == 1 else f"{place.session}@{place.device}"
        for place in places
    }


def _can_be_judged(metric: Metric) -> bool:
    """Says whether a metric is no mere figure, and valid tonight: a slope below 0, on a machine under load, is not."""
    return metric.gate != "none" and (metric.verdict is None or metric.verdict.kind is not VerdictKind.INVALID)


def _result(record: Record, reason: str, since: str) -> CaseResult:
    """Raises ValueError where its metrics cannot be read."""
    return CaseResult(
        hardware=record["hardware"],
        case=record["case"],
        digest=record["digest"],
        metrics=tuple(
            MetricResult(
                name=metric.name,
                unit=metric.unit,
                better=metric.better,
                gate=metric.gate,
                margin=metric.margin,
                processes=metric.processes,
            )
            for metric in filter(_can_be_judged, metrics_of(take(record, "metrics", (dict,))))
        ),
        frozen={name: float(value) for name, value in (record.get("frozen") or {}).items()},
        work={name: float(value) for name, value in (record.get("work") or {}).items()},
        reason=reason,
        since=since,
        is_disturbed=record.get("is_partly_disturbed") is True,
    )
