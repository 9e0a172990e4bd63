"""How the suite's tables and charts name a load, and write figures that may be unavailable or have an interval."""

from __future__ import annotations

from typing import Any

from pytest_npubench.reports import number_text
from pytest_npubench.reports.build import NO_BREAK
from pytest_npubench.verdict.case_record import CaseRecord

UNAVAILABLE = "unavailable"


def workload_of(case: CaseRecord[Any]) -> str:
    return case.axis("workload")


def load_name(case: CaseRecord[Any], rate_per_s: float) -> str:
    """The workload and the rate at which its requests came: "layered-arxiv at 1.3 req/s"."""
    return f"{workload_of(case)} at {rate_per_s:.3g} req/s"


def available(value: float | None, factor: float = 1.0) -> str:
    """The value times `factor`, in four significant digits."""
    return UNAVAILABLE if value is None else number_text.plain(value * factor)


def ends(interval: tuple[float | None, float | None] | None) -> str:
    """ " (1.4 to 1.6)"; empty where not both ends are known."""
    low, high = interval or (None, None)
    return "" if low is None or high is None else f" ({low:.3g}{NO_BREAK}to{NO_BREAK}{high:.3g})"


def reason(case: CaseRecord[Any]) -> str:
    """The verdict's, as a sentence with a space behind it."""
    text = case.judgement.verdict.reason
    return f"{text[0].upper()}{text[1:]}. " if text else ""
