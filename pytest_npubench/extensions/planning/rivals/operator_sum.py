"""The sum of operators: each timed alone, interpolated over lengths, added up over the layers of every step.

    prefill(l) = embed(l) + L (project + attend + output + feed_forward)(l) + head
    step(c)    = embed + L (project + output + feed_forward) + L attend(c) + head
    E2E        = sum_i prefill(l_i) + sum_t step(c_t), c_t the mean KV length of the rows that still run

It is how Vidur (arXiv 2405.05465) and LLMServingSim 2.0 predict: operators that see tokens are priced by their number,
attention by the lengths it sees, straight lines lie between the lengths that were timed. These are the buckets, since a
length between them would be a binary of its own; so latency has no stairs here, and what a compiler makes of operators
that follow each other is not in it.

Worked number: a step of embed 0.1, project 0.2, output 0.1, feed_forward 0.4 and head 0.5 ms, attention 0.1 ms at 128
tokens and 0.3 ms at 256, two layers: at 192 tokens 0.1 + 2 * 0.7 + 2 * 0.2 + 0.5 = 2.4 ms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np

from pytest_npubench.core.measurement import CostRecord, Phase, Request
from pytest_npubench.core.parts import OPERATORS, Part
from pytest_npubench.errors import MeasurementError
from pytest_npubench.predictors.protocol import Predictor, ProfileSamples
from pytest_npubench.predictors.two_point import count_cost
from pytest_npubench.predictors.work import FloatArray

ONCE = (OPERATORS[0], OPERATORS[-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Operators:
    """Seconds of a prefill of a prompt and of a decode step at each bucket [num_buckets], straight lines between them;
    both times their factor."""

    buckets: tuple[int, ...]
    prefill_s: tuple[float, ...]
    step_s: tuple[float, ...]
    prefill_shared: bool
    prefill_factor: float = 1.0
    step_factor: float = 1.0

    def prefills_s(self, input_tokens: Sequence[int]) -> float:
        """Of these prompts one by one, or of the longest where a batch has one prefill."""
        lengths = [max(input_tokens)] if self.prefill_shared else input_tokens
        return self.prefill_factor * float(np.interp(lengths, self.buckets, self.prefill_s).sum())

    def steps_s(self, kv_tokens: FloatArray) -> float:
        """Of steps at these KV lengths."""
        return self.step_factor * float(np.interp(kv_tokens, self.buckets, self.step_s).sum())

    def predict(self, batch: Sequence[Request]) -> float:
        return self.prefills_s([one.input_tokens for one in batch]) + self.steps_s(_mean_kv_tokens(batch))

    def corrected(self, *, prefill_factor: float, step_factor: float) -> Operators:
        return replace(self, prefill_factor=prefill_factor, step_factor=step_factor)


class OperatorSum(Predictor):
    name = "operator_sum"
    about = "every operator timed alone, interpolated over lengths and added up (Vidur, LLMServingSim 2.0)"

    def parts(self, buckets: Sequence[int]) -> tuple[Part, ...]:
        """The parts whose times add up to all steps of these buckets."""
        every = (
            _part(operator, phase, bucket, min(buckets))
            for phase in Phase
            for bucket in buckets
            for operator in OPERATORS
        )
        return tuple(dict.fromkeys(every))

    def fit(self, samples: ProfileSamples) -> Operators:
        """Raises MeasurementError where operators were not timed."""
        if not samples.parts.parts_s:
            raise MeasurementError(samples.parts.why_not)
        return Operators(
            buckets=samples.buckets,
            prefill_s=tuple(_step_s(samples, Phase.PREFILL, bucket) for bucket in samples.buckets),
            step_s=tuple(_step_s(samples, Phase.DECODE, bucket) for bucket in samples.buckets),
            prefill_shared=samples.prefill_shared,
        )

    def cost(self, samples: ProfileSamples) -> CostRecord:
        """A binary and a point for each operator and length."""
        points = {part: samples.parts.of(part) for part in self.parts(samples.buckets)}
        return count_cost(samples.parts.operator_compiles, points, sessions=1)


def _part(operator: str, phase: Phase, bucket: int, smallest: int) -> Part:
    """The part whose time an operator has in a bucket: an operator that lengths do not change is timed in the smallest
    bucket alone. A prompt's head has one row, and in a decode step only attention depends on the cache's length."""
    follows_length = operator != "head" if phase is Phase.PREFILL else operator == "attend"
    return Part(phase=phase, bucket=bucket if follows_length else smallest, operator=operator)


def _step_s(samples: ProfileSamples, phase: Phase, bucket: int) -> float:
    """Of a whole step, layers and all."""
    return sum(
        fmean(samples.parts.of(_part(operator, phase, bucket, samples.buckets[0])))
        * (1 if operator in ONCE else samples.parts.num_layers)
        for operator in OPERATORS
    )


def _mean_kv_tokens(batch: Sequence[Request]) -> FloatArray:
    """Of every decode step, over the rows that still run."""
    steps = np.arange(max(one.output_tokens for one in batch) - 1)
    inputs = np.array([one.input_tokens for one in batch], dtype=float)[:, None]
    runs = steps[None, :] < np.array([one.output_tokens - 1 for one in batch])[:, None]
    mean: FloatArray = np.where(runs, inputs + steps + 1, 0.0).sum(axis=0) / runs.sum(axis=0)
    return mean


PREDICTOR = OperatorSum()
