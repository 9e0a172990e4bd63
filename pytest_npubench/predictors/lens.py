"""LENS: the E2E latency of any request from two measured times a bucket (arXiv 2606.18042, section 4).

    E2E = TTFT[bucket(l_in)] + sum_b n_b TBT[b]                             one request, Eq. 6
    E2E = sum_i TTFT[bucket(l_i)] + sum_b n_b TBT[b]                        padded batch, Eq. 11
    E2E = sum_i TTFT[bucket(l_i)] + sum_i sum_b n_b(i) TBT[b] / N           ragged attention, Eq. 12 and 13

T = l_out - 1 decode steps, as prefill emits the first token; literal=True takes T = l_out as Eq. 3 prints it. In both
modes step t = 0..T-1 has KV length c_t = l_in + t + 1.

Worked number: {128: TTFT 10 ms, TBT 2 ms; 256: 18 ms, 3 ms}, 100 tokens in, 60 out: T = 59, c = 101..159, 28 steps in
128 and 31 in 256, so 10 + 28 * 2 + 31 * 3 = 159 ms; literal: one step more in 256, 162 ms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, get_args, overload

import numpy as np
import numpy.typing as npt

from pytest_npubench.core.buckets import BucketKeys, IntArray, Spans, check_fits, check_lengths, last_kv_tokens
from pytest_npubench.core.measurement import CostRecord, Phase, Request
from pytest_npubench.errors import ConfigError, LengthError
from pytest_npubench.predictors.band import Band, Prediction, half_width_s, influences
from pytest_npubench.predictors.profile import BucketProfile, BucketTiming
from pytest_npubench.predictors.protocol import FittedPredictor, Predictor, ProfileSamples
from pytest_npubench.predictors.ragged import RaggedLens
from pytest_npubench.predictors.request_times import RequestTimes, chunks
from pytest_npubench.predictors.transitions import Transitions
from pytest_npubench.predictors.two_point import count_cost, fit
from pytest_npubench.predictors.work import (
    BucketWork,
    Finished,
    FloatArray,
    batch_prefills,
    longest_kv_tokens,
    padded_steps,
    ragged_steps,
    request_prefills,
    request_steps,
)
from pytest_npubench.stats.coverage import Share

__all__ = ["Attention", "Band", "BucketProfile", "BucketTiming", "Finished", "LensPredictor"]

Attention = Literal["padded", "ragged"]


class LensPredictor:
    """Predicts from a profile. literal=True is the printed text: T = l_out steps, no transitions.

    `keys` maps lengths to buckets where the engine does something else than Eq. 1. Raises ConfigError where a key leads
    to a bucket without a time for that phase, or where the profile was fitted with the other step count.
    """

    def __init__(self, profile: BucketProfile, literal: bool = False, keys: BucketKeys | None = None) -> None:
        if profile.fitted_literal not in (None, literal):
            raise ConfigError(f"literal is {literal}, but the profile was fitted with literal={profile.fitted_literal}")
        keys = profile.keys if keys is None else keys
        self.profile = profile
        self.literal = literal
        self._prefill = Spans.of(keys.prefill_key, keys.max_input_tokens)
        self._decode = Spans.of(lambda kv_tokens: keys.decode_key(kv_tokens, profile.batch_size), keys.max_kv_tokens)
        self._ttft_s = _times(self._prefill, "ttft_s", {b: timing.ttft_s for b, timing in profile.buckets.items()})
        self._tbt_s = _times(self._decode, "tbt_s", {b: timing.tbt_s for b, timing in profile.buckets.items()})
        self._transitions: Transitions | None = None
        if profile.transitions_s and not literal:
            self._transitions = Transitions.of(profile.transitions_s, self._prefill, self._decode)

    @overload
    def predict(self, input_tokens: int, output_tokens: int) -> Prediction[float]: ...
    @overload
    def predict(self, input_tokens: IntArray, output_tokens: IntArray) -> Prediction[FloatArray]: ...
    def predict(
        self, input_tokens: int | IntArray, output_tokens: int | IntArray
    ) -> Prediction[float] | Prediction[FloatArray]:
        """Returns seconds of each request alone in the engine (Eq. 6): two integers, or two integer arrays of one
        shape.

        Raises LengthError for lengths that are no positive integers, shapes that differ, or a prompt or KV cache longer
        than the largest bucket.
        """
        inputs, steps = self._checked(input_tokens, output_tokens)
        flat_inputs, flat_steps = inputs.reshape(-1), steps.reshape(-1)
        prefill_s, decode_s = self._request_times.phases_s(flat_inputs, flat_steps)
        if self._transitions is not None:
            for chunk in chunks(inputs.size):
                chunk_inputs, chunk_steps = flat_inputs[chunk], flat_steps[chunk]
                last = np.where(chunk_steps > 0, chunk_inputs + chunk_steps, 0)
                decode_s[chunk] += self._transitions.decode_moves_s(chunk_inputs, last)
        if not inputs.ndim:
            return Prediction(prefill_s=prefill_s.item(), decode_s=decode_s.item())
        return Prediction(prefill_s=prefill_s.reshape(inputs.shape), decode_s=decode_s.reshape(inputs.shape))

    def predict_batch(
        self,
        requests: Sequence[tuple[int, int]],
        attention: Attention = "padded",
        finished: Finished = "grow",
    ) -> Prediction[float]:
        """Returns seconds of one batch of (input_tokens, output_tokens), submitted at once.

        attention="padded" decodes the batch in the bucket of its longest KV cache (Eq. 8 to 11); `finished` says what a
        request that ended adds to it. "ragged" walks each request through its own buckets at TBT / N (Eq. 12 and 13),
        where `finished` has no meaning. N is the profile's batch_size, also for a smaller batch.

        Raises LengthError as predict does and for a padded batch that outgrows the largest bucket, ConfigError for an
        empty batch, one larger than batch_size, or an unknown word.
        """
        seconds = self._seconds(self.batch_work(requests, attention, finished))
        return Prediction(prefill_s=float(seconds.prefill_s), decode_s=float(seconds.decode_s))

    @overload
    def band(self, input_tokens: int, output_tokens: int, coverage: float = 0.9) -> Band[float]: ...
    @overload
    def band(self, input_tokens: IntArray, output_tokens: IntArray, coverage: float = 0.9) -> Band[FloatArray]: ...
    def band(
        self, input_tokens: int | IntArray, output_tokens: int | IntArray, coverage: float = 0.9
    ) -> Band[float] | Band[FloatArray]:
        """Returns the interval that holds the expected E2E latency with probability `coverage`; shapes and errors as in
        predict.

        Raises MeasurementError where the profile does not know its errors, ConfigError for a coverage outside (0, 1).
        """
        inputs, steps = self._checked(input_tokens, output_tokens)
        low_s, high_s = np.empty(inputs.size), np.empty(inputs.size)
        for chunk in chunks(inputs.size):
            work = self._request_work(inputs.reshape(-1)[chunk], steps.reshape(-1)[chunk])
            low_s[chunk], high_s[chunk] = self._interval(work, coverage)
        if not inputs.ndim:
            return Band(low_s=low_s.item(), high_s=high_s.item(), coverage=coverage)
        return Band(low_s=low_s.reshape(inputs.shape), high_s=high_s.reshape(inputs.shape), coverage=coverage)

    def band_batch(
        self,
        requests: Sequence[tuple[int, int]],
        attention: Attention = "padded",
        finished: Finished = "grow",
        coverage: float = 0.9,
    ) -> Band[float]:
        """Returns the interval of predict_batch's E2E latency; errors as in predict_batch and band."""
        low_s, high_s = self._interval(self.batch_work(requests, attention, finished), coverage)
        return Band(low_s=float(low_s), high_s=float(high_s), coverage=coverage)

    def error_shares(self, requests: Sequence[tuple[int, int]], finished: Finished) -> dict[object, Share]:
        """What each measured point adds to the error of predict_batch, by bucket and place in it; errors as in
        band_batch."""
        work = self.batch_work(requests, "padded", finished)
        return {
            key: Share(float(influence), error.variance_s2, error.num_samples - 1)
            for key, (influence, error) in influences(self.profile.buckets, work).items()
        }

    @cached_property
    def _request_times(self) -> RequestTimes:
        return RequestTimes.of(self._prefill, self._ttft_s, self._decode, self._tbt_s)

    def _checked(self, input_tokens: npt.ArrayLike, output_tokens: npt.ArrayLike) -> tuple[IntArray, IntArray]:
        """Prompt lengths and numbers of decode steps, known to fit the buckets one by one."""
        inputs = check_lengths("input_tokens", input_tokens)
        outputs = check_lengths("output_tokens", output_tokens)
        if inputs.shape != outputs.shape:
            raise LengthError(f"input_tokens has shape {inputs.shape}, output_tokens {outputs.shape}; want one shape")
        steps = outputs if self.literal else outputs - 1
        check_fits("input_tokens", inputs, self._prefill.edges)
        if inputs.size and int(inputs.max()) + int(steps.max()) > self._decode.edges[-1]:
            last_kv_tokens(self._decode.edges, inputs, steps)  # which looks at every request, and names one
        return inputs, steps

    def _request_work(self, inputs: IntArray, steps: IntArray) -> BucketWork:
        """Requests one by one, shape (num_requests,): Eq. 2 and 5."""
        work = BucketWork(
            prefills=request_prefills(inputs, self._prefill), steps=request_steps(inputs, steps, self._decode)
        )
        if self._transitions is None:
            return work
        last_kv = last_kv_tokens(self._decode.edges, inputs, steps)
        return replace(work, decode_moves_s=self._transitions.decode_moves_s(inputs, last_kv))

    def batch_work(self, requests: Sequence[tuple[int, int]], attention: Attention, finished: Finished) -> BucketWork:
        """What predict_batch adds up, arrays of shape (): Eq. 7, and 8 to 10 or 12 and 13."""
        _check_word("attention", attention, Attention)
        _check_word("finished", finished, Finished)
        inputs, steps = self._checked(*_pairs(requests, self.profile.batch_size))
        prefills = batch_prefills(inputs, self._prefill, self.profile.prefill_shared)
        if attention == "ragged":
            return BucketWork(
                prefills=prefills, steps=ragged_steps(inputs, steps, self._decode, self.profile.batch_size)
            )
        work = BucketWork(prefills=prefills, steps=padded_steps(inputs, steps, self._decode, finished))
        if self._transitions is None:
            return work
        longest = inputs.max()
        shortest = longest if self.profile.prefill_shared else inputs.min()
        return replace(
            work,
            prefill_moves_s=self._transitions.prefill_moves_s(shortest, longest),
            decode_moves_s=self._transitions.decode_moves_s(longest, longest_kv_tokens(inputs, steps, finished)),
        )

    def _seconds(self, work: BucketWork) -> Prediction[FloatArray]:
        prefill_s = sum((count * self._ttft_s[bucket] for bucket, count in work.prefills.items()), work.prefill_moves_s)
        decode_s = sum((count * self._tbt_s[bucket] for bucket, count in work.steps.items()), work.decode_moves_s)
        return Prediction(prefill_s=prefill_s, decode_s=decode_s)

    def _interval(self, work: BucketWork, coverage: float) -> tuple[FloatArray, FloatArray]:
        e2e_s, half_s = self._seconds(work).e2e_s, half_width_s(self.profile.buckets, work, coverage)
        return e2e_s - half_s, e2e_s + half_s


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedLens:
    """LENS on batches that its engine runs as `finished` says."""

    lens: LensPredictor
    finished: Finished

    def predict(self, batch: Sequence[Request]) -> float:
        return self.lens.predict_batch(_lengths(batch), finished=self.finished).e2e_s

    def counts(self, batch: Sequence[Request]) -> dict[str, float]:
        """Returns the prefills and decode steps that it adds up, by the names of core.measurement.Run.counts."""
        work = self.lens.batch_work(_lengths(batch), "padded", self.finished)
        phases = ((Phase.PREFILL, work.prefills), (Phase.DECODE, work.steps))
        return {f"{phase.value}-{bucket}": float(num) for phase, own in phases for bucket, num in own.items() if num}


