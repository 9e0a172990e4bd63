"""What the points of a serving case did, by the counters of its engine, and times that are too short for it.

A prompt alone and a batch of decode steps repeat exactly, and their counters are told as they are; of blocks those
shares that repeat (campaign/served_metrics.py).

Worked example: a decode step of 8 requests that activates 40 experts of 9.4 MB reads 378 MB of them and all other
weights; none of it is faster than that at the peak of memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import ceil

from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.served_block import ServedBlock
from pytest_npubench.campaign.served_metrics import block_work, prefilled
from pytest_npubench.core.bounds import Bound, bound, peaks_of, too_fast
from pytest_npubench.engines.kv_capacity import dtype_bytes
from pytest_npubench.errors import MeasurementError, NpubenchError
from pytest_npubench.suites.scheduling.plan import ServingPlan
from pytest_npubench.suites.scheduling.points import (
    DecodePoint,
    DecodeSteps,
    PromptPoint,
    PromptVisit,
    ServedPoint,
    ServingPoint,
)


def work_of(points: Sequence[ServingPoint], measured: Measured) -> dict[str, float]:
    """Counts the work of the points' blocks, and of a visit of each prompt and decode batch; none of a failed point."""
    work: dict[str, float] = {}
    blocks: list[ServedBlock] = []
    for point in dict.fromkeys(points):
        try:
            match point:
                case ServedPoint():
                    blocks += [block for (block,) in measured.visits(point.name, ServedBlock)]
                case PromptPoint():
                    ((prompt,), *_) = measured.visits(point.name, PromptVisit)
                    _add(work, {"expert load bytes": prompt.expert_load_bytes})
                case DecodePoint():
                    ((steps,), *_) = measured.visits(point.name, DecodeSteps)
                    activations = sum(steps.expert_activations)
                    _add(work, {"decode steps": len(steps.step_s), "expert activations": activations})
        except MeasurementError:  # the case says so
            continue
    return {**block_work(blocks), **work}


def impossible(plan: ServingPlan, points: Sequence[ServingPoint], measured: Measured) -> str:
    """Why a visit of these points cannot have done its work, in words, of the first such point; else empty."""
    peaks = peaks_of(plan.spec, plan.serving.dtype)
    if peaks.flops_per_s is None and peaks.bytes_per_s is None:
        return ""
    for point in dict.fromkeys(points):
        for seconds, least in _times(plan, point, measured):
            if reason := too_fast(seconds, least, peaks):
                return f"{reason} ({point.name})"
    return ""


def _times(plan: ServingPlan, point: ServingPoint, measured: Measured) -> Iterator[tuple[float, Bound]]:
    """Yields seconds of what the visits of a point did, each with the least that it takes."""
    try:
        match point:
            case ServedPoint():
                for (block,) in measured.visits(point.name, ServedBlock):
                    yield block.duration_s, _least_of_block(plan, block)
            case PromptPoint():
                num_passes = ceil(point.prompt_tokens / point.chunk_size_tokens)
                for (prompt,) in measured.visits(point.name, PromptVisit):
                    yield (
                        prompt.prefill_s,
                        _least(plan, point.prompt_tokens, 0, 0, prompt.expert_load_bytes, num_passes),
                    )
            case DecodePoint():
                expert = plan.shape.expert_bytes(dtype_bytes(plan.serving.dtype))
                for (steps,) in measured.visits(point.name, DecodeSteps):
                    for step_s, activations in zip(steps.step_s, steps.expert_activations, strict=True):
                        yield step_s, _least(plan, 0, point.batch_size, 1, activations * expert, 1)
    except NpubenchError:  # a point that failed, as the case says; a model or dtype whose work cannot be counted
        return


def _least_of_block(plan: ServingPlan, block: ServedBlock) -> Bound:
    decoded, log = block.log.num_decode, block.log
    steps = sum(1 for number in decoded if number)
    return _least(plan, prefilled(block), sum(decoded), steps, block.expert_load_bytes, len(log))


def _least(
    plan: ServingPlan, prompt_tokens: float, decoded: int, num_steps: int, expert_load_bytes: float, num_passes: int
) -> Bound:
    """Bounds tokens that run through all layers; decode steps read the vocabulary and the weights outside experts."""
    shape = plan.shape
    head = shape.vocab_size * shape.hidden
    layers = shape.num_active_parameters - head
    shared = (shape.num_layers * shape.shared_parameters_per_layer + head) * dtype_bytes(plan.serving.dtype)
    flops = 2.0 * (layers * (prompt_tokens + decoded) + head * decoded)
    return bound(flops, expert_load_bytes + num_steps * shared, peaks_of(plan.spec, plan.serving.dtype), num_passes)


def _add(work: dict[str, float], more: Mapping[str, float]) -> None:
    for name, number in more.items():
        work[name] = work.get(name, 0.0) + number
