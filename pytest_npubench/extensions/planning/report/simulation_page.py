"""Simulated runs as a page, beside a real one where it is known: when first and last tokens came, who waited when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_npubench.reports import number_text
from pytest_npubench.reports.build import chart, line, stairs, table
from pytest_npubench.reports.html import command_page
from pytest_npubench.reports.page import Chart, Table
from pytest_npubench.reports.plot_parts import COLORS, axis
from pytest_npubench.serving.metrics import RequestRecord
from pytest_npubench.serving.metrics.columns import columns_of

NUM_STEPS = 200  # of a distribution, and of a line over time
PERCENTS = (10, 25, 50, 75, 90, 99)
Records = Sequence[RequestRecord]
Floats = npt.NDArray[np.float64]


def simulation_page(answer: Mapping[str, Any], served: Mapping[str, Records], facts: Sequence[tuple[str, str]]) -> str:
    """served: records by the name of a run, a measured one among them. answer: what --json prints."""
    charts = [
        _distribution("TTFT", {name: _of(records, "ttft_s") for name, records in served.items()}),
        _distribution("E2E", {name: _of(records, "e2e_latency_s") for name, records in served.items()}),
        _distribution("TPOT", {name: _of(records, "tpot_s") for name, records in served.items()}),
        *_over_time(served),
    ]
    headline = f"{answer['model']} on {answer['hardware']}, {answer['clock']} clock"
    drawn, tables = [each for each in charts if each is not None], [_metrics(run) for run in answer["runs"]]
    answer_first = sorted(facts, key=lambda fact: fact[0] != "winner")
    return command_page("npubench simulate", headline, answer_first, "Latencies and queues", drawn, tables)


def _of(records: Records, name: str) -> Floats:
    values = [getattr(one, name) for one in records if one.finished and one.token_times_s]
    return np.sort(np.array([value for value in values if value is not None], dtype=np.float64))


def _distribution(name: str, values: Mapping[str, Floats]) -> Chart | None:
    drawn = {run: of for run, of in values.items() if of.size}
    if not drawn:
        return None
    unit = number_text.scale("s", *(float(np.median(of)) for of in drawn.values()))
    shares = np.linspace(0, 100, NUM_STEPS + 1)
    series = [
        stairs(
            run,
            (np.percentile(of, shares) * unit.factor).tolist(),
            shares.tolist(),
            f"{run}: {{y:.0f}} % within {{x:.4g}} {unit.name}",
            color=COLORS[index % len(COLORS)],
        )
        for index, (run, of) in enumerate(drawn.items())
    ]
    rows = [
        (run, [number_text.time(float(np.percentile(of, part)), unit) for part in PERCENTS])
        for run, of in drawn.items()
    ]
    medians = ", ".join(f"{run} {figures[PERCENTS.index(50)]}" for run, figures in rows)
    columns = [(f"p{part}", lambda row, index=index: row[1][index]) for index, part in enumerate(PERCENTS)]
    return chart(
        f"{name} of the requests",
        f"Cumulative distribution of {name}; medians: {medians}.",
        (),
        series,
        (axis(f"{name}, {unit.name}", from_zero=True), axis("requests, %", span=(0, 100))),
        table(f"Percentiles of {name}", (("run", lambda row: row[0]), *columns), rows),
    )


def _over_time(served: Mapping[str, Records]) -> list[Chart]:
    """Requests between two of their times, at NUM_STEPS times of the longest run."""
    last_s = max(
        (one.token_times_s[-1] for records in served.values() for one in records if one.token_times_s), default=0
    )
    at_s = np.linspace(0, last_s, NUM_STEPS + 1)
    series = []
    for title, first, last in (
        ("waiting for their first token", "arrival_s", "first_token_s"),
        ("getting tokens", "first_token_s", "last_token_s"),
    ):
        counts = {}
        for run, records in served.items():
            columns = columns_of([one for one in records if one.token_times_s])
            started, ended = np.sort(getattr(columns, first)), np.sort(getattr(columns, last))
            counts[run] = np.searchsorted(started, at_s, "right") - np.searchsorted(ended, at_s, "right")
        most = ", ".join(f"{run} {int(number.max())}" for run, number in counts.items())
        series.append(
            chart(
                f"Requests {title}",
                f"Requests {title} over time; at most: {most}.",
                (),
                [
                    line(
                        run,
                        at_s.tolist(),
                        number.tolist(),
                        f"{run}: {{y:.0f}} at {{x:.1f}} s",
                        index=index,
                        symbol="",
                        size=0,
                    )
                    for index, (run, number) in enumerate(counts.items())
                ],
                (axis("s", from_zero=True), axis("requests", from_zero=True)),
                table(
                    f"Most requests {title}",
                    (("run", lambda row: row[0]), ("at most", lambda row: str(int(row[1].max())))),
                    list(counts.items()),
                ),
            )
        )
    return series


def _metrics(run: Mapping[str, Any]) -> Table:
    """Of one run: every figure, its band and what was measured, as far as they are known."""
    rate = "" if run["rate_per_s"] is None else f" at {run['rate_per_s']:g} requests/s"
    metrics = [metric for metric in run["metrics"] if metric["value"] is not None]
    columns = [("metric", lambda row: row["name"]), ("simulated", lambda row: _figure(row, "value"))]
    if any("low" in metric for metric in metrics):
        columns.append(("90 % band", lambda row: f"{_figure(row, 'low')} to {_figure(row, 'high')}"))
    if any("measured" in metric for metric in metrics):
        columns.append(("measured", lambda row: _figure(row, "measured")))
        columns.append(("error", lambda row: number_text.percent(row.get("error"), signed=True)))
    columns.append(("definition", lambda row: row["definition"]))
    return table(f"{run['policy']}{rate}", tuple(columns), metrics)


def _figure(metric: Mapping[str, Any], which: str) -> str:
    return number_text.figure(metric.get(which), metric["unit"])
