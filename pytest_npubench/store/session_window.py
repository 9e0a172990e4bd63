"""Which accepted sessions of a case are kept: a fixed anchor and a rolling window.

Kept are all anchor sessions and the newest 24 others, so 32 as a rule. The anchor is the first 8 sessions accepted: a
window alone creeps along with a creep of 0.3 % a night and never sees it. Once a session was accepted that is no
anchor, no later one becomes an anchor by itself, also where an anchor session is rejected; a person may move the
anchor. Where a person accepted a change with a reason, nothing from before it is kept: the sessions with that reason
are the first of a new level.

Worked example: of the sessions 1 to 40, accepted in this order, 1 to 8 (anchor) and 17 to 40 (window) are kept. Once
a person accepts 41 and 42 for one reason, those two.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import replace

from pytest_npubench.store.accepted_session import KeptSamples, Quantity, Sessions

NUM_ANCHOR_SESSIONS = 8
NUM_WINDOW_SESSIONS = 24


def joins_anchor(history: Sessions) -> bool:
    """Whether a session accepted after these becomes an anchor."""
    return len(history) < NUM_ANCHOR_SESSIONS and all(session.anchor for session in history)


def kept(sessions: Sessions) -> Sessions:
    """Keeps the anchor sessions and the newest others of the newest level, in the order given."""
    level = of_newest_level(sessions)
    rolling = [session for session in level if not session.anchor][-NUM_WINDOW_SESSIONS:]
    names = {session.session for session in rolling}
    return tuple(session for session in level if session.anchor or session.session in names)


def of_newest_level(sessions: Sessions) -> Sessions:
    """The sessions from the first on that a person accepted for the newest reason; all where no person did."""
    last = max((index for index, session in enumerate(sessions) if session.reason), default=0)
    first = last
    while first and sessions[last].reason and sessions[first - 1].reason == sessions[last].reason:
        first -= 1
    return sessions[first:] if sessions else ()


def same_samples(
    entry: Mapping[str, KeptSamples], other: Mapping[str, KeptSamples], quantities: Mapping[str, Quantity]
) -> bool:
    """Whether two entries can be of one session; answers may have gone from either since (with_newest_answers)."""
    gone = entry.keys() ^ other.keys()
    return all(quantities[name].gate == "answers" for name in gone) and all(
        entry[name] == other[name] for name in entry.keys() & other.keys()
    )


def with_newest_answers(sessions: Sessions, quantities: Mapping[str, Quantity]) -> Sessions:
    """What a model answered, and what a case did, stays with the newest session that says so, since only that is
    compared. A session that would hold nothing then goes."""
    vectors = {name for name, quantity in quantities.items() if quantity.gate == "answers"}
    newest = {name: session.session for session in sessions for name in vectors & session.metrics.keys()}
    worked = [session.session for session in sessions if session.work][-1:]
    left = (
        replace(
            session,
            metrics={
                name: entry
                for name, entry in session.metrics.items()
                if newest.get(name, session.session) == session.session
            },
            work=session.work if session.session in worked else {},
        )
        for session in sessions
    )
    return tuple(session for session in left if session.metrics)


def merged(histories: Iterable[Sessions]) -> Sessions:
    """The sessions a case was accepted with under its several names, as one history in the order of acceptance.

    Within one history the order stays as it is, because a clock may have gone back.
    """
    return kept(tuple(heapq.merge(*histories, key=lambda session: session.accepted_time)))


def continued(earlier: Sessions, later: Sessions) -> Sessions:
    """The later sessions as they would be, had they been accepted after the earlier ones under the same name."""
    history = earlier
    for session in later:
        history = (*history, replace(session, anchor=session.anchor and joins_anchor(history)))
    return history[len(earlier) :]
