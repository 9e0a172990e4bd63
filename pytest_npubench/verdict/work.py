"""What a case did, as numbers by name ("decode steps": 33), and the words for a difference to what was accepted.

Work is counted, never timed: equal work gives equal numbers, so any difference is one. It is told beside a change, for
a step that became faster because half of it was left out is no improvement.

Worked example: decode steps 17 now and 33 accepted are told as "decode steps: 17 where 33 were accepted".
"""

from __future__ import annotations

from collections.abc import Mapping


def differences(now: Mapping[str, float], accepted: Mapping[str, float]) -> tuple[str, ...]:
    """One sentence for each count that differs, in the order of `now`, then what is counted no more. Nothing where one
    side counted nothing at all: sessions from before work was on record say nothing of it."""
    if not now or not accepted:
        return ()
    names = [*now, *(name for name in accepted if name not in now)]
    pairs = ((name, now.get(name), accepted.get(name)) for name in names)
    return tuple(_difference(*pair) for pair in pairs if pair[1] != pair[2])


def work_text(work: Mapping[str, float]) -> str:
    """For example "decode steps 33, FLOP 1.2e+09"; empty without any."""
    return ", ".join(f"{name} {number(value)}" for name, value in work.items())


def number(count: float) -> str:
    """Returns a whole number as it is, unless it is so long that nobody reads it."""
    return f"{count:,.0f}" if count == int(count) and abs(count) < 1e9 else f"{count:.6g}"


def _difference(name: str, now: float | None, accepted: float | None) -> str:
    if now is None:
        return f"{name}: not counted where {number(accepted or 0.0)} were accepted"
    if accepted is None:
        return f"{name}: {number(now)} where none were counted"
    texts = number(now), number(accepted)
    if texts[0] == texts[1]:  # they differ behind the digits that are shown
        texts = repr(now), repr(accepted)
    return f"{name}: {texts[0]} where {texts[1]} were accepted"
