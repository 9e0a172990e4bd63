"""What is said of cases whose engine has no buckets: those of the plan are nominal, and LENS's error is a figure.

Worked example: two prediction cases on vLLM for a CPU, held to errors of 2 % and 4 %: "vLLM on cpu:0 has no buckets:
latency is continuous; LENS's error here is 3.00% (mean of 2 cases in nominal buckets; no stair found)".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean

from pytest_npubench.engines import title_of
from pytest_npubench.reports.predictions import predictions
from pytest_npubench.reports.record_fields import Record, kind_of, numbers, table, text


def continuous_lines(records: Iterable[Record]) -> tuple[str, ...]:
    """One for each device with such cases."""
    found: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        detail = table(record, "detail")
        if detail.get("continuous") is True:
            ran = title_of(text(detail, "engine") or "the engine"), text(record, "device") or "this device"
            found.setdefault(ran, []).append(record)
    return tuple(
        f"{engine} on {device} has no buckets: latency is continuous; {_error(own)}"
        for (engine, device), own in found.items()
    )


def stairs(records: Iterable[Record]) -> tuple[int, ...]:
    """The lengths behind which steps cases saw a step that nobody declared."""
    details = [table(record, "detail") for record in records if kind_of(record) == "steps"]
    return tuple(sorted({int(length) for detail in details for length in numbers(detail, "extra")}))


def _steps(records: Sequence[Record]) -> str:
    """Of the steps cases; empty where there are none."""
    unclear = sum(bool(numbers(table(record, "detail"), "inconclusive")) for record in records)
    lengths = stairs(records)
    found = f"stairs found behind {', '.join(map(str, lengths))}" if lengths else "no stair found"
    doubt = f", {unclear} of {len(records)} boundaries unclear" if unclear else ""
    return f"{found}{doubt}" if records else ""


def _error(records: Sequence[Record]) -> str:
    judged = [abs(item.gated_error) for item in predictions(records)]
    seen = [record for record in records if kind_of(record) == "steps"]
    steps = _steps(seen)
    if not judged:
        return f"LENS was not judged here ({steps})" if steps else "LENS was not judged here"
    cases = f"mean of {len(judged)} case{'s' if len(judged) > 1 else ''} in nominal buckets"
    return f"LENS's error here is {fmean(judged):.2%} ({cases}{f'; {steps}' if steps else ''})"
