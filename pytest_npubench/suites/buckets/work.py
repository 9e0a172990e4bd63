"""What the points of a case did in one visit of each, as the engine ran it, and times that are too short for it.

A point's counts come from the segments that its engine timed, never from the plan: an engine that runs half of the
steps shows half. FLOP and bytes are those of its binaries, by XLA's cost analysis, times how often each ran.

Worked example: a batch of two prompts and 8 steps in bucket 128 is 2 prefills, 8 decode steps, prefill-128 2,
decode-128 8. With 3.2e9 FLOP a prefill and 5e7 a step it is 6.8e9 FLOP.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from pytest_npubench.campaign.points import Measured
from pytest_npubench.core.bounds import Bound, Peaks, bound, peaks_of, too_fast
from pytest_npubench.core.measurement import TOKENS, CompileRecord, Phase, Request
from pytest_npubench.errors import NpubenchError
from pytest_npubench.predictors.profile import BucketTiming
from pytest_npubench.suites.buckets.binding import decode_work, prefill_work
from pytest_npubench.suites.buckets.plan import BucketPlan
from pytest_npubench.suites.buckets.points import BucketPoint, ran_in

TOTALS = {Phase.PREFILL.value: "prefills", Phase.DECODE.value: "decode steps", "move": "moves", TOKENS: TOKENS}
"""By the head of a binary's name, under which all buckets of it are added up."""
COSTS = {"FLOP": "flops", "bytes": "accessed_bytes"}


def work_of(points: Sequence[object], measured: Measured) -> dict[str, float]:
    """One visit of each of the points, added up; empty where no engine counted anything."""
    totals: Counter[str] = Counter()
    binaries: Counter[str] = Counter()
    costs = dict.fromkeys(COSTS, 0.0)
    for point in _bucket_points(points):
        prefix = "" if point.variant is None else point.variant.prefix
        for name, number in _ran(point, measured).items():
            totals[TOTALS[name.partition("-")[0]]] += number
            if name != TOKENS:
                binaries[name] += number
                record = _binary(measured.compiles, prefix, name)
                for what, field in COSTS.items():
                    each = None if record is None else getattr(record, field)
                    costs[what] += math.nan if each is None else number * each
    told_costs = {what: cost for what, cost in costs.items() if cost > 0}  # where one is not told, the sum is none
    in_order = {name: float(totals[name]) for name in TOTALS.values() if totals[name]}
    return {**in_order, **dict(sorted(binaries.items())), **told_costs}


def impossible(plan: BucketPlan, points: Sequence[object], measured: Measured) -> str:
    """Why a visit of these points cannot have done its work, in words, of the first such point; else empty."""
    reasons = (_impossible(plan, point, measured) for point in _bucket_points(points))
    return next(filter(None, reasons), "")


def impossible_timing(plan: BucketPlan, requests: Sequence[Request], timing: BucketTiming) -> str:
    """Says the same of TTFT and TBT that were derived from batches of these requests. Of a time that is known within an
    error its upper end counts."""
    if (peaks := _peaks(plan)) is None:
        return ""
    num_prefills = 1 if plan.service.prefill_shared else len(requests)
    prefill = least_prefill(plan, requests[:1] if num_prefills > 1 else requests, peaks)
    step = least_decode(plan, [Request(input_tokens=one.input_tokens, output_tokens=2) for one in requests], peaks)
    for name, value_s, error_s, least in (
        ("TTFT", timing.ttft_s, timing.ttft_error_s, prefill),
        ("TBT", timing.tbt_s, timing.tbt_error_s, step),
    ):
        if value_s is not None and (reason := too_fast(value_s + 2 * (error_s or 0.0), least, peaks)):
            return f"{reason} ({name})"
    return ""


def least_prefill(plan: BucketPlan, requests: Sequence[Request], peaks: Peaks) -> Bound:
    """Bounds the prefill of all prompts, padded where the engine pads. A pass of several prompts reads weights once."""
    service, lengths = plan.service, [request.input_tokens for request in requests]
    together = service.prefill_shared or service.pads_as_it_will
    if not service.pads_as_it_will:
        lengths = [plan.keys.prefill_key(length) for length in lengths]
    num_passes = 1 if together else len(lengths)
    flops, num_bytes = prefill_work(plan, lengths, num_passes)
    return bound(flops, num_bytes, peaks, num_passes)


