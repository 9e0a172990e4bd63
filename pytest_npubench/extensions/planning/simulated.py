"""Rounds that were served, predicted on a virtual clock by a cost that was calibrated on the other rounds.

One cost is fitted to the iterations of all policies in the calibration rounds, without peaks; which experts ran is
taken from there, too. How slow each of these blocks was, measured over predicted seconds of its iterations, tells what
the machine's speed does between rounds, and on the mean over rounds what the form misses of a policy; for iterations
with prompt tokens and for those that only decode apart.

A further block may be as slow as any of them would have been under its policy, so it is predicted by a run at the speed
of each: queues grow more on a slow machine than they shrink on a fast one, and a mean speed would promise too much. Its
band are runs at both ends of the intervals that hold its own speed.

Worked example: blocks of two rounds took 1.00 and 1.20 times what one cost says. A further block is predicted as the
mean of two runs, and the interval of its speed is known as badly as two rounds tell it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np

from pytest_npubench.campaign.served_block import ServedBlock
from pytest_npubench.engines.kv_capacity import dtype_bytes
from pytest_npubench.errors import MeasurementError
from pytest_npubench.extensions.planning.rounds_spread import half_width, most_misses
from pytest_npubench.extensions.planning.virtual.calibrated import CalibratedCost
from pytest_npubench.extensions.planning.virtual.calibration import MEAN_SCALE
from pytest_npubench.extensions.planning.virtual.drift import calibrate_blocks
from pytest_npubench.extensions.planning.virtual.executor import VirtualExecutor
from pytest_npubench.extensions.planning.virtual.measured_router import MeasuredRouter
from pytest_npubench.extensions.planning.virtual.router import ExpertRouter
from pytest_npubench.extensions.planning.virtual.step_calibration import StepSamples, samples_of
from pytest_npubench.extensions.planning.virtual.step_cost import StepCost, StepWork
from pytest_npubench.serving.clock import VirtualClock
from pytest_npubench.serving.load import OpenLoad
from pytest_npubench.serving.loop import serve
from pytest_npubench.serving.metrics import RequestRecord
from pytest_npubench.serving.request import ServingRequest
from pytest_npubench.serving.result import ServingResult
from pytest_npubench.stats.checks import FloatArray
from pytest_npubench.suites.scheduling.figures import mean_e2e_s, mean_ttft_s
from pytest_npubench.suites.scheduling.plan import ServingPlan
from pytest_npubench.suites.scheduling.points import ServedPoint
from pytest_npubench.suites.scheduling.policies import scheduler_of
from pytest_npubench.suites.scheduling.service import service_of

Blocks = Mapping[ServedPoint, Sequence[ServedBlock]]
"""Of each point one a round."""


def mean_tpot_s(block: ServedBlock) -> float:
    """Of the requests with two tokens and more. Raises MeasurementError where there is none."""
    tpots_s = [tpot_s for record in block.records if (tpot_s := record.tpot_s) is not None]
    if not tpots_s:
        raise MeasurementError("no request of a block has two tokens; want longer answers")
    return fmean(tpots_s)


FIGURES: Mapping[str, Callable[[ServedBlock], float]] = {"ttft": mean_ttft_s, "tpot": mean_tpot_s, "e2e": mean_e2e_s}
NUM_RUNS = 12
JOURNAL_S = 0.5e-6  # half of the last digit that a journal keeps


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """Mean TTFT, TPOT or E2E of one block, with the ends of its band; seconds."""

    predicted_s: float
    low_s: float
    high_s: float
    measured_s: float

    @property
    def is_covered(self) -> bool:
        return self.low_s <= self.measured_s <= self.high_s

    @property
    def error(self) -> float:
        return self.predicted_s / self.measured_s - 1

    @property
    def half_width(self) -> float:
        """Half of the band, over what was measured."""
        return (self.high_s - self.low_s) / 2 / self.measured_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """A block as it was served, the runs at the speeds of others, and those at both ends of the band."""

    policy: str
    measured: ServedBlock
    predicted: tuple[ServedBlock, ...]
    low: ServedBlock
    high: ServedBlock

    @property
    def requests(self) -> tuple[Sequence[RequestRecord], Sequence[Sequence[RequestRecord]]]:
        """Measured, and predicted by each run."""
        return self.measured.records, [run.records for run in self.predicted]

    def figure(self, name: str) -> Figure:
        """Of FIGURES."""
        of = FIGURES[name]
        return Figure(
            predicted_s=fmean(map(of, self.predicted)),
            low_s=of(self.low),
            high_s=of(self.high),
            measured_s=of(self.measured),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Slowed:
    """A step cost whose iterations take so many times as long, with prompt tokens in them and without. pads_context:
    decode rows read as many keys and values as the longest of them."""

    cost: CalibratedCost
    prompt: float
    decode: float
    pads_context: bool

    def seconds(self, work: StepWork) -> float:
        if self.pads_context:
            work = work._replace(context_tokens=work.decode_rows * work.longest_context)
        has_prompt = any(one.prefill for one in work.passes)
        return self.cost.seconds(work) * (self.prompt if has_prompt else self.decode)


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedRounds:
    """cost and router as the rounds have them; prompt and decode: logarithms of measured over predicted seconds of the
    iterations with prompt tokens and of those that only decode, [rounds, points]."""

    points: tuple[ServedPoint, ...]
    cost: CalibratedCost
    router: MeasuredRouter | None
    prompt: FloatArray
    decode: FloatArray

    @classmethod
    def of(cls, plan: ServingPlan, blocks: Blocks) -> CalibratedRounds:
        """Raises ConfigError where the iterations do not tell the cost."""
        shape = plan.shape
        samples = [[_samples(plan, block) for block in own] for own in blocks.values()]
        cost = calibrate_blocks(shape, [one for own in samples for one in own]).best
        logs = [block.log for own in blocks.values() for block in own]
        slow = np.array([[_slow(cost, one) for one in own] for own in samples])
        return cls(
            points=tuple(blocks),
            cost=cost,
            router=None if shape.is_dense else MeasuredRouter.of(logs, shape.num_layers),
            prompt=slow[:, :, 0].T,
            decode=slow[:, :, 1].T,
        )

    def most_misses(self, coverage: float) -> int:
        """Of these blocks, each held against the band of the other rounds: what chance exceeds once in a hundred
        times."""
        return max(most_misses(one, coverage, known_sd=MEAN_SCALE) for one in (self.prompt, self.decode))

    def predicted(
        self, plan: ServingPlan, point: ServedPoint, block: ServedBlock, coverage: float, first: int = 0
    ) -> Prediction:
        """Of a block of another round. first: which speed the first run has; with another one for each round the first
        runs of all of them have several speeds, as what was served has, and so have the second. Raises MeasurementError
        for a calibration on one round."""
        ends = [_ends(one, coverage) for one in (self.prompt, self.decode)]
        low, high = (self._served(plan, point, block, *both) for both in zip(*ends, strict=True))
        # evenly over rounds and policies
        speeds = [as_of_policy(one, self.points.index(point)).ravel() for one in (self.prompt, self.decode)]
        every = np.exp(np.stack(speeds, axis=1))
        number = min(NUM_RUNS, len(every))
        chosen = every[np.arange(number) * len(every) // number].tolist()
        return Prediction(
            policy=point.policy,
            measured=block,
            predicted=tuple(self._served(plan, point, block, *chosen[(first + run) % number]) for run in range(number)),
            low=low,
            high=high,
        )

    def _served(
        self, plan: ServingPlan, point: ServedPoint, block: ServedBlock, prompt: float, decode: float
    ) -> ServedBlock:
        pads_context = service_of(plan).pads_context(plan)
        cost = Slowed(cost=self.cost, prompt=prompt, decode=decode, pads_context=pads_context)
        requests = [_request(record) for record in block.records]
        return ServedBlock.of_result(
            served_under(plan, point, requests, cost, self.router), rate_per_s=block.rate_per_s
        )


def served_under(
    plan: ServingPlan,
    point: ServedPoint,
    requests: Sequence[ServingRequest],
    cost: StepCost,
    router: ExpertRouter | None,
) -> ServingResult:
    """Requests under a point's policy on a virtual clock. Raises as serve."""
    serving = plan.serving
    executor = VirtualExecutor(
        plan.shape,
        None,
        tensor_parallel=1,
        dtype=serving.dtype,
        kv_capacity_tokens=serving.kv_capacity_tokens,
        block_size_tokens=serving.block_size_tokens,
        cost=cost,
        router=router,
    )
    return serve(OpenLoad(requests), scheduler_of(plan, point), executor, VirtualClock())


