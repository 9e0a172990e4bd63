"""LENS where nothing is padded: the two points of a bucket lie on a slope, not on a stair.

An engine that packs prompts and keeps a paged KV cache (vLLM without graphs) takes as long as its lengths are. TTFT_b
and TBT_b are then what the lengths that were measured take, and what lies between is interpolated. All else is the
equations for ragged attention (LENS, arXiv 2606.18042, Eq. 7, 12 and 13): a prompt costs its own share of a packed
prefill, a row its own share of a step.

    prefill = sum_i TTFT(l_i)
    step t  = sum_(i running) TBT(c_i(t)) / N + (1 - n(t) / N) TBT(0)

n(t) rows run at step t. What a step takes whatever its rows hold (the weights, the launches) stays when a row ends;
Eq. 13 lets N - n shares of it go. TBT(0) is the interpolated line at a KV length of 0.

Worked number: N = 2, prompts of 96 and 224 tokens take 10 and 18 ms, steps at mean KV lengths of 112.5 and 240.5 tokens
2 and 3 ms. One of 160 tokens takes 14 ms. A step of rows at 112.5 and 240.5 takes 1 + 1.5 = 2.5 ms. Of the second alone
1.5 + 0.5605, half of what the line has at 0: 2.06 ms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from pytest_npubench.core.measurement import Request
from pytest_npubench.errors import ConfigError, LengthError
from pytest_npubench.predictors.band import Prediction
from pytest_npubench.predictors.profile import BucketProfile
from pytest_npubench.predictors.two_point import ProfilePoint, fit


@dataclass(frozen=True, slots=True)
class Line:
    """Seconds by length: straight between the lengths that were measured, and on beyond the first and the last; never
    below 0. One length alone says the same for all."""

    lengths: tuple[float, ...]
    seconds: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.lengths or any(low >= high for low, high in pairwise(self.lengths)):
            raise ConfigError(f"measured lengths are {self.lengths}; want one and more, ascending")

    def at(self, lengths: npt.ArrayLike) -> npt.NDArray[np.float64]:
        wanted = np.asarray(lengths, dtype=np.float64)
        if len(self.lengths) == 1:
            return np.full(wanted.shape, self.seconds[0])
        positions, seconds = np.asarray(self.lengths), np.asarray(self.seconds)
        piece = np.clip(np.searchsorted(positions, wanted) - 1, 0, len(positions) - 2)
        slopes = np.diff(seconds) / np.diff(positions)
        step_s: npt.NDArray[np.float64] = np.maximum(seconds[piece] + slopes[piece] * (wanted - positions[piece]), 0.0)
        return step_s


@dataclass(frozen=True, slots=True, kw_only=True)
class RaggedLens:
    """See the module. ttft: seconds of a prompt in a packed batch, tbt of a step of a full batch of one KV length."""

    batch_size: int
    ttft: Line
    tbt: Line

    @classmethod
    def of(cls, profile: BucketProfile, points: Sequence[ProfilePoint]) -> RaggedLens:
        """Returns the times of a profile at the lengths that its points measured. Raises ConfigError where a bucket
        lacks one of its times."""
        prompts, contexts = dict[int, int](), dict[int, float]()
        for point in points:
            prompts[point.bucket] = point.input_tokens
            if point.output_tokens > 1:  # steps run at KV lengths of l + 1 to l + l_out - 1
                contexts[point.bucket] = point.input_tokens + point.output_tokens / 2
        return cls(
            batch_size=profile.batch_size,
            ttft=_line(prompts, {bucket: one.ttft_s for bucket, one in profile.buckets.items()}),
            tbt=_line(contexts, {bucket: one.tbt_s for bucket, one in profile.buckets.items()}),
        )

    @classmethod
    def fit(cls, samples_s: Mapping[ProfilePoint, Sequence[float]], batch_size: int) -> RaggedLens:
        """Raises what two_point.fit raises."""
        return cls.of(fit(samples_s, batch_size=batch_size), tuple(samples_s))

    def predict(self, batch: Sequence[Request]) -> float:
        return self.predict_batch([(item.input_tokens, item.output_tokens) for item in batch]).e2e_s

    def predict_batch(self, requests: Sequence[tuple[int, int]]) -> Prediction[float]:
        """Returns seconds of (input_tokens, output_tokens) that are submitted at once. Raises LengthError for none, or
        more than batch_size."""
        if not 1 <= len(requests) <= self.batch_size:
            raise LengthError(f"{len(requests)} requests; the profile is of batches of {self.batch_size}")
        inputs = np.array([prompt for prompt, _ in requests])
        steps = [output - 1 for _, output in requests]
        shares = sum(
            float(self.tbt.at(prompt + 1 + np.arange(own)).sum()) for prompt, own in zip(inputs, steps, strict=True)
        )
        idle = self.batch_size * max(steps) - sum(steps)
        decode_s = (shares + idle * float(self.tbt.at(0))) / self.batch_size
        return Prediction(prefill_s=float(self.ttft.at(inputs).sum()), decode_s=decode_s)


def _line(lengths: Mapping[int, float], seconds: Mapping[int, float | None]) -> Line:
    points = sorted((lengths[bucket], value) for bucket, value in seconds.items() if value is not None)
    return Line(tuple(length for length, _ in points), tuple(value for _, value in points))