class Lens(Predictor):
    """Its cost has the moves of the KV cache beside the buckets' points. Where nothing is padded it is RaggedLens."""

    name = "lens"
    about = "a prefill and a step time for each bucket, from two measured points (arXiv 2606.18042)"

    def fit(self, samples: ProfileSamples) -> FittedPredictor:
        if not samples.pads:
            return RaggedLens.fit(samples.samples_s, samples.batch_size)
        return self.fit_padded(samples)

    def fit_padded(self, samples: ProfileSamples) -> FittedLens:
        """Fits the staircase of buckets, whatever the engine does."""
        profile = fit(
            samples.samples_s,
            batch_size=samples.batch_size,
            prefill_shared=samples.prefill_shared,
            transitions_s=samples.transitions_s,
        )
        return FittedLens(lens=LensPredictor(profile, keys=samples.keys), finished=samples.finished)

    def cost(self, samples: ProfileSamples) -> CostRecord:
        points: dict[Any, Sequence[float]] = {**samples.samples_s, **samples.moves_s}
        return count_cost([*samples.compiles, *samples.move_compiles], points, sessions=1)


PREDICTOR = Lens()


def _lengths(batch: Sequence[Request]) -> list[tuple[int, int]]:
    return [(item.input_tokens, item.output_tokens) for item in batch]


def _times(spans: Spans, name: str, timings: Mapping[int, float | None]) -> dict[int, float]:
    times: dict[int, float] = {}
    for edge, bucket in zip(spans.edges, spans.buckets, strict=True):
        seconds = timings.get(bucket)
        if seconds is None:
            raise ConfigError(f"lengths up to {edge} run in bucket {bucket}, for which the profile has no {name}")
        times[bucket] = seconds
    return times


def _check_word(name: str, word: str, allowed: object) -> None:
    if word not in get_args(allowed):
        raise ConfigError(f"{name} is {word!r}; want one of {', '.join(get_args(allowed))}")


def _pairs(requests: Sequence[tuple[int, int]], batch_size: int) -> tuple[list[int], list[int]]:
    if not 1 <= len(requests) <= batch_size:
        raise ConfigError(f"the batch has {len(requests)} requests; the profile is compiled for 1 to {batch_size}")
    for index, request in enumerate(requests):
        if len(request) != 2:
            raise LengthError(f"request {index} is {request!r}; want (input_tokens, output_tokens)")
    return [request[0] for request in requests], [request[1] for request in requests]
