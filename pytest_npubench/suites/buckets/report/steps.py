"""What steps cases show: prefill by length around the boundaries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_npubench.reports import build, number_text
from pytest_npubench.reports.page import Chart
from pytest_npubench.reports.plot_parts import BLUE, RED, DrawnSeries, axis, log_axis, milliseconds
from pytest_npubench.suites.buckets.kinds.steps import Jump, StepsDetail
from pytest_npubench.verdict.case_record import CaseRecord

STEPS = (
    "Prefill time of one prompt at lengths around each bucket boundary (dotted): latency should jump there and "
    "nowhere else."
)
SLOPE = (
    "Prefill time of one prompt at lengths around each nominal bucket boundary (dotted), on an engine that pads "
    "nothing: latency rises with every token, and a jump between two lengths one token apart is a stair."
)
HOVER = "{x} tokens: {y:.4g} ms"


def steps_chart(cases: Sequence[CaseRecord[StepsDetail]], profile_s: Mapping[int, float] | None = None) -> Chart | None:
    """Prefill seconds by length, from all steps cases together, over the TTFT of each bucket in the LENS profile."""
    details = sorted((case.detail for case in cases), key=lambda detail: detail.bucket)
    times_s = {int(length): seconds for detail in details for length, seconds in detail.lengths_s.items()}
    if not times_s:
        return None
    lengths, boundaries = sorted(times_s), [detail.bucket for detail in details]
    inside = [length for detail in details for length in _jumps_inside(detail) if length in times_s]
    in_profile = {bucket: seconds for bucket, seconds in sorted((profile_s or {}).items()) if bucket in boundaries}
    traces = [
        build.line(
            "prefill of one prompt", lengths, milliseconds(map(times_s.__getitem__, lengths)), HOVER, color=BLUE, size=7
        ),
    ]
    traces += _profile_treads(in_profile)
    if inside:
        seconds = milliseconds(map(times_s.__getitem__, inside))
        traces.append(build.marks("jump inside a bucket", inside, seconds, HOVER, color=RED, symbol="x", size=12))
    return build.chart(
        "Latency steps by length",
        f"Prefill time at {len(lengths)} lengths from {lengths[0]} to {lengths[-1]} tokens, with the bucket "
        f"boundaries {', '.join(map(str, boundaries))}; {len(inside)} jumps inside a bucket.",
        (SLOPE if all(detail.continuous for detail in details) else STEPS,),
        traces,
        (log_axis("length, tokens", boundaries), axis("prefill, ms", from_zero=True)),
        build.table(
            "Prefill by length",
            (
                ("length, tokens", lambda length: str(length)),
                ("prefill ms", lambda length: number_text.milliseconds(times_s[length])),
                ("bucket", lambda length: _bucket_name(length, boundaries)),
            ),
            lengths,
        ),
        verticals=boundaries,
        legend=bool(inside or in_profile),
        answer=_answer(details, times_s, len(inside)),
    )


def _profile_treads(in_profile: Mapping[int, float]) -> list[DrawnSeries]:
    if not in_profile:
        return []
    times = milliseconds(in_profile.values())
    return [build.treads("LENS: one time a bucket", list(in_profile), times, "bucket {x}: {y:.4g} ms", index=1)]


def _answer(details: Sequence[StepsDetail], times_s: Mapping[int, float], num_inside: int) -> str:
    shortest, longest = (number_text.time(times_s[end(times_s)]) for end in (min, max))
    if all(detail.continuous for detail in details):
        return f"Prefill has no steps: {shortest} at {min(times_s)} tokens, {longest} at {max(times_s)}"
    also = f", and {num_inside} more inside buckets" if num_inside else ""
    return f"Prefill takes {shortest} to {longest}, and jumps at the ends of {len(details)} buckets{also}"


def _jumps_inside(detail: StepsDetail) -> list[int]:
    """Returns the right ends of the jumps observed where no boundary is declared."""
    if detail.continuous:  # elsewhere a slope, not a jump
        return [left + 1 for left in detail.extra]
    observed = Jump.OBSERVED.value
    return [right for _, right, jump, _ in detail.jumps if jump == observed and right <= detail.bucket]


def _bucket_name(length: int, boundaries: Sequence[int]) -> str:
    return next((str(bucket) for bucket in boundaries if length <= bucket), f"above {boundaries[-1]}")
