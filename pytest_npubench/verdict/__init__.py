"""Verdicts: against absolute limits (gates), against accepted sessions (judge), and between two stacks."""

from pytest_npubench.verdict.kinds import FAILING, Gate, Verdict, VerdictKind, judge_gates

__all__ = ["FAILING", "Gate", "Verdict", "VerdictKind", "judge_gates"]
