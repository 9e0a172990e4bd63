"""What a person lets into the baselines and nobody else: other answers of a model, improvements that nobody explained,
and regressions that are meant.

A model whose answers changed, or are wrong, is another model: no time of its campaign enters. A case that became
faster by more than a change of stack explains may have left work out. It enters by itself only where its model answers
as before and where what it did, counted, is what was accepted.

What entered after a change begins a new level: the accepted sessions from the change's first night on, and nothing of
before.

Worked example: accepted sessions of 10.0 to 10.2 ms differ by 2 %. Tonight's 5.0 ms are 50 % better than 10.1 ms,
beyond the larger of 5 % and 2 %, so the case waits. Tonight's 9.7 ms would not.
"""

from __future__ import annotations

import fnmatch
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cached_property
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from pytest_npubench.core.case import campaign_of, is_answers
from pytest_npubench.core.run_folders import RunFolders
from pytest_npubench.errors import BaselineError, did_you_mean
from pytest_npubench.store.accepted_session import AcceptedSession, is_ahead
from pytest_npubench.store.baselines import Baselines
from pytest_npubench.store.fingerprint import FingerprintKey
from pytest_npubench.store.journal_reader import Record
from pytest_npubench.store.journal_runs import RED
from pytest_npubench.store.session_window import NUM_WINDOW_SESSIONS
from pytest_npubench.verdict.result import OF_ANSWERS, STATISTICAL
from pytest_npubench.verdict.work import differences

if TYPE_CHECKING:
    from pytest_npubench.verdict.observations import Session

EXPLAINED = 0.05  # by a newer driver or compiler
MIN_NIGHTS = 3
WAITS = "waits for a person"
CHANGED = ("improved", "regressed")
BY_ITSELF = "improved, no further than is explained"
"""The reason that stands in the file where no person gave one."""
OTHER_ANSWERS = "other answers: pass --accept-answers"


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    """What a person let in: answers that changed; and improvements and regressions of cases (keys, ids, or patterns of
    either), with the reason, which stands in the file.

    Raises BaselineError where there is no reason for them.
    """

    answers: bool = False
    improved: tuple[str, ...] = ()
    regressed: tuple[str, ...] = ()
    reason: str = ""

    def __post_init__(self) -> None:
        for kind in CHANGED:
            if getattr(self, kind) and not self.reason.strip():
                raise BaselineError(f"--{kind} needs a --reason, which stands in the file")

    def check(self, records: Sequence[Record]) -> None:
        """Raises BaselineError where a name is that of no case, or of none that changed so."""
        for kind in CHANGED:
            for wanted in getattr(self, kind):
                named = [record for record in records if _is_named(record, wanted)]
                if not named:
                    hint = did_you_mean(wanted, {record["case"] for record in records})
                    raise BaselineError(f"--{kind} {wanted}: no case of the run has that key or id{hint}")
                if not any(map(regressed_since if kind == "regressed" else has_improved, named)):
                    raise BaselineError(f"--{kind} {wanted}: no such case of the run is {kind}")


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """Of the cases of a run, those that wait. `records` are the run's case records; `key_of` finds the key of a
    fingerprint's digest."""

    records: Sequence[Record]
    directory: Path
    journal: Path
    key_of: Callable[[str], FingerprintKey]
    allowed: Allowed
    options: str = ""
    """Of a command that accepts from there into there."""

    def why(self, record: Record) -> str:
        """Why a case does not enter; empty where nothing is against it. Raises BaselineError where a baseline cannot be
        read."""
        for answers in self._answers_of(record):
            kind = answers["verdict"]["kind"]
            if answers_changed(answers):
                if not self.allowed.answers:
                    return OTHER_ANSWERS
            elif kind in RED:
                return f"is of a model whose answers are {kind}: {answers['case']}"
        if self.is_let_in(record):
            return ""
        accepted = self._accepted(record) if record["fingerprint"] else ()
        if ahead := [one.session for one in accepted if is_ahead(one.began_at)]:
            return f"was held against nothing: its accepted session {ahead[0]} began in the future by this clock"
        since = regressed_since(record)
        return f"is regressed since {since}" if since else self._improvement(record)

    def is_let_in(self, record: Record) -> bool:
        """Whether a person lets in a case that changed."""
        if record["verdict"]["kind"] in RED - {"regressed"}:
            return False
        if regressed_since(record):
            return any(_is_named(record, wanted) for wanted in self.allowed.regressed)
        is_named = any(_is_named(record, wanted) for wanted in self.allowed.improved)
        return is_named and bool(self._improvement(record))

    def reason(self, record: Record) -> str:
        """Why a case that changed begins a new level; empty where it does not. Without a person an improvement does
        once it is there for MIN_NIGHTS."""
        if self.is_let_in(record):
            return self.allowed.reason
        if not has_improved(record):
            return ""
        since, now = changed_since(record), datetime.now(timezone.utc).isoformat()
        nights = [session.is_since(since, now) and not session.is_disturbed for session in self._accepted(record)]
        num_nights = sum(nights) + (not record.get("is_partly_disturbed"))
        return BY_ITSELF if num_nights >= MIN_NIGHTS else ""

    def _answers_of(self, record: Record) -> list[Record]:
        about = (campaign_of(record["case"]), record.get("device"))
        return [
            other
            for other in self.records
            if is_answers(other["case"]) and (campaign_of(other["case"]), other.get("device")) == about
        ]

    def _improvement(self, record: Record) -> str:
        metrics = record.get("metrics") or {}
        improved = [name for name in metrics if _kind(metrics[name]) == "improved"]
        if not improved or not (doubt := self._doubt(record)):
            return ""
        for name in improved:
            sessions = [session for session in self._accepted(record) if name in session.metrics][-NUM_WINDOW_SESSIONS:]
            if sessions and (by := _unexplained(name, metrics[name], sessions)):
                options = f"--session {record['session']} --improved {quote(record['case'])} --reason TEXT"
                accept = f"npubench baseline accept {quote(str(self.journal))}{self.options}"
                return f"{WAITS}: {by}; {doubt}; {accept} {options}"
        return ""

    def _doubt(self, record: Record) -> str:
        """Why an improvement may be none, in words; empty where the model answers and works as accepted."""
        key, work = self.key_of(record["fingerprint"]), record.get("work") or {}
        accepted = self._baselines.work(record["case"], key, digest=record["digest"])
        if changes := differences(work, accepted):
            return ", ".join(changes)
        if not (work and accepted):
            return "what it did was not counted"
        kinds = {answers["verdict"]["kind"] for answers in self._answers_of(record)}
        return "" if kinds == {"unchanged"} else "its model's answers were not compared"

    def _accepted(self, record: Record) -> tuple[AcceptedSession, ...]:
        key = self.key_of(record["fingerprint"])
        histories = self._baselines.histories(record["case"], key, digest=record["digest"])
        return tuple(session for one in histories for session in one)

    @cached_property
    def _baselines(self) -> Baselines:
        return Baselines.load(self.directory, missing_ok=True)


