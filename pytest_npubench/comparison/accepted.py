"""What the baselines hold for a metric of a case: sessions to compare with, or why there are none."""

from __future__ import annotations

from collections.abc import Collection

from pytest_npubench.comparison.families import History, NamedSessions
from pytest_npubench.comparison.observation import Observation
from pytest_npubench.store.accepted_session import AcceptedSession
from pytest_npubench.store.baselines import Baselines
from pytest_npubench.store.fingerprint import FingerprintKey
from pytest_npubench.store.session_window import NUM_WINDOW_SESSIONS
from pytest_npubench.verdict import Verdict, VerdictKind

MIN_ANCHOR_SESSIONS = 3


def accepted_history(
    baselines: Baselines, observation: Observation, key: FingerprintKey, across: Collection[str] = ()
) -> History:
    """The newest sessions as window, and the anchor where it is older than they are.

    Incomparable where sessions were accepted, but under another key or of another definition of the case: the reason
    says which part differs. Raises ConfigError where `across` names no part of the key.
    """
    found = baselines.histories(observation.case, key, digest=observation.digest, across=across)
    sessions = [session for one in found for session in one if observation.metric in session.metrics]
    if not sessions:
        return History(instead=_why_incomparable(baselines, observation, key, across))
    window = sessions[-NUM_WINDOW_SESSIONS:]
    anchor = [session for session in sessions[: -len(window)] if session.anchor]
    return History(
        sessions=_samples(window, observation.metric),
        anchor=_samples(anchor, observation.metric) if len(anchor) >= MIN_ANCHOR_SESSIONS else {},
    )


def _why_incomparable(
    baselines: Baselines, observation: Observation, key: FingerprintKey, across: Collection[str]
) -> Verdict | None:
    reasons = baselines.mismatches(observation.case, key, digest=observation.digest, across=across)
    if not reasons:
        return None
    return Verdict(kind=VerdictKind.INCOMPARABLE, reason=f"accepted under another key: {'; or '.join(reasons)}")


def _samples(sessions: Collection[AcceptedSession], metric: str) -> NamedSessions:
    return {session.session: session.metrics[metric].processes for session in sessions}