def leave_one_out(plan: ServingPlan, blocks: Blocks, coverage: float) -> tuple[tuple[Prediction, ...], ...]:
    """Of each round every block, predicted from all other rounds. Raises ConfigError, MeasurementError where these do
    not tell."""
    (num_rounds,) = {len(own) for own in blocks.values()}
    predictions: list[tuple[Prediction, ...]] = []
    for left_out in range(num_rounds):
        others = {point: [*own[:left_out], *own[left_out + 1 :]] for point, own in blocks.items()}
        calibrated = CalibratedRounds.of(plan, others)
        predictions.append(
            tuple(calibrated.predicted(plan, point, own[left_out], coverage, left_out) for point, own in blocks.items())
        )
    return tuple(predictions)


def _samples(plan: ServingPlan, block: ServedBlock) -> StepSamples:
    token_bytes = plan.shape.kv_bytes_per_token(dtype_bytes(plan.serving.dtype))
    arrivals_s = [record.arrival_s for record in block.records]
    seen = samples_of(block.log, plan.shape, kv_token_bytes=token_bytes, arrivals_s=arrivals_s)
    return replace(seen, context=seen.decode * _longest(block)) if service_of(plan).pads_context(plan) else seen


def _longest(block: ServedBlock) -> FloatArray:
    """Of each iteration, the keys and values that the decode row reads which reads most: tokens come at its end."""
    ends_s = np.array(block.log.end_s)
    longest = np.zeros(len(ends_s))
    for record in block.records:
        times_s = np.array(record.token_times_s[1:])
        at = np.minimum(np.searchsorted(ends_s, times_s - JOURNAL_S), len(ends_s) - 1)
        np.maximum.at(longest, at, (record.prompt_tokens or 0) + 1.0 + np.arange(len(times_s)))
    return longest


