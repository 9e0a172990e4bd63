"""Counters that repeat exactly, such as bytes of expert weights loaded: no statistics, any change is one.

Where the newest accepted sessions differ among themselves, a value inside their range is unchanged. Older ones do not
count: after an accepted improvement the old value is a regression again as soon as they have all shown the new one.

Worked example: accepted 4096, 4096, 4096; now 4100 and lower is better: regressed, by 0.098 %.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytest_npubench.verdict import Verdict, VerdictKind
from pytest_npubench.verdict.observations import Better, Session, UnusableError, session_entries

NUM_NEWEST = 5


def judge_exact(
    sessions: Sequence[Session], current: Session, *, better: Better = "lower", margin: float | None = None
) -> Verdict:
    """Returns the verdict of one counter; of several values of a session the worst one counts. Sessions oldest first.
    margin: a relative change that nobody minds, of a counter that repeats but for that.

    No sessions: no-baseline. Values that cannot be used give `invalid` (current) or `inconclusive` (sessions).
    """
    try:
        now = _worst(current, better)
    except UnusableError as error:
        return Verdict(kind=VerdictKind.INVALID, reason=str(error))
    if not sessions:
        return Verdict(kind=VerdictKind.NO_BASELINE, reason="0 accepted sessions on this stack; want 1 or more")
    try:
        accepted = [_worst(session, better) for session in sessions[-NUM_NEWEST:]]
    except UnusableError as error:
        return Verdict(kind=VerdictKind.INCONCLUSIVE, reason=f"an accepted session: {error}")
    low, high = min(accepted), max(accepted)
    ratio = now / accepted[-1] if accepted[-1] else None
    before = f"{low:.12g}" if low == high else f"{low:.12g} to {high:.12g}"
    room = margin or 0.0
    if low - room * abs(low) <= now <= high + room * abs(high):
        return Verdict(kind=VerdictKind.UNCHANGED, reason=f"{now:.12g}, accepted {before}", ratio=ratio)
    is_worse = now > high if better == "lower" else now < low
    repeats = f"a counter that repeats within {margin:.2%}" if margin else "a counter that repeats exactly"
    kind = VerdictKind.REGRESSED if is_worse else VerdictKind.IMPROVED
    return Verdict(kind=kind, reason=f"{now:.12g}, accepted {before}: {repeats}", ratio=ratio)


def _worst(session: Session, better: Better) -> float:
    """Raises UnusableError where a value is not a finite number."""
    session_entries(session, "difference", better)  # checks every process
    worst = max if better == "lower" else min
    return float(worst(value for samples in session for value in samples))
