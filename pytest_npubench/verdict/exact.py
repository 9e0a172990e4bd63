"""Counters that repeat exactly, such as bytes of expert weights loaded: no statistics, any change is one.

Where accepted sessions differ among themselves, a value inside their range is unchanged.

Worked example: accepted 4096, 4096, 4096; now 4100 and lower is better: regressed, by 0.098 %.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytest_npubench.verdict.kinds import Verdict, VerdictKind
from pytest_npubench.verdict.observations import Better, Session


def judge_exact(sessions: Sequence[Session], current: Session, *, better: Better = "lower") -> Verdict:
    """The verdict of one counter; of several values of a session the worst one counts. No sessions: no-baseline."""
    worst = max if better == "lower" else min
    accepted = [worst(value for samples in session for value in samples) for session in sessions]
    if not accepted:
        return Verdict(kind=VerdictKind.NO_BASELINE, reason="0 accepted sessions under this key; want 1 or more")
    now, low, high = worst(value for samples in current for value in samples), min(accepted), max(accepted)
    ratio = now / accepted[-1] if accepted[-1] else None
    known = f"{low:.12g}" if low == high else f"{low:.12g} to {high:.12g}"
    if low <= now <= high:
        return Verdict(kind=VerdictKind.UNCHANGED, reason=f"{now:.12g}, accepted {known}", ratio=ratio)
    is_worse = now > high if better == "lower" else now < low
    kind = VerdictKind.REGRESSED if is_worse else VerdictKind.IMPROVED
    return Verdict(kind=kind, reason=f"{now:.12g}, accepted {known}: a counter that repeats exactly", ratio=ratio)
