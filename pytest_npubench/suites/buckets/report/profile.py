"""What profile cases show: TTFT_b and TBT_b by bucket, and what the LENS profile cost. Equations are those of LENS,
arXiv 2606.18042."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytest_npubench.core.measurement import NOT_RUN, CostRecord
from pytest_npubench.plain_text import counted
from pytest_npubench.reports import build, definitions, number_text
from pytest_npubench.reports.page import Chart
from pytest_npubench.reports.plot_parts import BLUE, ORANGE, axis, log_axis, milliseconds
from pytest_npubench.suites.buckets.kinds.canary import CanaryDetail
from pytest_npubench.suites.buckets.profile_detail import ProfileDetail
from pytest_npubench.verdict.case_record import CaseRecord, Cases

TTFT = (
    "TTFT_b, time to first token of bucket b: the time to prefill one prompt that is padded to b tokens "
    "(LENS, Eq. 14 and 15)."
)
TBT = (
    "TBT_b, time between tokens of bucket b: the time of one decode step while the longest KV cache of the batch "
    "lies in b (LENS, Eq. 14 and 15)."
)
BY_COMPILER = f"the compiler's estimate, {NOT_RUN}"
ESTIMATED = f"{BY_COMPILER}: its cycles over the clock, with what carries none priced beside them."

Profiles = Sequence[CaseRecord[ProfileDetail]]
Times = dict[int, tuple[float, float | None]]
"""By bucket, seconds and their standard error."""


def bucket_charts(profiles: Profiles) -> tuple[Chart, ...]:
    """Returns a chart of each of the two times."""
    details = sorted((case.detail for case in profiles), key=lambda detail: detail.bucket)
    if not details:
        return ()
    ttft: Times = {detail.bucket: (detail.ttft_s, detail.ttft_error_s) for detail in details}
    tbt: Times = {detail.bucket: (detail.tbt_s, detail.tbt_error_s) for detail in details}
    return (
        _time_chart("TTFT_b", TTFT, BLUE, ttft, _estimated(details, "estimated_ttft_s")),
        _time_chart("TBT_b", TBT, ORANGE, tbt, _estimated(details, "estimated_tbt_s")),
    )


def _estimated(details: Sequence[ProfileDetail], name: str) -> dict[int, float]:
    """Maps buckets to the seconds that the compiler estimates."""
    return {one.bucket: seconds for one in details if (seconds := getattr(one, name)) is not None}


def host_lines(cases: Cases) -> list[str]:
    """Returns a line a session: what a launch takes that is waited for, and which part of TBT_b that would be."""
    dispatch = {
        session(case): case.judgement.measured_s
        for case in cases.of("canary", CanaryDetail)
        if case.detail.kernel == "dispatch" and case.judgement.measured_s
    }
    tbt_s: dict[tuple[str, str, str, int], dict[int, float]] = {}
    for case in cases.of("profile", ProfileDetail):
        if session(case) in dispatch and case.detail.tbt_s > 0:
            tbt_s.setdefault(session(case), {})[case.detail.bucket] = case.detail.tbt_s
    return [_host_line(key, dispatch[key], of_session) for key, of_session in tbt_s.items()]


def _host_line(key: tuple[str, str, str, int], dispatch_s: float, tbt_s: dict[int, float]) -> str:
    *_, model, batch_size = key
    shares = ", ".join(f"{100 * dispatch_s / tbt_s[bucket]:.1f} % in bucket {bucket}" for bucket in sorted(tbt_s))
    dispatch = number_text.time(dispatch_s)
    return f"the host's share of TBT_b, by the dispatch canary ({dispatch}): {shares} ({model}, batch {batch_size})"


def cost_lines(profiles: Profiles) -> list[str]:
    """The line tells what LENS cost: one session compiles all buckets of a device, model and batch size."""
    costs = [case.detail.cost for case in profiles if case.detail.cost is not None]
    sessions = {session(case) for case in profiles if case.detail.cost is not None}
    return (
        [
            f"LENS profiling cost: {counted(len(sessions), 'session')}, {counted(len(costs), 'bucket')}, "
            f"{cost_words(costs)}"
        ]
        if costs
        else []
    )


def cost_words(costs: Sequence[CostRecord]) -> str:
    """What several profiles took together."""
    total = _total(costs)
    return (
        f"{total.points} points, {total.binaries} binaries, "
        f"{total.compile_s:.1f} s compiling, {total.measure_s:.1f} s measuring"
    )


def session(case: CaseRecord[Any]) -> tuple[str, str, str, int]:
    """What one session of profiling is about."""
    return case.device, case.hardware, case.model, case.batch_size


def _total(costs: Sequence[CostRecord]) -> CostRecord:
    """All of them; the repeats are of the point that has most."""
    return CostRecord(
        sessions=sum(cost.sessions for cost in costs),
        binaries=sum(cost.binaries for cost in costs),
        compile_s=sum(cost.compile_s for cost in costs),
        points=sum(cost.points for cost in costs),
        repeats=max((cost.repeats for cost in costs), default=0),
        measure_s=sum(cost.measure_s for cost in costs),
        total_s=sum(cost.total_s for cost in costs),
    )


def _time_chart(name: str, note: str, color: str, times: Times, estimated: dict[int, float]) -> Chart:
    buckets, title, y_title = list(times), f"{name} by bucket", f"{name}, ms"
    seconds = [value for value, _ in times.values()]
    values = milliseconds(seconds)
    ends = [
        None if error is None else (1e3 * (value - error), 1e3 * (value + error)) for value, error in times.values()
    ]
    series = [build.treads(name, buckets, values, "bucket {x}: {y:.4g} ms", color=color, ends=ends)]
    if estimated:
        times_ms = milliseconds(list(estimated.values()))
        series.append(build.line(BY_COMPILER, list(estimated), times_ms, "bucket {x}: {y:.4g} ms", index=2))
    columns: build.Columns[int] = (
        ("bucket", lambda bucket: str(bucket)),
        (f"{name} ms", lambda bucket: number_text.milliseconds(times[bucket][0])),
        ("± standard error ms", lambda bucket: number_text.milliseconds(times[bucket][1])),
        (f"{BY_COMPILER}, ms", lambda bucket: number_text.milliseconds(estimated.get(bucket))),
    )
    return build.chart(
        title,
        f"{name} of buckets {', '.join(map(str, buckets))}: {number_text.milliseconds(seconds[0])} ms in the smallest, "
        f"{number_text.milliseconds(seconds[-1])} ms in the largest.",
        (note, definitions.STANDARD_ERROR, *((ESTIMATED,) if estimated else ())),
        series,
        (log_axis("bucket b, tokens", buckets), axis(y_title, from_zero=True)),
        build.table(title, columns if estimated else columns[:-1], buckets),
        legend=bool(estimated),
    )
