"""What llm.npu's techniques did alone, in a sentence or two, for the end of a run and the head of a section.

Worked example: "offload: C / FIFO 0.93 calm, 0.95 stalls, 1.02 hog" and "offload, each alone: time sharing -4 %, shadow
+17 %, out_of_order -36 %; error shadow -82 %; weights sharing -75 %".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pytest_npubench.reports.pair_cells import device_name, entries, of_kind
from pytest_npubench.reports.record_fields import Record, number, suite_of, table

SHOWN_EFFECTS = {"time": "time", "error": "error", "weight_bytes": "weights"}
ORDER = "contribution"


def offload_lines(records: Iterable[Record]) -> list[str]:
    """One line for the orders and one for the factorial, where they were measured."""
    own = [record for record in records if suite_of(record) == "offload"]
    contended = of_kind(own, "contention")
    lines = (
        *map(_order_line, contended or of_kind(own, "out_of_order")),
        *map(_effect_line, of_kind(own, "factorial")),
    )
    return [line for line in lines if line]


def _order_line(record: Record) -> str:
    rows = [row for row in entries(table(record, "detail"), "arms") if row.get("arm") == ORDER]
    ratios = [(str(row.get("setting")), over) for row in rows if (over := number(row, "over")) is not None]
    shown = ", ".join(f"{over:.3g} {setting}" for setting, over in ratios)
    return f"offload: C / FIFO {shown}{_on(record)}" if shown else ""


def _effect_line(record: Record) -> str:
    effects = table(table(record, "detail"), "effects")
    parts = []
    for name, called in SHOWN_EFFECTS.items():
        shown = _changes(entries(effects, name), always=name == "time")
        if shown:
            parts.append(f"{called} {', '.join(shown)}")
    return f"offload, each alone: {'; '.join(parts)}{_on(record)}" if parts else ""


def _changes(effects: Sequence[Record], *, always: bool) -> list[str]:
    """Of single techniques; what changes nothing is told of time alone."""
    found = []
    for effect in effects:
        factors, ratio = effect.get("factors"), number(effect, "ratio")
        if isinstance(factors, (list, tuple)) and len(factors) == 1 and ratio is not None:
            change = round(100 * (ratio - 1))
            if always or change:
                found.append(f"{factors[0]} {change:+d} %")
    return found


def _on(record: Record) -> str:
    name = device_name(record)
    return f" ({name})" if name else ""
