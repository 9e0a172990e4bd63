"""The serving decoder's layers for one size, and whether all that is loaded with it fits the device's memory.

Fails where a layer's experts, or its keys and values, are copied: a grouped product of a slice of the stack
(lax.ragged_dot) reads every expert of the layer and writes it again, whatever the router chose.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pytest_npubench.campaign.points import Measured
from pytest_npubench.core.case import Axes, Case
from pytest_npubench.extensions.compilers.compiled.runtime import TITLE
from pytest_npubench.extensions.compilers.suites.compiled.binaries import exact_metrics
from pytest_npubench.extensions.compilers.suites.compiled.plan import BinaryVisit
from pytest_npubench.extensions.compilers.suites.compiled.serving import ServingBinariesPlan, ServingBinaryPoint
from pytest_npubench.extensions.compilers.suites.programs import (
    failed,
    fit_words,
    gigabytes,
    last_visit,
    refused,
    verdict,
)
from pytest_npubench.verdict.result import Judgement, Metric


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingBinaryDetail:
    """A size, and of each device what the compiler counted. need_bytes: weights, state, the code of this size and all
    smaller ones, and the largest temporary; layer_cycles: the compiler's estimate of one layer, kernels left out."""

    num_single_tokens: int
    num_prefill_tokens: int
    need_bytes: float
    room_bytes: float | None
    state_bytes: float
    temporary_bytes: float
    code_bytes: float
    layer_cycles: float | None
    compile_cpu_s: float


class ServingBinaryKind:
    name = "serving"
    suite = "compiled"

    def axes(self, plan: ServingBinariesPlan) -> Iterable[Axes]:
        return ((("tokens", point.length),) for point in plan.points)

    def points(self, case: Case, plan: ServingBinariesPlan) -> tuple[ServingBinaryPoint, ...]:
        """This size and all smaller ones."""
        return tuple(point for point in plan.points if point.length <= int(case.axis("tokens")))

    def settled(self, case: Case, plan: ServingBinariesPlan, measured: Measured) -> bool:
        return True

    def judge(self, case: Case, plan: ServingBinariesPlan, measured: Measured) -> Judgement:
        points = self.points(case, plan)
        if reason := refused(points, measured):
            return failed(reason)
        every = [last_visit(measured, point, BinaryVisit) for point in points]
        facts, size, room_bytes = every[-1], points[-1].size, plan.spec.device_memory_bytes
        needed_bytes = _need_bytes(every)
        too_much, fits = fit_words(needed_bytes, room_bytes)
        return Judgement(
            verdict=verdict([*_wrong(facts, plan.state_bytes), *too_much], [f"{TITLE}: {fits} with all smaller sizes"]),
            what=f"layers for {size.num_single} single and {size.num_prefill} prompt tokens",
            metrics=(
                *exact_metrics("layers", _figures(facts)),
                Metric(name="need_bytes", unit="B", value=needed_bytes, gate="exact"),
            ),
            detail=ServingBinaryDetail(
                num_single_tokens=size.num_single,
                num_prefill_tokens=size.num_prefill,
                need_bytes=needed_bytes,
                room_bytes=room_bytes,
                state_bytes=plan.state_bytes,
                temporary_bytes=facts.temporary_bytes or 0.0,
                code_bytes=facts.code_bytes or 0.0,
                layer_cycles=facts.cycles,
                compile_cpu_s=facts.compile_cpu_s,
            ),
        )


def _need_bytes(every: Sequence[BinaryVisit]) -> float:
    """Outputs that are no argument's buffer come on top."""
    return (
        max(facts.argument_bytes + facts.output_bytes - facts.aliased_bytes for facts in every)
        + max(facts.temporary_bytes or 0.0 for facts in every)
        + sum(facts.code_bytes or 0.0 for facts in every)
    )


def _figures(facts: BinaryVisit) -> Sequence[tuple[str, str, float | None]]:
    return (
        ("cycles", "cycles", facts.cycles),
        ("code_bytes", "B", facts.code_bytes),
        ("temporary_bytes", "B", facts.temporary_bytes),
        ("cache_copies", "", facts.cache_copies),
        ("expert_copies", "", facts.expert_copies),
    )


def _wrong(facts: BinaryVisit, state_bytes: float) -> list[str]:
    """What the layers do that they should not. state_bytes: of the state, whether it was donated or not."""
    problems = []
    in_place_bytes = max(state_bytes, facts.donated_bytes)
    if facts.aliased_bytes < in_place_bytes:
        copied = gigabytes(in_place_bytes - facts.aliased_bytes)
        problems.append(f"{copied} of keys, values and hidden states are not written in place")
    if facts.modules > 1:
        problems.append(f"they lower to {facts.modules:.0f} modules: a plan is compiled into them")
    if facts.cache_copies:
        problems.append(f"{facts.cache_copies:.0f} copies of a layer's keys and values")
    if facts.expert_copies:
        problems.append(f"{facts.expert_copies:.0f} copies of a layer's experts")
    return problems


KIND = ServingBinaryKind()
