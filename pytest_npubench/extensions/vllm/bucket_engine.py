"""engines.protocol.Engine on vLLM: a batch of fixed lengths, all handed over at once, run to its last token.

vLLM runs a prompt and a decode step at their own lengths: on a CPU, and on CUDA without graphs, it has no buckets of
tokens. `buckets` are then nominal, the hardware file's, and a run says in which of them each part of its time fell, so
that LENS can be profiled and judged; what it then gets wrong is what a stair makes of a slope. `declared` are the
lengths that the installed vLLM pads prompts to (TPU, Neuron), empty where it pads none.

What LENS must know of it: the prompts of a batch run in one iteration (under a policy that lets them: continuous), but
packed, without padding, so that it takes what they take together, as Eq. 7 has it (prefill_shared is off); rows that
end early leave the batch (finished = "drop"); the cache is paged, so nothing ever moves.

Worked example: an iteration of n tokens takes 1 + 0.1 n ms; prompts of 100 and 900 tokens take 101 ms. Eq. 7, from
batches of two equal prompts each: (1 + 20) / 2 + (1 + 180) / 2 = 101 ms. Shared it would be two of 900 tokens: 181 ms.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Protocol

import numpy as np

from pytest_npubench.core.buckets import bucket_of, check_buckets
from pytest_npubench.core.measurement import CompileRecord, Move, Phase, Request, Run, Segment
from pytest_npubench.engines.protocol import Canaries, Engine, Finished
from pytest_npubench.engines.request_batch import check_batch
from pytest_npubench.errors import ConfigError, LengthError, MeasurementError
from pytest_npubench.extensions.vllm.answer import VllmAnswer, VllmRequest, VllmRun

if TYPE_CHECKING:
    from pytest_npubench.engines.answers import Answers
    from pytest_npubench.engines.probe import HostWeights, ProbePrompts


class Serves(Protocol):
    """The part of VllmProcess that is needed."""

    def serve(self, requests: Sequence[VllmRequest]) -> VllmRun: ...

    def close(self) -> None: ...


class VllmBucketEngine(Engine):
    """Batches of up to batch_size requests. `canaries`: what runs canary kernels where vLLM runs,
    None where nothing does. `weights`: those that it reads, as the host makes them.

    Raises ConfigError for buckets or a batch size that cannot be.
    """

    name = "vllm"
    prefill_shared = False
    finished: Finished = "drop"
    compiles: Sequence[CompileRecord] = ()

    def __init__(
        self,
        server: Serves,
        *,
        vocab_size: int,
        batch_size: int,
        buckets: Sequence[int],
        declared: Sequence[int] = (),
        canaries: Canaries | None = None,
        weights: HostWeights | None = None,
        seed: int = 0,
    ) -> None:
        if batch_size < 1:
            raise ConfigError(f"batch_size is {batch_size}; want at least 1")
        self.batch_size, self.buckets, self.declared = batch_size, check_buckets(buckets), tuple(declared)
        self.canaries, self._weights = canaries, weights
        self._server, self._vocab_size, self._seed = server, vocab_size, seed
        self._num_runs = 0

    def load(self, buckets: Sequence[int]) -> None:
        """Compiles nothing: vLLM compiled when it started. Raises LengthError for a bucket not in the set."""
        for bucket in buckets:
            if bucket not in self.buckets:
                raise LengthError(f"bucket {bucket}; want one of {self.buckets}")

    def run(self, requests: Sequence[Request]) -> Run:
        """Seeded random prompts of these lengths. Raises LengthError for a batch or length that does not fit,
        MeasurementError where a request fails, or prompts
        are not prefilled together."""
        self._check(requests)
        prompts = [self._prompt(index, request) for index, request in enumerate(requests)]
        return as_run(self._served(prompts, [request.output_tokens for request in requests]), self.buckets)

    def answers(self, prompts: ProbePrompts) -> Answers:
        """Answers by log-probabilities (asking.py), on vLLM's own weights."""
        from pytest_npubench.extensions.vllm.asking import answers_in_batches

        return answers_in_batches(
            lambda requests: self._server.serve(requests).answers,
            prompts,
            self._vocab_size,
            self.batch_size,
            self._weights,
        )

    def time_move(self, from_bucket: int, to_bucket: int) -> Move:
        """Raises ConfigError: a paged cache grows block by block and is never copied."""
        raise ConfigError(f"move {from_bucket} -> {to_bucket}: vLLM's KV cache is paged and never moves")

    def close(self) -> None:
        """End the server; a campaign's engine is its own."""
        self._server.close()

    def _served(self, prompts: Sequence[Sequence[int]], output_tokens: Sequence[int]) -> Sequence[VllmAnswer]:
        """Returns a batch, all there at once. Raises MeasurementError where a request fails."""
        self._num_runs += 1
        asked = [
            VllmRequest(
                id=self._num_runs * self.batch_size + index,
                arrival_s=0.0,
                prompt=tuple(prompt),
                output_tokens=count,
            )
            for index, (prompt, count) in enumerate(zip(prompts, output_tokens, strict=True))
        ]
        answers = self._server.serve(asked).answers
        for answer in answers:
            if answer.failed:
                raise MeasurementError(f"request {answer.request.id} of the batch: {answer.failed}")
        return answers

    def _prompt(self, index: int, request: Request) -> list[int]:
        random = np.random.default_rng((self._seed, self._num_runs, index))  # others in each run
        prompt: list[int] = random.integers(0, self._vocab_size, request.input_tokens).tolist()
        return prompt

    def _check(self, requests: Sequence[Request]) -> None:
        check_batch(requests, self.batch_size)
        for request in requests:
            bucket_of(self.buckets, request.input_tokens + request.output_tokens - 1)


