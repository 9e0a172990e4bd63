"""What share of a run's cases was held against accepted sessions, and why the others were not.

A run whose baselines were lost, or whose new compiler changed every key, is green: nothing regressed. A share that is
required turns it red. Judgeable is a case that was measured and has a metric to hold against something (a gate other
than "none"); judged is one whose metrics have verdicts against accepted sessions, none of them "no-baseline" or
"incomparable". "inconclusive" is such a verdict: it was looked at.

Worked example: of 56 judgeable cases 15 are unchanged and 41 incomparable because of "runtime jax 0.9.0 -> 0.10.2":
a share of 15/56 = 27 %, where 90 % was required.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pytest_npubench.plain_text import counted
from pytest_npubench.verdict import JUDGED
from pytest_npubench.verdict.result import STATISTICAL

AGAINST_BASELINE = frozenset(kind.value for kind in JUDGED)
NOT_MEASURED = "invalid"
UNJUDGED = ("incomparable", "no-baseline")


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedShare:
    """Counts of cases, and why the others were not judged: (verdict kind, its reason) of each."""

    num_judgeable: int
    num_judged: int
    reasons: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, records: Iterable[Mapping[str, Any]]) -> JudgedShare:
        """Returns the share of a run's case records."""
        judgeable = [
            verdicts
            for record in records
            if record["verdict"]["kind"] != NOT_MEASURED and (verdicts := _metric_verdicts(record)) is not None
        ]
        unjudged = [verdicts for verdicts in judgeable if not _is_judged({kind for kind, _ in verdicts})]
        return cls(
            num_judgeable=len(judgeable),
            num_judged=len(judgeable) - len(unjudged),
            reasons=tuple(map(_first, unjudged)),
        )

    def lack(self, required: float) -> str | None:
        """Why the share is below the required fraction, with counts; None where it is not.

        A run without a judgeable case lacks it, however little is required: it has looked at nothing.
        """
        if not self.num_judgeable:
            return f"no case could be compared with a baseline; want {required:.0%} of them"
        if self.num_judged >= required * self.num_judgeable:
            return None
        counts = f"{self.num_judged} of {self.num_judgeable} cases were compared with a baseline, want {required:.0%}"
        return f"{counts}; {self.unjudged}"

    @property
    def unjudged(self) -> str:
        """Returns the most frequent reason of unjudged cases, with its count: "41 of 56 incomparable: driver 1 ->
        2"."""
        if not self.reasons:
            return ""
        (kind, reason), number = Counter(self.reasons).most_common(1)[0]
        others = f"; {len(self.reasons) - number} more for other reasons" if number < len(self.reasons) else ""
        return f"{number} of {self.num_judgeable} {kind}: {reason}{others}"


def false_alarms(records: Iterable[Mapping[str, Any]]) -> str:
    """What a run may be wrong in, in words; empty where it judged nothing that scatters."""
    number = sum(
        metric.get("gate", "ratio") in STATISTICAL and (metric.get("verdict") or {}).get("kind") in AGAINST_BASELINE
        for record in records
        if not record.get("resumed")
        for metric in record["metrics"].values()
    )
    metrics = f"{number} metric{'' if number == 1 else 's'}"
    return f"judged {metrics} together: one false alarm in 60 sessions like this, or fewer" if number else ""


def smallest_seen(records: Iterable[Mapping[str, Any]]) -> str:
    """The smallest changes that a run would have found, suite by suite; empty where it compared no ratio."""
    from pytest_npubench.verdict.wording import visible

    by_suite: dict[str, list[float]] = {}
    for record in records:
        for metric in record["metrics"].values():
            verdict = metric.get("verdict") or {}
            is_compared = metric.get("gate", "ratio") == "ratio" and verdict.get("kind") in AGAINST_BASELINE
            if is_compared and verdict.get("mde") is not None:
                by_suite.setdefault(record["case"].partition("/")[0], []).append(verdict["mde"])
    said = (
        f"{suite} {visible(statistics.median_low(seen))} in half of {counted(len(seen), 'metric')}, "
        f"{visible(max(seen))} in all"
        for suite, seen in by_suite.items()
    )
    return f"smallest slowdown that this session would have found: {'; '.join(said)}" if by_suite else ""


def _metric_verdicts(record: Mapping[str, Any]) -> list[tuple[str, str]] | None:
    """(kind, reason) of the metrics that were compared; None where the case has no metric with a gate."""
    gated = [metric for metric in record["metrics"].values() if metric.get("gate", "ratio") != "none"]
    if not gated:
        return None
    return [(metric["verdict"]["kind"], metric["verdict"]["reason"]) for metric in gated if metric.get("verdict")]


def _is_judged(kinds: set[str]) -> bool:
    return bool(kinds & AGAINST_BASELINE) and not kinds & set(UNJUDGED)


def _first(verdicts: list[tuple[str, str]]) -> tuple[str, str]:
    """Returns the reason that says most: another key before too few sessions, both before none."""
    by_reason = (verdict for kind in UNJUDGED for verdict in verdicts if verdict[0] == kind)
    return next(by_reason, verdicts[0] if verdicts else ("not compared", "no metric was compared"))
