"""Verdicts: against absolute limits (gates), against accepted sessions (judge), and between two stacks.

A verdict is what a case is told: passed or failed against a limit, how it compares, or why neither could be said.
What judges against accepted sessions is imported when it is first asked for: a run that only collects does without.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_npubench.verdict.judging import Judged, judge, judge_jointly
    from pytest_npubench.verdict.paired import judge_pairs

__all__ = [
    "FAILING",
    "JUDGED",
    "Gate",
    "Judged",
    "Verdict",
    "VerdictKind",
    "judge",
    "judge_gates",
    "judge_jointly",
    "judge_pairs",
]

_PLACES = {"Judged": "judging", "judge": "judging", "judge_jointly": "judging", "judge_pairs": "paired"}


class VerdictKind(Enum):
    """`passed` and `failed` come from absolute limits, `unavailable` is what this device has no instrument for, the
    others come from comparison with accepted sessions."""

    PASSED = "passed"
    FAILED = "failed"
    INVALID = "invalid"
    REGRESSED = "regressed"
    IMPROVED = "improved"
    UNCHANGED = "unchanged"
    INCONCLUSIVE = "inconclusive"
    NO_BASELINE = "no-baseline"
    INCOMPARABLE = "incomparable"
    UNAVAILABLE = "unavailable"


FAILING = frozenset({VerdictKind.FAILED, VerdictKind.REGRESSED, VerdictKind.INVALID})
JUDGED = frozenset({VerdictKind.REGRESSED, VerdictKind.IMPROVED, VerdictKind.UNCHANGED, VerdictKind.INCONCLUSIVE})
"""What is said of a metric that was held against accepted sessions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One judgement with its reason in words; ratio, interval and mde are fractions, None where there is none.

    `since` names the session of the change's most likely first night, `num_nights` counts the nights from it on; where
    the kind is neither regressed nor improved, that change is gone tonight. alarms_among: of how many judged metrics at
    most this one would still alarm, where it did so tonight for the first time.
    """

    kind: VerdictKind
    reason: str
    ratio: float | None = None
    interval: tuple[float, float] | None = None
    mde: float | None = None
    since: str | None = None
    num_nights: int | None = None
    alarms_among: int | None = None

    @property
    def failing(self) -> bool:
        return self.kind in FAILING


FAR = 0.5
"""Of a limit: what lies within it is in doubt where its interval reaches that far beyond."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """A metric held against an absolute limit: passes where value <= limit. A fraction with unit "%" reads so.

    interval is the 95 % interval of what is held to the limit, None where the value is exact or its interval unknown.
    A value over its limit is in doubt where the interval holds the limit; one within it where the interval ends beyond
    1.5 times the limit.
    Worked example, limit 10 %: 13.8 % is in doubt with 0 to 42 % and fails with 12 to 16 %; 6 % is in doubt with 0 to
    18 % and passes with 0 to 14 %.
    """

    metric: str
    value: float
    limit: float
    unit: str = ""
    interval: tuple[float, float] | None = None

    @property
    def passed(self) -> bool:
        return self.value <= self.limit  # a NaN compares false, so it never passes

    @property
    def in_doubt(self) -> bool:
        if self.interval is None:
            return False
        low, high = self.interval
        return high > (1 + FAR) * self.limit if self.passed else low <= self.limit

    def __str__(self) -> str:
        value, limit = self._text(self.value), self._text(self.limit)
        comparison = f"{value} {'<=' if self.passed else '>'} {limit}"
        if self.interval is None:
            return f"{self.metric} {comparison}"
        low, high = map(self._text, self.interval)
        interval = f"(95 % interval {low} to {high})"
        if self.in_doubt:
            return f"{self.metric} {value} {interval}, limit {limit}: not known well enough"
        return f"{self.metric} {comparison} {interval}"

    def _text(self, number: float) -> str:
        if self.unit == "%":
            return f"{number * 100:.2f} %" if number >= 1e-4 else f"{number * 100:.2g} %"
        return f"{number:.4g} {self.unit}".rstrip()


def judge_gates(gates: tuple[Gate, ...]) -> Verdict:
    """Failed if any gate is over its limit, naming those; else inconclusive if one is in doubt, naming those; passed
    otherwise, naming all."""
    over = [str(gate) for gate in gates if not gate.passed and not gate.in_doubt]
    if over:
        return Verdict(kind=VerdictKind.FAILED, reason="; ".join(over))
    doubtful = [str(gate) for gate in gates if gate.in_doubt]
    if doubtful:
        return Verdict(kind=VerdictKind.INCONCLUSIVE, reason="; ".join(doubtful))
    return Verdict(kind=VerdictKind.PASSED, reason="; ".join(map(str, gates)) or "measured")


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