def as_run(answers: Sequence[VllmAnswer], buckets: Sequence[int]) -> Run:
    """Returns a batch's times: its prefill, and decode steps by the bucket of the longest KV cache.

    Raises MeasurementError where prompts were prefilled apart.

    Worked example: prompts of 100 and 120 tokens get their first tokens at 0.2 s and two more each at 0.25 and 0.3 s.
    Under buckets 121 and 256 that is a prefill of 2 prompts and 0.2 s in bucket 121, a step of 0.05 s at 121 tokens in
    bucket 121, and one at 122 in bucket 256.
    """
    firsts_s = {answer.token_times_s[0] for answer in answers}
    if len(firsts_s) > 1:
        raise MeasurementError(
            f"{len(answers)} prompts were prefilled in {len(firsts_s)} iterations; want one, under continuous, "
            "of the whole batch, in a KV cache that holds it"
        )
    (prefilled_s,) = firsts_s
    ends_s = sorted({at_s for answer in answers for at_s in answer.token_times_s})
    longest = max(len(answer.request.prompt) for answer in answers)
    segments = [
        Segment(phase=Phase.PREFILL, bucket=bucket_of(buckets, longest), num_steps=len(answers), duration_s=prefilled_s)
    ]
    steps = [(bucket_of(buckets, _longest_kv(answers, end_s)), end_s - start_s) for start_s, end_s in pairwise(ends_s)]
    for bucket, group in groupby(steps, key=lambda step: step[0]):
        durations_s = [duration_s for _, duration_s in group]
        segments.append(
            Segment(phase=Phase.DECODE, bucket=bucket, num_steps=len(durations_s), duration_s=sum(durations_s))
        )
    num_tokens = sum(len(answer.token_times_s) for answer in answers)
    return Run(e2e_s=ends_s[-1], segments=tuple(segments), moves=(), num_tokens=num_tokens)


def _longest_kv(answers: Sequence[VllmAnswer], end_s: float) -> int:
    """Returns the longest KV length of rows with a token in the step that ended then: prompt and earlier tokens."""
    return max(
        len(answer.request.prompt) + answer.token_times_s.index(end_s)
        for answer in answers
        if end_s in answer.token_times_s
    )
