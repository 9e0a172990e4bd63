"""Accepting the journal's sessions that have no settled end yet, with every judged case accounted for.

A session is settled for good where it was accepted, refused with a reason that stays (it was red, killed, or is damaged
in the journal), or rejected by a person. Any other error leaves it for the next night.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_npubench.errors import RunNotAcceptedError, StoreError
from pytest_npubench.store.accept_run import GREEN, accept_run, waiting_texts
from pytest_npubench.store.baselines import Baselines
from pytest_npubench.store.journal_reader import Journal, Session
from pytest_npubench.store.journal_runs import counted_cases, run_of

NUM_NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedNight:
    """What became of one run: its sessions, in words what was done, and how it counts.

    `num_judgeable` cases were green and have a gated metric, `num_accepted` of them are in the baselines now.
    `waiting` are those that a person must accept by name, with how. `is_settled` says that no later night need try
    again, `is_new` that the baselines hold it now and did not before.
    """

    sessions: tuple[str, ...]
    said: str
    num_judgeable: int
    num_accepted: int
    lost: tuple[str, ...]
    is_settled: bool
    is_new: bool
    waiting: tuple[str, ...] = ()


def accept_waiting(journal: Journal, settled: Collection[str], directory: Path) -> list[AcceptedNight]:
    """Accept every run of which a session is not settled, oldest first, into the baselines in `directory`."""
    done: list[AcceptedNight] = []
    seen: set[str] = set(settled)
    for session in journal.sessions:
        if session.id not in seen:
            run = run_of(journal, session)
            seen.update(member.id for member in run)
            done.append(_accept(journal, run, directory))
    done += (_damaged(journal, session.id) for session in journal.damaged if session.id not in settled)
    return done


def _damaged(journal: Journal, session: str) -> AcceptedNight:
    return _outcome((session,), f"nothing accepted: it is damaged: {journal.why_damaged(session)}", settled=True)


def _accept(journal: Journal, run: Sequence[Session], directory: Path) -> AcceptedNight:
    ids = tuple(session.id for session in run)
    expected = _judgeable(run)
    if not any(record["record"] == "case" for session in run for record in session.records):
        return _outcome(ids, "no case was judged", settled=True)
    try:
        accepted = accept_run(journal, run, directory)
        times_accepted = _times_accepted(directory, ids)
    except RunNotAcceptedError as error:
        why = " ".join(str(error).split())
        for text in error.waiting:  # the summary has them one by one
            why = why.replace(text, text.partition(":")[0])
        said = f"nothing accepted of {sum(expected.values())} green cases: {why}"
        return replace(_outcome(ids, said, settled=True), waiting=error.waiting)
    except StoreError as error:
        is_rejected = "was rejected on" in str(error)  # by a person, for good
        said = f"not accepted{'' if is_rejected else ', to be tried again'}: {error}"
        return _outcome(ids, said, settled=is_rejected, lost=() if is_rejected else (str(error),))
    named = [(left_out.case, str(left_out)) for left_out in accepted.left_out]  # left out by acceptance, with reasons
    lost = tuple(sorted((expected - times_accepted - Counter(case for case, _ in named)).elements()))
    num_accepted = sum((expected & times_accepted).values())
    waiting = waiting_texts(accepted.left_out)
    return AcceptedNight(
        sessions=ids,
        said=f"accepted {num_accepted} of {sum(expected.values())} judgeable green cases"
        f"{_listed('lost', lost)}{_listed('left out', [text for _, text in named if text not in waiting])}",
        num_judgeable=sum(expected.values()),
        num_accepted=num_accepted,
        lost=lost,
        is_settled=True,
        is_new=bool(accepted.paths),
        waiting=waiting,
    )


def _outcome(ids: tuple[str, ...], said: str, *, settled: bool, lost: tuple[str, ...] = ()) -> AcceptedNight:
    return AcceptedNight(
        sessions=ids, said=said, num_judgeable=0, num_accepted=0, lost=lost, is_settled=settled, is_new=False
    )


def _listed(title: str, names: Sequence[str]) -> str:
    if not names:
        return ""
    more = f" and {len(names) - NUM_NAMED} more" if len(names) > NUM_NAMED else ""
    return f"; {title}: {', '.join(names[:NUM_NAMED])}{more}"


def _judgeable(run: Sequence[Session]) -> Counter[str]:
    """The green cases that were measured and have a gated metric, by name; one on two devices counts twice."""
    return Counter(
        str(record["case"])
        for record in counted_cases(run)
        if record["verdict"]["kind"] in GREEN and not record.get("resumed", False) and _is_gated(record["metrics"])
    )


def _is_gated(metrics: Mapping[str, Mapping[str, object]]) -> bool:
    return any(metric.get("gate") != "none" for metric in metrics.values())


def _times_accepted(directory: Path, ids: Collection[str]) -> Counter[str]:
    """How often the baselines hold each case of these sessions; they name a session SESSION or SESSION@DEVICE."""
    return Counter(
        name
        for file in Baselines.load(directory, missing_ok=True).files
        for name, case in file.cases.items()
        for session in case.sessions
        if session.session.partition("@")[0] in ids
    )
