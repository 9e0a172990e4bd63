"""TTFT_b and TBT_b by bucket, prefill by length around the boundaries, and what the profile cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_npubench.reports import definitions, number_text
from pytest_npubench.reports.page import Chart, Table
from pytest_npubench.reports.plot_parts import (
    BLUE,
    ORANGE,
    RED,
    Part,
    axis,
    layout,
    log_axis,
    milliseconds,
    vertical_lines,
)
from pytest_npubench.reports.record_fields import Record, as_number, kind_of, number, numbers, table

_COST = ("binaries", "compile_s", "points", "repeats", "measure_s")


def bucket_charts(records: Sequence[Record]) -> list[Chart]:
    """A chart of each of the two times, where a profile case has it."""
    details = _by_bucket(records, "profile")
    times = (
        ("TTFT_b by bucket", "ttft_s", "ttft_error_s", "TTFT_b, ms", definitions.TTFT, BLUE),
        ("TBT_b by bucket", "tbt_s", "tbt_error_s", "TBT_b, ms", definitions.TBT, ORANGE),
    )
    charts = []
    for title, name, error_name, y_title, note, color in times:
        known = {bucket: detail for bucket, detail in details.items() if number(detail, name) is not None}
        if known:
            values = [number(detail, name) for detail in known.values()]
            errors = [number(detail, error_name) for detail in known.values()]
            charts.append(_time_chart(title, y_title, note, color, tuple(known), values, errors))
    return charts


def steps_chart(records: Sequence[Record]) -> Chart | None:
    """Prefill seconds by length, from all steps cases together."""
    details = _by_bucket(records, "steps")
    times_s: dict[int, float] = {}
    for detail in details.values():
        for name, value in table(detail, "lengths_s").items():
            seconds = as_number(value)
            if name.isdecimal() and seconds is not None:
                times_s[int(name)] = seconds
    if not times_s:
        return None
    lengths, boundaries = sorted(times_s), tuple(details)
    inside = [length for length in _jumps_inside(details) if length in times_s]
    continuous = all(detail.get("continuous") is True for detail in details.values())
    rows = tuple(
        (f"{length}", number_text.milliseconds(times_s[length]), _place(length, boundaries)) for length in lengths
    )
    data = [_steps_trace("prefill of one prompt", lengths, times_s, {"color": BLUE, "size": 7})]
    if inside:
        marker = {"color": RED, "size": 12, "symbol": "x"}
        data.append({**_steps_trace("jump inside a bucket", inside, times_s, marker), "mode": "markers"})
    return Chart(
        title="Latency steps by length",
        summary=f"Prefill time at {len(lengths)} lengths from {lengths[0]} to {lengths[-1]} tokens, with the bucket "
        f"boundaries {_listed(boundaries)}; {len(inside)} jumps inside a bucket.",
        notes=(definitions.SLOPE if continuous else definitions.STEPS,),
        figure={
            "data": data,
            "layout": layout(
                log_axis("length, tokens", boundaries),
                axis("prefill, ms", rangemode="tozero"),
                shapes=vertical_lines(boundaries),
                showlegend=bool(inside),
            ),
        },
        table=Table(caption="Prefill by length", header=("length, tokens", "prefill ms", "bucket"), rows=rows),
    )


def cost_table(records: Sequence[Record]) -> Table | None:
    """LENS profiling cost by bucket and in all."""
    costs = {bucket: table(detail, "cost") for bucket, detail in _by_bucket(records, "profile").items()}
    costs = {bucket: cost for bucket, cost in costs.items() if cost}
    if not costs:
        return None
    total = {name: sum(number(cost, name) or 0.0 for cost in costs.values()) for name in _COST if name != "repeats"}
    total["repeats"] = max(number(cost, "repeats") or 0.0 for cost in costs.values())
    return Table(
        caption="LENS profiling cost",
        note=definitions.COST,
        header=("bucket", "binaries", "compiling, s", "points", "repeats", "measuring, s"),
        rows=(*(_cost_row(f"{bucket}", cost) for bucket, cost in costs.items()), _cost_row("all", total)),
    )


def _by_bucket(records: Sequence[Record], kind: str) -> dict[int, Record]:
    """The detail of each case of that kind by bucket, ascending."""
    details = [table(record, "detail") for record in records if kind_of(record) == kind]
    found = {
        int(bucket): detail for detail in details if (bucket := number(detail, "bucket")) is not None and bucket > 0
    }
    return dict(sorted(found.items()))


def _time_chart(
    title: str,
    y_title: str,
    note: str,
    color: str,
    buckets: tuple[int, ...],
    values: Sequence[float | None],
    errors: Sequence[float | None],
) -> Chart:
    name = y_title.partition(",")[0]
    trace = {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name,
        "x": list(buckets),
        "y": milliseconds(values),
        "error_y": {"type": "data", "array": milliseconds(error or 0.0 for error in errors), "thickness": 1.5},
        "line": {"color": color},
        "marker": {"color": color, "size": 8},
        "hovertemplate": "bucket %{x}: %{y:.4g} ms<extra></extra>",
    }
    cells = zip(buckets, values, errors, strict=True)
    return Chart(
        title=title,
        summary=f"{name} of buckets {_listed(buckets)}: {number_text.milliseconds(values[0])} ms in the smallest, "
        f"{number_text.milliseconds(values[-1])} ms in the largest.",
        notes=(note, definitions.STANDARD_ERROR),
        figure={
            "data": [trace],
            "layout": layout(
                log_axis("bucket b, tokens", buckets), axis(y_title, rangemode="tozero"), showlegend=False
            ),
        },
        table=Table(
            caption=title,
            header=("bucket", f"{name} ms", "± standard error ms"),
            rows=tuple((f"{b}", number_text.milliseconds(v), number_text.milliseconds(e)) for b, v, e in cells),
        ),
    )


def _steps_trace(name: str, lengths: Sequence[int], times_s: Mapping[int, float], marker: Part) -> Part:
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name,
        "x": list(lengths),
        "y": milliseconds(times_s[length] for length in lengths),
        "line": {"color": marker["color"], "width": 1.5},
        "marker": marker,
        "hovertemplate": "%{x} tokens: %{y:.4g} ms<extra></extra>",
    }


def _jumps_inside(details: Mapping[int, Record]) -> list[int]:
    """The right ends of the jumps observed where no boundary is declared."""
    found = []
    for bucket, detail in details.items():
        if detail.get("continuous") is True:  # elsewhere a slope, not a jump
            found += [int(left) + 1 for left in numbers(detail, "extra")]
            continue
        jumps = detail.get("jumps")
        for jump in jumps if isinstance(jumps, (list, tuple)) else ():
            if isinstance(jump, (list, tuple)) and len(jump) >= 3 and jump[2] == "observed":
                right = as_number(jump[1])
                if right is not None and right <= bucket:
                    found.append(int(right))
    return found


def _place(length: int, boundaries: Sequence[int]) -> str:
    return next((f"{bucket}" for bucket in boundaries if length <= bucket), f"above {boundaries[-1]}")


def _cost_row(name: str, cost: Record) -> tuple[str, ...]:
    values = {field: number(cost, field) for field in _COST}
    texts = {
        field: number_text.seconds(value) if field.endswith("_s") else number_text.count(value)
        for field, value in values.items()
    }
    return (name, *texts.values())


def _listed(values: Sequence[int]) -> str:
    return ", ".join(map(str, values))
