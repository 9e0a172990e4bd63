"""How well the solver decided, in a sentence, for the end of a run and the head of a campaign's section.

Worked example: "partition: regret over 10 shapes median 2.1 %, p90 9 %, prediction error median 4.5 %, largest speed-up
1.39 (llama-8b-div4)".
"""

from __future__ import annotations

from collections.abc import Iterable

from pytest_npubench.reports import number_text
from pytest_npubench.reports.pair_cells import device_name, of_kind
from pytest_npubench.reports.record_fields import Record, number, suite_of, table, text


def partition_lines(records: Iterable[Record]) -> list[str]:
    """One line for each solver_regret case that was measured."""
    own = [record for record in records if suite_of(record) == "partition"]
    lines = (_line(record) for record in of_kind(own, "solver_regret"))
    return [line for line in lines if line]


def _line(record: Record) -> str:
    detail = table(record, "detail")
    median, p90 = number(detail, "median_regret"), number(detail, "p90_regret")
    if median is None or p90 is None:
        return ""
    shapes = number_text.count(number(detail, "num_shapes"))
    parts = [f"partition: regret over {shapes} shapes median {_percent(median)}", f"p90 {_percent(p90)}"]
    error, speedup = number(detail, "median_prediction_error"), number(detail, "largest_speedup")
    parts += [f"prediction error median {_percent(error)}"] if error is not None else []
    parts += [f"largest speed-up {speedup:.3g}"] if speedup is not None else []
    about = ", ".join(word for word in (text(record, "model"), device_name(record)) if word)
    return f"{', '.join(parts)}{f' ({about})' if about else ''}"


def _percent(fraction: float) -> str:
    """One digit behind the point below 10: 0.0213 is "2.1 %", 0.09 is "9 %", 10.2 is "1,020 %"."""
    value = 100 * fraction
    return f"{round(value, 1) + 0.0:g} %" if abs(value) < 10 else f"{value:,.0f} %"  # + 0.0: no "-0"
