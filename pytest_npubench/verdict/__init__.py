"""Verdicts: against absolute limits (gates), against accepted sessions (judge), and between two stacks."""

from pytest_npubench.verdict.judge import Judged, judge, judge_jointly
from pytest_npubench.verdict.kinds import FAILING, Gate, Verdict, VerdictKind, judge_gates
from pytest_npubench.verdict.paired import judge_pairs

__all__ = [
    "FAILING",
    "Gate",
    "Judged",
    "Verdict",
    "VerdictKind",
    "judge",
    "judge_gates",
    "judge_jointly",
    "judge_pairs",
]
