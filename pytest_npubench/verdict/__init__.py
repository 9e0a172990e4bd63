"""Verdicts: against absolute limits (gates), against accepted sessions (judge), and between two stacks.

What judges against accepted sessions is imported when it is first asked for: a run that only collects does without.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pytest_npubench.verdict.kinds import FAILING, Gate, Verdict, VerdictKind, judge_gates

if TYPE_CHECKING:
    from pytest_npubench.verdict.judging import Judged, judge, judge_jointly
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

_PLACES = {"Judged": "judging", "judge": "judging", "judge_jointly": "judging", "judge_pairs": "paired"}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
