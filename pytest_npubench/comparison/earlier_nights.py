"""The nights before this one, as a journal or a history has them: what was measured and what was said of it.

That a metric is regressed since some night is stored nowhere else: whoever has the journal and the baselines works out
the same. A session that began in the future, by a clock that runs ahead, is not used and is named.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from itertools import chain

from pytest_npubench.comparison.observation import Night, Observation, of_record
from pytest_npubench.errors import JournalError
from pytest_npubench.store.accept_run import session_names, session_place
from pytest_npubench.store.accepted_session import began_at, is_ahead
from pytest_npubench.store.aliases import Aliases
from pytest_npubench.store.fingerprint import Fingerprint
from pytest_npubench.store.history.records import SeriesRow
from pytest_npubench.store.journal_reader import Journal, Record
from pytest_npubench.store.journal_runs import worse
from pytest_npubench.verdict import FAILING, VerdictKind
from pytest_npubench.verdict.result import BETTER, GATES

Measured = tuple[str, str, str]
"""Case, digest and metric."""
INVALID = VerdictKind.INVALID.value
UNUSED = {kind.value for kind in FAILING - {VerdictKind.REGRESSED}}
"""What may hold compile time, or what others did on the machine, is no night."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierNights:
    """`nights`: of each metric, in the order that they began. `from_future` names the sessions that are not used."""

    nights: Mapping[Measured, tuple[Night, ...]] = field(default_factory=dict)
    from_future: tuple[str, ...] = ()

    @classmethod
    def read(cls, journal: Journal, but_run: str) -> EarlierNights:
        """Reads all nights of a journal but the run `but_run`'s; of several tries of a case one counts. Raises
        JournalError where a record cannot be used."""
        try:
            return cls._read(journal, but_run)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise JournalError(
                f"journal {journal.path}: a record of an earlier session cannot be read: {error!r}"
            ) from None

    @classmethod
    def _read(cls, journal: Journal, but_run: str) -> EarlierNights:
        began = {
            session.id: began_at(session.id, session.header["started_at"].replace("Z", "+00:00"))
            for session in journal.sessions
            if session.run != but_run
        }
        ahead = tuple(session for session, moment in began.items() if is_ahead(moment))
        records = [
            record
            for record in journal.records
            if record["record"] == "case" and record["session"] in began and record["session"] not in ahead
        ]
        names = session_names(records)
        counted: dict[tuple[str, str, str], Record] = {}
        for record in records:
            if record["fingerprint"] and not record.get("resumed"):
                key = (names[session_place(record)], record["case"], record["digest"])
                counted[key] = worse(counted.get(key), record)
        stack_of = cache(journal.fingerprint)
        nights: dict[Measured, list[Night]] = {}
        for (session, _, _), record in sorted(counted.items(), key=lambda item: began[item[1]["session"]]):
            for night in _nights(record, session, began[record["session"]], stack_of(record["fingerprint"])):
                nights.setdefault((night.seen.case, night.seen.digest, night.seen.metric), []).append(night)
        return cls(nights={name: tuple(of_metric) for name, of_metric in nights.items()}, from_future=ahead)

    @classmethod
    def of_history(cls, rows: Collection[SeriesRow]) -> EarlierNights:
        """Returns the nights of all compared metrics in a history."""
        places: dict[str, set[tuple[str, str]]] = {}
        for row in rows:
            places.setdefault(row.session, set()).add((row.device, row.fingerprint.digest() if row.fingerprint else ""))
        nights: dict[Measured, list[Night]] = {}
        for row in rows:
            if row.fingerprint is None or row.gate == "none" or row.verdict in UNUSED:
                continue
            if row.compared is None or row.compared == INVALID:
                continue
            night = Night(
                seen=row_observation(row),
                session=row.session if len(places[row.session]) == 1 else f"{row.session}@{row.device}",
                began_at=began_at(row.session, row.started_at),
                stack=row.fingerprint,
                kind=VerdictKind(row.compared),
                since=row.since,
            )
            nights.setdefault((row.case, row.digest, row.metric), []).append(night)
        usable = {name: tuple(night for night in row if not is_ahead(night.began_at)) for name, row in nights.items()}
        ahead = {night.session for row in nights.values() for night in row if is_ahead(night.began_at)}
        return cls(nights=usable, from_future=tuple(sorted(ahead)))

    def joined(self, other: EarlierNights) -> EarlierNights:
        """These nights and the nights that only another source has."""
        nights = dict(self.nights)
        for name, others in other.nights.items():
            earlier = self.nights.get(name, ())
            sessions = {night.session for night in earlier}
            more = (night for night in others if night.session not in sessions)
            nights[name] = tuple(sorted((*earlier, *more), key=lambda night: night.began_at))
        return EarlierNights(nights=nights, from_future=tuple(dict.fromkeys((*self.from_future, *other.from_future))))

    def of(self, case: str, digest: str, metric: str, aliases: Aliases) -> tuple[Night, ...]:
        """Returns the nights of a metric, under all names that its case had."""
        rows = [self.nights.get((name, of, metric), ()) for name, of in aliases.names(case, digest)]
        return tuple(sorted(chain.from_iterable(rows), key=lambda night: night.began_at))


def row_observation(row: SeriesRow) -> Observation:
    """Returns the metric of a history's row as it was observed."""
    return Observation(
        case=row.case,
        digest=row.digest,
        metric=row.metric,
        unit=row.unit,
        better=BETTER[row.better],
        gate=GATES[row.gate],
        margin=row.margin,
        processes=row.processes,
        is_disturbed=row.is_partly_disturbed,
    )


def _nights(record: Record, session: str, began: datetime, stack: Fingerprint) -> Iterator[Night]:
    if record["verdict"]["kind"] in UNUSED:
        return
    for seen in of_record(record):
        judged = record["metrics"][seen.metric].get("verdict")
        if judged and judged["kind"] != INVALID:
            kind = VerdictKind(judged["kind"])
            yield Night(seen=seen, session=session, began_at=began, stack=stack, kind=kind, since=judged.get("since"))
