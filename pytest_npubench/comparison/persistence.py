"""A case that stays inconclusive night after night, and is worse each time, is trouble that one night cannot prove.

Were nothing wrong, a case would be beyond the margin for the worse on fewer than half of the nights; on 10 in a row
with a chance below 1 in 1024.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from itertools import takewhile
from typing import Any

from pytest_npubench.comparison.observation import Observation
from pytest_npubench.store.journal_reader import Journal, Session
from pytest_npubench.verdict import Verdict, VerdictKind

Record = Mapping[str, Any]


def nights_in_doubt(
    journal: Journal, observation: Observation, margin: float, but_run: str, since: datetime | None = None
) -> int:
    """In how many of the journal's latest runs, up to the last other one, the metric was inconclusive and worse.

    The run `but_run`, this one, does not count. Nor does one that began before `since`, when the case was
    reset, nor a result taken over from an earlier run.
    """
    verdicts = _verdicts(journal, observation, but_run, since)
    return sum(1 for _ in takewhile(lambda entry: _in_doubt(entry, observation, margin), verdicts))


def is_in_doubt(verdict: Verdict, observation: Observation, margin: float) -> bool:
    """Whether the verdict is inconclusive with an estimate beyond the margin for the worse."""
    return verdict.kind is VerdictKind.INCONCLUSIVE and _worse(verdict.ratio, observation, margin)


def _verdicts(journal: Journal, observation: Observation, but_run: str, since: datetime | None) -> Iterator[Record]:
    """The metric's verdicts, newest session first, one a run."""
    seen = {but_run}
    for session in reversed(journal.sessions):
        run = session.run or session.id
        if run in seen or (since is not None and _began(session) < since):
            continue
        if found := list(_of_session(session.records, observation)):
            seen.add(run)
            yield found[-1]


def _began(session: Session) -> datetime:
    return datetime.fromisoformat(session.header["started_at"].replace("Z", "+00:00"))


def _of_session(records: Iterable[Record], observation: Observation) -> Iterator[Record]:
    for record in records:
        if record["record"] == "case" and (record["case"], record["digest"]) == (observation.case, observation.digest):
            verdict = record.get("metrics", {}).get(observation.metric, {}).get("verdict")
            if verdict and not record.get("resumed"):
                yield verdict


def _in_doubt(entry: Record, observation: Observation, margin: float) -> bool:
    return entry.get("kind") == VerdictKind.INCONCLUSIVE.value and _worse(entry.get("ratio"), observation, margin)


def _worse(ratio: float | None, observation: Observation, margin: float) -> bool:
    if ratio is None:
        return False
    change = ratio if observation.gate == "difference" else ratio - 1
    limit = margin if observation.margin is None else observation.margin
    return (change if observation.better == "lower" else -change) > limit