def baselines_option(directory: Path) -> str:
    """Returns the option of a command in this folder which is about the baselines in `directory`, behind a space. It is
    empty where they are those that the command takes without."""
    return "" if directory.absolute() == RunFolders.here().baselines else f" --baselines {quote(str(directory))}"


def answers_changed(record: Record) -> bool:
    """Whether a case of answers regressed, and by nothing but answers."""
    red = [metric.get("gate") for metric in (record.get("metrics") or {}).values() if _kind(metric) == "regressed"]
    is_red = is_answers(record["case"]) and record["verdict"]["kind"] == "regressed"
    return is_red and bool(red) and OF_ANSWERS.issuperset(red)


def has_improved(record: Record) -> bool:
    return "improved" in map(_kind, (record.get("metrics") or {}).values())


def regressed_since(record: Record) -> str:
    """The session at which a metric of the case regressed that scatters from night to night, the first of several;
    empty where none did. A canary, and a case whose machine changed, are green and regressed all the same."""
    return min(
        (
            verdict.get("since") or record.get("session", "")
            for metric in (record.get("metrics") or {}).values()
            for verdict in [metric.get("verdict") or {}]
            if metric.get("gate", "ratio") in STATISTICAL
            and (verdict.get("kind") == "regressed" or (verdict.get("since") and verdict.get("kind") != "improved"))
        ),
        default="",
    )


def changed_since(record: Record) -> str:
    """The session from which on a case is at another level, the first of several; this one where none is named."""
    since = [(metric.get("verdict") or {}).get("since") for metric in (record.get("metrics") or {}).values()]
    return min((found.partition("@")[0] for found in since if found), default=str(record["session"]))


def _is_named(record: Record, wanted: str) -> bool:
    return any(name == wanted or fnmatch.fnmatchcase(name, wanted) for name in (record["case"], record["id"]))


def _kind(metric: Mapping[str, Any]) -> str | None:
    return (metric.get("verdict") or {}).get("kind")


def _unexplained(name: str, metric: Mapping[str, Any], accepted: Sequence[AcceptedSession]) -> str:
    """Says by how much a metric improved, in words; empty where that is no more than stacks or sessions differ by. A
    counter that was or became 0 has no ratio: its improvement is never explained."""
    from pytest_npubench.verdict.observations import UnusableError, session_entries  # with it comes numpy

    is_difference = metric.get("gate") == "difference"
    tonight = metric.get("processes") or [metric["samples"] or [metric["value"]]]

    def entry(session: Session) -> float:
        return float(session_entries(session, "difference" if is_difference else "ratio", metric["better"]).mean())

    try:
        now, before = entry(tonight), [entry(session.metrics[name].processes) for session in accepted]
    except UnusableError:
        return f"{name} improved"
    enough = EXPLAINED if is_difference else -math.log1p(-EXPLAINED)
    gain, differ = statistics.median(before) - now, max(before) - min(before)
    if gain <= max(enough, differ):
        return ""
    by, apart = (f"{size:.3g}" if is_difference else f"{-100 * math.expm1(-size):.2g} %" for size in (gain, differ))
    return f"{name} is {by} better, where accepted sessions differ by {apart}"
