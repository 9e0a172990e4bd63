"""Which requests met their service-level objective, token by token.

A request attains when its TTFT is within its limit and every one of its TBTs is within theirs (Layered Prefill, section
5.1); one late token of a thousand fails it, where a limit on the mean (TPOT) would pass it. The denominator is the
requests that ARRIVED:

- unfinished or aborted: does not attain, however well it did so far, since nobody can say of a token that has not come
  that it was in time;
- no token at all: does not attain.

The split (Fig. 4) judges the parts by what is final. TTFT: by the first token, once it is there, whatever came after.
TBT: by all gaps of a finished request; one that finished with a single token has none, so none is late. A request
attains both exactly where it attains each.

Worked example: limits 0.5 and 0.2 s; arrivals at 0 and tokens at (0.4, 0.5, 0.6), (0.4, 0.7) and (0.9, 1.0), all
finished, and a fourth that never began: both 1/4, TTFT 2/4, TBT 2/4.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pytest_npubench.errors import ConfigError, MeasurementError
from pytest_npubench.serving.metrics.columns import RequestColumns, columns_of
from pytest_npubench.serving.metrics.record import RequestRecord
from pytest_npubench.stats.checks import BoolArray

SLACK_S = 1e-9  # 0.8 - 0.7 is more than 0.1 in floats; no clock here resolves a nanosecond
UNITS_PER_SECOND = {"s": 1.0, "ms": 1e3, "us": 1e6}
DURATION = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(s|ms|us)\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """Limits in seconds on the first token and on every gap after it; a value at its limit meets it.

    Raises ConfigError for a limit that is not a finite number above 0.
    """

    ttft_s: float
    tbt_s: float

    def __post_init__(self) -> None:
        _check_limit("ttft_s", self.ttft_s)
        _check_limit("tbt_s", self.tbt_s)

    @classmethod
    def parse(cls, ttft: str, tbt: str) -> Slo:
        """Limits with their units: Slo.parse("10s", "125ms") is Slo(ttft_s=10.0, tbt_s=0.125).

        Raises ConfigError for a number without a unit, and for a unit other than s, ms and us.
        """
        return cls(ttft_s=_seconds("TTFT", ttft), tbt_s=_seconds("TBT", tbt))


def slo_attainment(records: Sequence[RequestRecord], slo: Slo, num_arrived: int | None = None) -> float:
    """Fraction of the arrived requests that attain; num_arrived counts those without a record too.

    Raises MeasurementError: nothing arrived, or num_arrived is less than the records.
    """
    return attainment_split(records, slo, num_arrived)[0]


def attainment_split(
    records: Sequence[RequestRecord], slo: Slo, num_arrived: int | None = None
) -> tuple[float, float, float]:
    """(both, TTFT, TBT) attainment as fractions of the arrived requests. Raises as `slo_attainment`."""
    arrived = len(records) if num_arrived is None else num_arrived
    if arrived < 1 or arrived < len(records):
        raise MeasurementError(f"{len(records)} records of {arrived} arrived requests; want 1 <= arrived >= records")
    both, ttft, tbt = (int(met.sum()) / arrived for met in meets(columns_of(records), slo))
    return both, ttft, tbt


def meets(columns: RequestColumns, slo: Slo) -> tuple[BoolArray, BoolArray, BoolArray]:
    """(both, TTFT, TBT) of each request, [N]: its first token is there and was in time; it is finished, and none of
    its gaps is over the limit."""
    in_time = np.asarray(columns.ttft_s <= slo.ttft_s + SLACK_S)  # a NaN compares false
    late = columns.gap_request[columns.gaps_s > slo.tbt_s + SLACK_S]
    smooth = np.asarray(columns.finished & (np.bincount(late, minlength=columns.num_requests) == 0))
    return in_time & smooth, in_time, smooth


def _check_limit(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise ConfigError(f"SLO {name} is {value!r}; want a finite number of seconds above 0")


def _seconds(name: str, text: object) -> float:
    match = DURATION.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ConfigError(f"{name} limit is {text!r}; want a number with a unit of s, ms or us, such as '125ms'")
    return float(match[1]) / UNITS_PER_SECOND[match[2]]
