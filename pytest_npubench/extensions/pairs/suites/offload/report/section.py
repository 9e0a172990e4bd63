"""What the section of llm.npu's techniques shows, whose campaigns are one an experiment, and what the end of a run says
of them."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_npubench.extensions.pairs.offload.effects import Effect
from pytest_npubench.extensions.pairs.offload.factorial import OUT_OF_ORDER
from pytest_npubench.extensions.pairs.offload.summaries import ReplayRow
from pytest_npubench.extensions.pairs.pair_rounds import other_device, pair_rounds
from pytest_npubench.extensions.pairs.suites.offload.kinds.contention import ContentionDetail
from pytest_npubench.extensions.pairs.suites.offload.kinds.factorial import FactorialDetail
from pytest_npubench.extensions.pairs.suites.offload.kinds.out_of_order import OutOfOrderDetail
from pytest_npubench.reports.campaign_sections import sentences
from pytest_npubench.reports.detail_parts import detail_parts
from pytest_npubench.reports.drift import drift_chart
from pytest_npubench.reports.page import Parts, Rounds
from pytest_npubench.verdict.case_record import CaseRecord, Cases

DRIFT = (
    "Time of each point in a round over its mean in all rounds: the work is the same in each, but for random stalls "
    "and what else takes the memory."
)
ERROR = "Relative errors are numerical ones of made-up tensors against float32, no model's accuracy."
NOTES = {
    "chunk_sharing": (
        "The same prompt with one graph for its very length (whole), padded to the longest, in chunks with a graph "
        "each (per_chunk), and in chunks that share what does not depend on the chunk's place (sharing). Times are "
        "medians over the rounds; over is the median of the rounds' own ratios to whole, and an interval needs 6 "
        "rounds. Weights are constants in the graphs; saved are those that sharing saves against per_chunk."
        f"{ERROR}"
    ),
    "contention": (
        "The orders again with nothing else, with random stalls of the units, and beside a process that moves memory "
        "all the time. Over is the ratio to FIFO: below 1 an order beats it under the same disturbance."
    ),
    "factorial": (
        "One prefill with each technique on or off, all eight ways: medians over the rounds, and the time over that "
        "with none. An effect is with / without a technique, as the geometric mean over the other techniques, taken "
        "round by round; below 1 it improves the figure. That of several techniques is a ratio of such ratios. Low and "
        "high are the ends of Student's 95 % interval over the rounds."
        f"{ERROR}"
    ),
    "out_of_order": (
        "Orders of subgraphs on the pair: each unit takes what is ready by the order's rule. Over is the median of the "
        "rounds' own ratios to FIFO; an interval needs 6 rounds. Predicted is the order simulated with durations "
        "measured before. Simulated are orders with the durations of docs/offload.md; a bubble is the static unit's "
        "idle share."
    ),
    "shadow_outlier": (
        "Seven ways to multiply: float32, INT8 with a per-tensor scale (max_min), INT8 clipped, clipped with the "
        "outliers apart on the other unit (serial, parallel with fast or slow signals), and both in one graph of one "
        "unit (mixed). Times are medians over the rounds; sync is the part of the time in which neither unit's own "
        "work is done. From the crossover's fraction of outlier channels on, mixed is faster than the pair with fast "
        "signals."
        f"{ERROR}"
    ),
}
"""By kind, what its figures mean."""


def parts(cases: Cases, rounds: Rounds) -> Parts:
    """Every chart and table that these cases on one device have data for."""
    charts, tables = detail_parts(cases, notes=NOTES)
    drift = drift_chart(pair_rounds(rounds), DRIFT)
    return (*charts, *(() if drift is None else (drift,))), tuple(tables), sentences(lines(cases))


def lines(cases: Cases) -> Sequence[str]:
    """One line for the orders and one for the factorial, where they were measured."""
    contended = [order_line(record) for record in cases.of("contention", ContentionDetail)]
    calm = [order_line(record) for record in cases.of("out_of_order", OutOfOrderDetail)]
    effects = [effect_line(record) for record in cases.of("factorial", FactorialDetail)]
    return [line for line in (*(contended or calm), *effects) if line]


def order_line(record: CaseRecord[ContentionDetail] | CaseRecord[OutOfOrderDetail]) -> str:
    """ "offload: C / FIFO 0.93 calm, 0.95 stalls, 1.02 hog"; empty where C was not among the orders."""
    arms: Sequence[ReplayRow] = record.detail.arms
    shown = [f"{row.over:.3g} {row.setting}" for row in arms if row.arm == OUT_OF_ORDER and row.over is not None]
    device = other_device(record)
    return f"offload: C / FIFO {', '.join(shown)}{f' ({device})' if device else ''}" if shown else ""


def effect_line(record: CaseRecord[FactorialDetail]) -> str:
    """ "offload, each alone: time sharing -4 %, shadow +17 %, out_of_order -36 %; error shadow -82 %; weights sharing
    -75 %"; what changes nothing is told of time alone."""
    effects = record.detail.effects
    by_quantity = {
        "time": _changes(effects.time, always=True),
        "error": _changes(effects.error),
        "weights": _changes(effects.weight_bytes),
    }
    device = other_device(record)
    shown = "; ".join(f"{name} {', '.join(changes)}" for name, changes in by_quantity.items() if changes)
    return f"offload, each alone: {shown}{f' ({device})' if device else ''}"


def _changes(effects: Sequence[Effect], *, always: bool = False) -> list[str]:
    """Of single techniques."""
    alone = [(effect.name, round(100 * (effect.ratio - 1))) for effect in effects if len(effect.factors) == 1]
    return [f"{name} {change:+d} %" for name, change in alone if always or change]
