"""Which accepted sessions of a case are kept: a fixed anchor and a rolling window.

Kept are all anchor sessions and the newest 20 others, so 25 as a rule. The anchor is the first 5 sessions accepted: a
window alone creeps along with a creep of 0.5 % a night and never sees it, and an anchor of one session would be judged
with that one night's luck. Once a session was accepted that is no anchor, no later one becomes an anchor by itself,
also where an anchor session is rejected; a person may move the anchor.

Worked example: of the sessions 1 to 30, accepted in this order, 1 to 5 (anchor) and 11 to 30 (window) are kept.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import replace

from pytest_npubench.store.accepted_session import AcceptedSession

NUM_ANCHOR_SESSIONS = 5
NUM_WINDOW_SESSIONS = 20

Sessions = tuple[AcceptedSession, ...]


def joins_anchor(history: Sessions) -> bool:
    """Whether a session accepted after these becomes an anchor."""
    return len(history) < NUM_ANCHOR_SESSIONS and all(session.anchor for session in history)


def kept(sessions: Sessions) -> Sessions:
    """The anchor sessions and the newest others, in the order given."""
    rolling = [session for session in sessions if not session.anchor][-NUM_WINDOW_SESSIONS:]
    names = {session.session for session in rolling}
    return tuple(session for session in sessions if session.anchor or session.session in names)


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
