"""Bars of the partition suite: memory streams of one unit and of both, and a decoder layer three ways."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from pytest_npubench.reports import number_text
from pytest_npubench.reports.page import Chart, Table
from pytest_npubench.reports.pair_cells import of_kind, plain, ratio
from pytest_npubench.reports.plot_parts import BLUE, GREEN, Part, axis, category_axis, layout
from pytest_npubench.reports.record_fields import Record, number, numbers, table, text
from pytest_npubench.reports.reported import HETERO_INFER, conditions, reported
from pytest_npubench.reports.reported import label as reported_label
from pytest_npubench.suites.partition.report import notes as partition_notes

STREAMS = {"gpu alone": "gpu_alone", "npu alone": "npu_alone", "both at once": "together"}
REPORTED_STREAMS = {"gpu alone": "gpu", "npu alone": "one", "both at once": "gpu+npu"}  # rows of the paper's Fig. 5
ARMS = {"solver's splits": "decided_s", "gpu alone": "gpu_s", "npu alone": "npu_s"}


def bar_charts(records: Sequence[Record]) -> list[Chart]:
    charts = (
        *(memory_chart(record) for record in of_kind(records, "bandwidth")),
        *(layer_chart(record) for record in of_kind(records, "decoder_layer")),
    )
    return [chart for chart in charts if chart is not None]


def memory_chart(record: Record) -> Chart | None:
    """Bytes a second of each unit alone and of both, with the paper's in the table."""
    detail = table(record, "detail")
    rates = {
        name: [value * 1e-9 for value in numbers(detail, f"{field}_bytes_per_s")] for name, field in STREAMS.items()
    }
    known = {name: values for name, values in rates.items() if values}
    if not known:
        return None
    middle = {name: statistics.median(values) for name, values in known.items()}
    gain = ratio(number(detail, "bandwidth_gain"), numbers(detail, "bandwidth_gain_interval"))
    peaks = [f"{name} {_printed_rate(name)} GB/s" for name in ("reachable", "theoretical")]
    theirs = reported_label(conditions("figure 5", paper=HETERO_INFER), *peaks, paper=HETERO_INFER)
    return Chart(
        title="Memory-1: bandwidth of one unit and of both",
        summary=f"Memory bandwidth: {', '.join(f'{name} {plain(value)} GB/s' for name, value in middle.items())}.",
        notes=(partition_notes.MEMORY, f"Both at once / the better unit alone: {gain}.", theirs),
        figure=_bars(middle, "GB/s", {name: (min(values), max(values)) for name, values in known.items()}, BLUE),
        table=Table(
            caption="Memory bandwidth",
            header=("units", "GB/s", "lowest", "highest", "rounds", "reported GB/s"),
            rows=tuple(
                (
                    name,
                    *map(plain, (middle[name], min(values), max(values))),
                    str(len(values)),
                    _printed_rate(REPORTED_STREAMS[name]),
                )
                for name, values in known.items()
            ),
        ),
        rows=len(known),
    )


def layer_chart(record: Record) -> Chart | None:
    """One phase of a decoder layer: as the solver splits it, and on each unit alone."""
    detail = table(record, "detail")
    times_s = {name: number(detail, field) for name, field in ARMS.items()}
    known_ms = {name: value * 1e3 for name, value in times_s.items() if value is not None}
    if not known_ms:
        return None
    phase = text(table(record, "axes"), "phase") or "a pass"
    tokens, context = (number_text.count(number(detail, name)) for name in ("tokens", "context"))
    what = f"{phase} of {tokens} tokens" if phase == "prefill" else f"{phase} of {tokens} token after {context}"
    sync = number_text.milliseconds(number(detail, "sync_s"))
    won = f"Best unit alone / solver's splits: {ratio(number(detail, 'speedup'))}; {sync} ms of it is synchronisation."
    return Chart(
        title=f"Decoder layer: {what}",
        summary=f"Decoder layer, {what}: {', '.join(f'{name} {plain(value)} ms' for name, value in known_ms.items())}.",
        notes=(partition_notes.LAYER, won, _reported_layer(phase)),
        figure=_bars(known_ms, "ms", {}, GREEN),
        table=Table(
            caption=f"Decoder layer, {what}",
            header=("arm", "ms", "of it synchronisation ms"),
            rows=tuple(
                (name, plain(value), sync if name == "solver's splits" else number_text.UNKNOWN)
                for name, value in known_ms.items()
            ),
        ),
        rows=len(known_ms),
    )


def _reported_layer(phase: str) -> str:
    """The paper's ablation of a prefill; of decoding what splits gain over none."""
    if phase == "prefill":
        steps = ("activation-centric", "tensor order", "weight-centric", "fast synchronisation")
        gains = [f"{step} {reported('figure 18', 'speedup', paper=HETERO_INFER, step=step)}" for step in steps]
        place, said = "figure 18", f"320 tokens, each step over the one before: {', '.join(gains)} times"
    else:
        gain = reported("figure 15 speedup", "speedup", paper=HETERO_INFER, baseline="hetero-layer")
        place, said = "figure 15 speedup", f"decoding {gain} times as fast as Hetero-layer, which splits no operator"
    return reported_label(conditions(place, paper=HETERO_INFER), said, paper=HETERO_INFER)


def _bars(values: Mapping[str, float], unit: str, ends: Mapping[str, tuple[float, float]], color: str) -> Part:
    """Horizontal, the first on top; error bars reach to the ends, where there are any."""
    bars: Part = {
        "type": "bar",
        "orientation": "h",
        "y": list(values),
        "x": list(values.values()),
        "marker": {"color": color, "opacity": 0.5},  # the error bar stands out of it
        "hovertemplate": f"%{{y}}: %{{x:.4g}} {unit}<extra></extra>",
    }
    if ends:
        bars["error_x"] = {
            "type": "data",
            "symmetric": False,
            "array": [ends[name][1] - value for name, value in values.items()],
            "arrayminus": [value - ends[name][0] for name, value in values.items()],
            "color": color,
            "thickness": 2,
        }
    return {
        "data": [bars],
        "layout": layout(axis(unit, rangemode="tozero"), category_axis(list(values)), showlegend=False),
    }


def _printed_rate(processors: str) -> str:
    low, high = (reported("figure 5", end, paper=HETERO_INFER, processors=processors) for end in ("low", "high"))
    return low if low == high else f"{low} to {high}"
