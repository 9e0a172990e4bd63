"""All batch sizes of a model on a device: their stairs over each other, and the throughput that each reaches.

Throughput is output tokens over the seconds of a workload's drawn batches; the batch size that LENS predicts to have
most is starred (LENS, arXiv 2606.18042, section 6: choosing a batch size without measuring each).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from pytest_npubench.reports import build, number_text
from pytest_npubench.reports.page import Chart
from pytest_npubench.reports.plot_parts import COLORS, ORANGE, axis, log_axis, milliseconds
from pytest_npubench.suites.buckets.kinds.prediction import PredictionDetail
from pytest_npubench.suites.buckets.profile_detail import ProfileDetail
from pytest_npubench.suites.buckets.report.profile import TBT, TTFT
from pytest_npubench.verdict.case_record import CaseRecord, Cases

THROUGHPUT = (
    "Output tokens a second over a workload's batches, from the first batch's start to the last token. The star is the "
    "batch size for which LENS predicts most, from profiles alone."
)
Throughput = Mapping[int, tuple[float, float]]
"""By batch size, measured and predicted tokens a second."""


def batch_charts(cases: Cases) -> Sequence[Chart]:
    """Nothing is drawn of what fewer than two batch sizes have."""
    profiles = cases.of("profile", ProfileDetail)
    charts = (
        _stairs("TTFT_b", TTFT, profiles, lambda detail: detail.ttft_s),
        _stairs("TBT_b", TBT, profiles, lambda detail: detail.tbt_s),
    )
    throughput = _throughput_chart(throughputs(cases.of("prediction", PredictionDetail)))
    return tuple(chart for chart in (*charts, throughput) if chart is not None)


def throughputs(cases: Sequence[CaseRecord[PredictionDetail]]) -> dict[str, Throughput]:
    """Each workload has its measured batch sizes, ascending; workloads with fewer than two are left out."""
    by_workload: dict[str, dict[int, tuple[float, float]]] = {}
    for case in sorted(cases, key=lambda case: case.batch_size):
        tokens, measured_s, predicted_s = (
            case.detail.num_output_tokens,
            sum(case.detail.measured_s),
            sum(case.detail.predicted_s),
        )
        if tokens and measured_s > 0 and predicted_s > 0:
            by_batch = by_workload.setdefault(case.detail.workload, {})
            by_batch[case.batch_size] = tokens / measured_s, tokens / predicted_s
    return {workload: by_batch for workload, by_batch in by_workload.items() if len(by_batch) > 1}


def _stairs(
    name: str, note: str, profiles: Sequence[CaseRecord[ProfileDetail]], seconds: Callable[[ProfileDetail], float]
) -> Chart | None:
    times: dict[int, dict[int, float]] = {}
    for case in sorted(profiles, key=lambda case: (case.batch_size, case.detail.bucket)):
        times.setdefault(case.batch_size, {})[case.detail.bucket] = seconds(case.detail)
    if len(times) < 2:
        return None
    buckets = sorted({bucket for by_bucket in times.values() for bucket in by_bucket})
    title = f"{name} by bucket, every batch size"
    return build.chart(
        title,
        f"{name} of {len(buckets)} buckets at batch sizes {', '.join(map(str, times))}.",
        (note,),
        [
            build.treads(
                f"batch {batch}",
                list(by_bucket),
                milliseconds(by_bucket.values()),
                "bucket {x}: {y:.4g} ms",
                index=index,
            )
            for index, (batch, by_bucket) in enumerate(times.items())
        ],
        (log_axis("bucket b, tokens", buckets), axis(f"{name}, ms", from_zero=True)),
        build.series_table(
            title,
            "bucket",
            [str(bucket) for bucket in buckets],
            {
                f"batch {batch}, ms": [number_text.milliseconds(by_bucket.get(bucket)) for bucket in buckets]
                for batch, by_bucket in times.items()
            },
        ),
    )


def _throughput_chart(by_workload: Mapping[str, Throughput]) -> Chart | None:
    if not by_workload:
        return None
    batches = sorted({batch for by_batch in by_workload.values() for batch in by_batch})
    best = {workload: max(by_batch, key=lambda batch: by_batch[batch][1]) for workload, by_batch in by_workload.items()}
    right = sum(
        best[workload] == max(by_batch, key=lambda batch: by_batch[batch][0])
        for workload, by_batch in by_workload.items()
    )
    series = []
    for index, (workload, by_batch) in enumerate(by_workload.items()):
        sizes, hover = list(by_batch), "batch {x}: {y:,.6g} tokens/s"
        color = COLORS[index % len(COLORS)]
        series.append(build.line(workload, sizes, [one for one, _ in by_batch.values()], hover, index=index, width=2))
        predicted = build.line(
            f"{workload}, predicted",
            sizes,
            [one for _, one in by_batch.values()],
            hover,
            index=index,
            dash="dash",
            size=4,
        )
        series.append(replace(predicted, in_legend=False))
        star = build.marks(
            "most, as LENS predicts",
            [best[workload]],
            [by_batch[best[workload]][1]],
            "predicted best, " + hover,
            color=ORANGE,
            colors=(color,),
            symbol="star",
            size=16,
        )
        series.append(star if index == 0 else replace(star, in_legend=False))
    title = "Throughput by batch size"
    return build.chart(
        title,
        f"Output tokens a second at batch sizes {', '.join(map(str, batches))}; the predicted best is the measured "
        f"best for {right} of {len(by_workload)} workloads.",
        (THROUGHPUT, "Solid lines are measured, dashed ones predicted."),
        series,
        (log_axis("batch size", batches), axis("output tokens/s", from_zero=True)),
        build.table(
            title,
            (
                ("workload", lambda row: row[0]),
                ("batch", lambda row: str(row[1])),
                ("measured tokens/s", lambda row: number_text.plain(by_workload[row[0]][row[1]][0])),
                ("predicted tokens/s", lambda row: number_text.plain(by_workload[row[0]][row[1]][1])),
                ("", lambda row: "predicted best" if best[row[0]] == row[1] else ""),
            ),
            [(workload, batch) for workload, by_batch in by_workload.items() for batch in by_batch],
        ),
    )