def least_decode(plan: BucketPlan, requests: Sequence[Request], peaks: Peaks) -> Bound:
    """Bounds all decode steps, of the rows that still generate, at the true length of each row's keys and values.

    A row of l_in tokens makes n = l_out - 1 steps, which attend to l_in + 1 to l_in + n tokens: n l_in + n (n + 1) / 2.
    """
    steps = [request.output_tokens - 1 for request in requests]
    if not (num_steps := max(steps)):
        return Bound()
    kv_tokens = sum(one.input_tokens * n + n * (n + 1) // 2 for one, n in zip(requests, steps, strict=True))
    flops, num_bytes = decode_work(plan, sum(steps), kv_tokens, num_steps)
    return bound(flops, num_bytes, peaks, num_steps)


def _bucket_points(points: Iterable[object]) -> Iterator[BucketPoint]:
    """Each once, without those that serve requests as they arrive."""
    return (point for point in dict.fromkeys(points) if isinstance(point, BucketPoint) and point.workload is None)


def _ran(point: BucketPoint, measured: Measured) -> Mapping[str, int]:
    return ran_in((*measured.rounds, *measured.disturbed_rounds), point.name)


def _binary(compiles: Iterable[CompileRecord], prefix: str, name: str) -> CompileRecord | None:
    """Finds a binary by the end of its name: "decode-128" is called "decode-MODEL-b2-128"."""
    kind, _, buckets = name.partition("-")
    of_kind = (record for record in compiles if record.name.startswith(f"{prefix}{kind}-"))
    return next((record for record in of_kind if record.name.endswith(f"-{buckets}")), None)


def _peaks(plan: BucketPlan) -> Peaks | None:
    """Returns the peaks; None where the work cannot be counted: without a dense shape, or in another engine's dtype."""
    from pytest_npubench.engines.jax_dense.memory import dtype_bytes
    from pytest_npubench.engines.shapes import dense_shape

    try:
        dense_shape(plan.model)
        dtype_bytes(plan.spec.dtype)
    except NpubenchError:
        return None
    return peaks_of(plan.spec, plan.spec.dtype)


def _least_of_kernel(plan: BucketPlan, kernel: str) -> tuple[Bound, Peaks]:
    """Bounds a canary kernel, which every device runs whole. OpenVINO's have other sizes; others are not counted."""
    from pytest_npubench.engines.canary_kernels import sizes

    family = plan.spec.family
    size, dtype = sizes(family), "fp32" if family == "cpu" else "bf16"
    peaks = peaks_of(replace(plan.spec, tensor_parallel=1), dtype)
    if family == "openvino":
        return Bound(), peaks
    work = {"matmul": (2.0 * size.matmul_rows**3, 0.0), "copy": (0.0, 2.0 * size.copy_bytes)}
    return bound(*work.get(kernel, (0.0, 0.0)), peaks), peaks


def _impossible(plan: BucketPlan, point: BucketPoint, measured: Measured) -> str:
    times_s = [value for row in measured.rounds for value in row.get(point.name, ())]
    if point.kernel and times_s:
        reason = too_fast(min(times_s), *_least_of_kernel(plan, point.kernel))
        return reason and f"{reason} ({point.name})"
    if not point.requests or not times_s:
        return ""
    wanted = sum(request.output_tokens for request in point.requests)
    if (came := _ran(point, measured).get(TOKENS, wanted)) < wanted:
        return f"{came} tokens came back where {wanted} were asked for: work was left out ({point.name})"
    plan, requests = plan if point.variant is None else plan.of(point.variant), point.requests
    if (peaks := _peaks(plan)) is None:
        return ""
    least = least_prefill(plan, requests, peaks) + least_decode(plan, requests, peaks)
    reason = too_fast(min(times_s), least, peaks)
    return reason and f"{reason} ({point.name})"
