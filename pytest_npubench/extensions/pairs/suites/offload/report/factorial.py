"""The factorial: its eight cells, and what each technique does alone."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_npubench.extensions.pairs.offload.effects import Effect
from pytest_npubench.extensions.pairs.pair_rounds import other_device
from pytest_npubench.extensions.pairs.suites.offload.kinds.factorial import FactorialDetail
from pytest_npubench.extensions.pairs.suites.offload.report.arms import ERROR
from pytest_npubench.reports import number_text
from pytest_npubench.reports.build import plain, ratio, series_table, table
from pytest_npubench.reports.page import Table
from pytest_npubench.verdict.case_record import CaseRecord

CELLS = "One prefill with each technique on or off, all eight ways; medians over the rounds, time over that with none."
EFFECTS = (
    "With / without a technique, geometric mean over the other techniques, taken round by round; below 1 it improves "
    "the figure. An interaction is a ratio of such ratios. In parentheses Student's 95 % interval over the rounds."
)


def cell_table(record: CaseRecord[FactorialDetail]) -> Table:
    return table(
        "The three techniques, all eight ways",
        (
            ("on", lambda row: row.cell),
            ("ms", lambda row: number_text.milliseconds(row.total_s)),
            ("over none", lambda row: ratio(row.over_none)),
            ("bubble %", lambda row: number_text.percent(row.bubble_fraction)),
            ("graphs", lambda row: number_text.count(row.num_graphs)),
            ("weights MB", lambda row: plain(row.weight_bytes * 1e-6)),
            ("compiling s", lambda row: number_text.seconds(row.compile_s)),
            ("relative error", lambda row: plain(row.relative_error)),
        ),
        record.detail.cells,
        note=f"{CELLS} {ERROR}",
    )


def effect_table(record: CaseRecord[FactorialDetail]) -> Table:
    """Main effects and interactions on time, error and bytes of weights."""
    effects = record.detail.effects
    shown = {"time": effects.time, "relative error": effects.error, "bytes of weights": effects.weight_bytes}
    cells = {head: {effect.name: _ratio(effect) for effect in own} for head, own in shown.items()}
    sets = list(dict.fromkeys(name for own in cells.values() for name in own))
    return series_table(
        "What each technique does alone",
        "with / without",
        sets,
        {head: [own.get(name, number_text.UNKNOWN) for name in sets] for head, own in cells.items()},
        note=EFFECTS,
    )


def effect_line(record: CaseRecord[FactorialDetail]) -> str:
    """ "offload, each alone: time sharing -4 %, shadow +17 %, out_of_order -36 %; error shadow -82 %; weights sharing
    -75 %"; what changes nothing is told of time alone."""
    effects = record.detail.effects
    told = {
        "time": _changes(effects.time, always=True),
        "error": _changes(effects.error),
        "weights": _changes(effects.weight_bytes),
    }
    device = other_device(record)
    shown = "; ".join(f"{name} {', '.join(changes)}" for name, changes in told.items() if changes)
    return f"offload, each alone: {shown}{f' ({device})' if device else ''}"


def _changes(effects: Sequence[Effect], *, always: bool = False) -> list[str]:
    """Of single techniques."""
    alone = [(effect.name, round(100 * (effect.ratio - 1))) for effect in effects if len(effect.factors) == 1]
    return [f"{name} {change:+d} %" for name, change in alone if always or change]


def _ratio(effect: Effect) -> str:
    """What is the same in every round needs no interval."""
    low, high = effect.low, effect.high
    return ratio(effect.ratio, None if low is None or high is None or low == high else (low, high))
