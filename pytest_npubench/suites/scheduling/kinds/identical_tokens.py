"""The same requests give the same tokens under every policy: a policy decides when a token is computed, not which.

Greedy tokens of each request under layered and hybrid prefill, held against those under chunked prefill, by a checksum
of each request's. Blocks are those of the policy cases, so this costs nothing where these are measured.

In fp32 a difference fails the case: a row of hidden states was lost, doubled or taken for another's. In bf16 and
smaller types it is shown and not judged: the rows that are computed together change how sums are rounded, and one
rounding that goes the other way makes another token, from which on all are others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.served_block import ServedBlock
from pytest_npubench.core.case import Case
from pytest_npubench.errors import MeasurementError
from pytest_npubench.suites.scheduling.experiment import LoadExperiment, ServingDetail
from pytest_npubench.suites.scheduling.figures import blocks, check_whole
from pytest_npubench.suites.scheduling.plan import ServingPlan
from pytest_npubench.suites.scheduling.points import ServedPoint
from pytest_npubench.suites.scheduling.policies import served
from pytest_npubench.verdict import Gate, judge_gates
from pytest_npubench.verdict.result import Judgement, Metric

AGAINST = "chunked"
COMPARED = ("layered", "hybrid")
EXACT_DTYPE = "fp32"
NOT_JUDGED = "not judged: in {dtype} the rows that are computed together change how sums are rounded"
NUM_NAMED = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class IdenticalTokensDetail(ServingDetail):
    """By policy (round, index in its block) of the first requests whose tokens differ."""

    rate_per_s: float
    num_blocks: int
    num_requests: int
    dtype: str
    is_judged: bool
    round_and_request: Mapping[str, tuple[tuple[int, int], ...]]


class IdenticalTokensKind(LoadExperiment):
    name = "identical_tokens"

    def points(self, case: Case, plan: ServingPlan) -> tuple[ServedPoint, ...]:
        """Chunked, and those of the others that the profile serves; layered where it serves none."""
        others = [policy for policy in COMPARED if policy in plan.size.policies] or COMPARED[:1]
        return tuple(served(policy, plan, plan.load(case)) for policy in (AGAINST, *others))

    def judge(self, case: Case, plan: ServingPlan, measured: Measured) -> Judgement:
        chunked, *others = ((point.policy, blocks(measured, point)) for point in self.points(case, plan))
        different = {policy: _different(found, chunked[1]) for policy, found in others}
        num_requests = sum(len(block.records) for block in chunked[1])
        dtype, worst = plan.serving.dtype, max(map(len, different.values()))
        is_exact = dtype == EXACT_DTYPE
        gate = Gate(metric=f"requests with other tokens than under {AGAINST}", value=worst, limit=0)
        names = " and ".join(policy for policy, _ in others)
        return Judgement(
            verdict=judge_gates((gate,) if is_exact else ()),
            what=f"tokens of {num_requests} requests under {names} against {AGAINST}: {_in_words(different)}"
            + ("" if is_exact else f"; {NOT_JUDGED.format(dtype=dtype)}"),
            metrics=tuple(
                Metric(name=f"{policy}_requests_with_other_tokens", unit="", value=len(found), gate="none")
                for policy, found in different.items()
            ),
            detail=IdenticalTokensDetail(
                rate_per_s=chunked[1][0].rate_per_s,
                num_blocks=len(chunked[1]),
                num_requests=num_requests,
                dtype=dtype,
                is_judged=is_exact,
                round_and_request={policy: tuple(found[:NUM_NAMED]) for policy, found in different.items()},
            ),
        )


def _different(served: Sequence[ServedBlock], against: Sequence[ServedBlock]) -> list[tuple[int, int]]:
    """Round and index of each request whose tokens differ. Raises MeasurementError where requests failed, or where
    they have no checksums."""
    check_whole(served)
    check_whole(against)
    differing = []
    for number, (block, other) in enumerate(zip(served, against, strict=True)):
        if not len(block.tokens_crc) == len(other.tokens_crc) == len(block.records):
            raise MeasurementError(f"block {number} has no checksums of its tokens: it ran no tensors, or is older")
        pairs = enumerate(zip(block.tokens_crc, other.tokens_crc, strict=True))
        differing += [(number, index) for index, (left, right) in pairs if left != right]
    return differing


def _in_words(different: dict[str, list[tuple[int, int]]]) -> str:
    if not any(different.values()):
        return "identical"
    return ", ".join(f"{policy} differs in {len(found)}" for policy, found in different.items() if found)


KIND = IdenticalTokensKind()