def _slow(cost: CalibratedCost, samples: StepSamples) -> tuple[float, float]:
    """With prompt tokens and without; where there are none of one sort, all of them."""
    parts = [samples.chosen(samples.prompt > 0), samples.chosen(samples.prompt == 0)]
    with_prompt, without = (part if len(part.seconds) else samples for part in parts)
    return with_prompt.slow(cost), without.slow(cost)


def as_of_policy(slow: FloatArray, column: int) -> FloatArray:
    """Speeds [rounds, policies] as one of these policies would have had them: what the form misses of a policy it
    misses in every round.

    The policies' differences shrink by what rounds of this spread would show of equal policies (Efron and Morris,
    1973). Worked example: policies at 1.00 and 1.10 in each of many rounds: for the second one all speeds are 1.10.
    """
    num_rounds, num_policies = slow.shape
    if num_policies == 1 or num_rounds == 1:
        return slow
    apart = slow.mean(axis=0) - slow.mean()
    left = slow - slow.mean(axis=1, keepdims=True) - apart
    noise = float((left**2).sum()) / ((num_rounds - 1) * (num_policies - 1)) / num_rounds
    seen = float((apart**2).sum()) / (num_policies - 1)
    believed = apart * (1.0 - min(1.0, noise / seen)) if seen else apart
    speeds: FloatArray = slow - believed + believed[column]
    return speeds


def _ends(slow: FloatArray, coverage: float) -> tuple[float, float]:
    """How many times as long a further block's iterations take at least, and at most."""
    middle, half = float(slow.mean()), float(half_width(slow, coverage, known_sd=MEAN_SCALE))
    return math.exp(middle - half), math.exp(middle + half)


def _request(record: RequestRecord) -> ServingRequest:
    assert record.prompt_tokens is not None
    assert record.output_tokens is not None
    return ServingRequest(
        id=record.id,
        arrival_s=record.arrival_s,
        prompt_tokens=record.prompt_tokens,
        output_tokens=record.output_tokens,
    )
