"""One batch walked through static buckets, as an NPU serves it. The decoder brings the binaries.

Requests are prefilled one by one, shortest first, each in its own bucket's binary, into the KV cache of that bucket;
when the next prompt (or, later, the growing KV length c_t) needs a larger bucket, the whole cache moves there by a
copy. Decode then advances all rows together in the binary of bucket(max c_t) until the longest output ends; a row that
ended earlier is carried along and its c_t counts as frozen. The tokens of every step are fetched to the host, as a
server that streams them must; as servers do, the next step of the bucket is started before that, unless the host's
own cores run the steps and would wait for themselves.

Worked example: buckets 128 and 256, prompts of 100 and 120 tokens, 3 and 20 output tokens: two prefills in 128; steps
with c_t = 121..128 in 128, a move, and steps with 129..139 in 256.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, pairwise
from typing import Any

from pytest_npubench.core.buckets import bucket_of
from pytest_npubench.core.measurement import Move, Phase, Request, Run
from pytest_npubench.engines.protocol import Engine, Finished
from pytest_npubench.engines.request_batch import Generation, Prompt, as_requests, check_batch, random_prompts
from pytest_npubench.engines.run_trace import RunTrace
from pytest_npubench.engines.shapes import DecoderShape
from pytest_npubench.errors import ConfigError


class StaticBuckets(Engine):
    """See the module. A decoder says what shape it has, its buckets, batch size and the seed of its prompts."""

    prefill_shared = False
    finished: Finished = "freeze"
    shape: DecoderShape
    padding_token: int = 0
    """What stands behind a prompt, up to its bucket's end. Nobody sees it."""
    weights: Any = None
    """The tree of them, which engines of the same shape and dtype may share."""
    _seed: int
    _num_runs = 0

    @property
    def starts_ahead(self) -> bool:
        """Whether a step is started before the tokens of the step before it are fetched."""
        return True

    def run(self, requests: Sequence[Request]) -> Run:
        """Run seeded random prompts of these lengths, others in each run; see generate()."""
        self._check(requests)
        self._num_runs += 1
        prompts = random_prompts(requests, self.shape.vocab_size, seed=self._seed, run=self._num_runs)
        return self.generate(prompts, [request.output_tokens for request in requests]).counted_run

    def generate(self, prompts: Sequence[Prompt], output_tokens: Sequence[int]) -> Generation:
        """Greedy tokens of each prompt (int32 [l_in]), its own number of them, with the timing of the whole batch.

        Raises LengthError for an empty batch, one above the compiled size, or a length no bucket holds, ConfigError for
        a token outside the vocabulary.
        """
        requests = as_requests(prompts, output_tokens)
        self._check(requests)
        self._check_tokens(prompts)
        rows = sorted(range(len(prompts)), key=lambda row: len(prompts[row]))
        bucket = bucket_of(self.buckets, len(prompts[rows[0]]))
        self.load(self._path(bucket, max(map(_final_kv_length, requests))))
        self.begin(bucket)
        trace = RunTrace()
        for row in rows:
            bucket = self.grow(bucket, len(prompts[row]), trace)
            with trace.segment(Phase.PREFILL, bucket):
                first = self.prefill_row(bucket, row, prompts[row])
        fetched = [first]
        for step_bucket, steps in groupby(bucket_of(self.buckets, kv_length) for kv_length in _kv_lengths(requests)):
            bucket = self.grow(bucket, step_bucket, trace)
            num_steps = len(list(steps))
            with trace.segment(Phase.DECODE, bucket, num_steps):
                fetched += self._steps(bucket, num_steps)
        run = trace.finish()
        self.end(bucket)
        tokens = tuple(tuple(int(step[row]) for step in fetched[:count]) for row, count in enumerate(output_tokens))
        return Generation(run=run, tokens=tokens)

    def _steps(self, bucket: int, num_steps: int) -> Iterator[Prompt]:
        """The tokens of so many steps in one bucket, one after the other."""
        if not self.starts_ahead:
            yield from (self.decode_step(bucket) for _ in range(num_steps))
            return
        fetch = self.start_step(bucket)
        for _ in range(num_steps - 1):
            fetch_before, fetch = fetch, self.start_step(bucket)
            yield fetch_before()
        yield fetch()

    def decode_step(self, bucket: int) -> Prompt:
        """One step of all rows; fetch their tokens, int32 [batch_size]."""
        return self.start_step(bucket)()

    def time_move(self, from_bucket: int, to_bucket: int) -> Move:
        """Move the cache between two neighbouring buckets of the set. Raises ConfigError for any other two."""
        if (from_bucket, to_bucket) not in pairwise(self.buckets):
            raise ConfigError(
                f"move {from_bucket} -> {to_bucket}: want a bucket and the next larger one of {self.buckets}"
            )
        self.load((from_bucket, to_bucket))
        self.begin(from_bucket)
        trace = RunTrace()
        self.end(self.grow(from_bucket, to_bucket, trace))
        return trace.finish().moves[-1]

    # -- what a decoder does with its binaries; the buckets are loaded

    def load_slots(self) -> None:
        """Compile what serving on slots needs: every bucket, and moves between neighbours both ways."""
        self.load(self.buckets)

    @abstractmethod
    def begin(self, bucket: int) -> None:
        """Make ready for a batch whose first prompt runs in `bucket`: nothing of this is timed."""

    @abstractmethod
    def prefill_row(self, bucket: int, row: int, prompt: Prompt) -> Prompt:
        """Run a prompt, padded to the bucket, into a row, and fetch the last token of every row, int32 [batch_size], so
        far as there is one."""

    @abstractmethod
    def start_step(self, bucket: int) -> Callable[[], Prompt]:
        """Start one step of all rows, behind those that were started before; what it returns waits for the step, and
        fetches the rows' tokens, int32 [batch_size]."""

    @abstractmethod
    def move_caches(self, bucket: int, neighbour: int) -> None:
        """Copies the whole KV cache into a neighbouring bucket's, as far as it fits, and waits for it."""

    @abstractmethod
    def end(self, bucket: int) -> None:
        """Ends the batch, whose cache is that of `bucket`."""

    # -- lengths

    def grow(self, bucket: int, kv_length: int, trace: RunTrace) -> int:
        """Move step by step through the set until the caches hold kv_length."""
        while bucket < kv_length:
            larger = self.buckets[self.buckets.index(bucket) + 1]
            with trace.move(bucket, larger):
                self.move_caches(bucket, larger)
            bucket = larger
        return bucket

    def _check(self, requests: Sequence[Request]) -> None:
        check_batch(requests, self.batch_size, "is compiled for")
        bucket_of(self.buckets, max(map(_final_kv_length, requests)))

    def _check_tokens(self, prompts: Sequence[Prompt]) -> None:
        for row, prompt in enumerate(prompts):
            if prompt.min() < 0 or prompt.max() >= self.shape.vocab_size:
                raise ConfigError(
                    f"request {row}: a prompt token outside the vocabulary, 0..{self.shape.vocab_size - 1}"
                )

    def _path(self, first: int, longest: int) -> tuple[int, ...]:
        """Every bucket from the first to the bucket of the longest KV length."""
        return tuple(bucket for bucket in self.buckets if first <= bucket <= bucket_of(self.buckets, longest))


def _final_kv_length(request: Request) -> int:
    """KV length once the last token is out; that token itself is never written."""
    return request.input_tokens + request.output_tokens - 1


def _kv_lengths(requests: Sequence[Request]) -> Iterator[int]:
    """max_i c_t of every decode step (LENS, Eq. 8), rows that ended frozen at their final length."""
    for step in range(max(request.output_tokens for request in requests) - 1):
        yield max(min(request.input_tokens + step + 1, _final_kv_length(request)) for request in requests)
