"""engines.protocol.Engine on MaxText: prompts one after the other into slots, then all slots step by step.

What LENS must know of it: each prompt is prefilled alone (prefill_shared is False), padded to the smallest declared
length that holds it; a slot goes on stepping when its request has ended, and its position with it (finished = "grow");
decode has one bucket and the state is one block, so nothing ever moves. Prefill is timed with the copy into its slot,
which the first token does not wait for on a server but the batch's end does.

Every call is waited for and its tokens are fetched, as a server that streams them must.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from pytest_npubench.core.buckets import SmallestBucket
from pytest_npubench.core.clock import perf_counter
from pytest_npubench.core.measurement import CacheState, CompileRecord, Move, Phase, Request, Run
from pytest_npubench.engines.protocol import Engine, Finished
from pytest_npubench.engines.request_batch import Generation, Prompt, as_requests, check_batch, random_prompts
from pytest_npubench.engines.run_trace import RunTrace
from pytest_npubench.errors import ConfigError, LengthError
from pytest_npubench.extensions.adapters.maxtext.interface import MaxEngine, ResultTokens

# The lengths that a MaxText configuration declares.
#
# Prompts are padded to the lengths of `inference_microbenchmark_prefill_lengths`, as far as they fit,
# and to `max_prefill_predict_length`; every decode step works on the whole state, so decode has one
# bucket, `max_target_length`.
#
# Worked example: lengths "64,128,256,2048", max_prefill_predict_length 512, max_target_length 1024: prefill buckets 64,
# 128, 256, 512; decode bucket 1024; at most 512 decode steps, so 513 output tokens, however short the prompt.
LISTED = "inference_microbenchmark_prefill_lengths"
MAX_PREFILL, MAX_TARGET = "max_prefill_predict_length", "max_target_length"


@dataclass(frozen=True, slots=True, kw_only=True)
class MaxTextLengths:
    """keys: the bucket of a length, by phase. max_decode_steps: the generated tokens that a slot's ring holds."""

    keys: SmallestBucket
    max_decode_steps: int

    @property
    def buckets(self) -> tuple[int, ...]:
        """Returns the buckets of prefill and decode together, in increasing order."""
        return tuple(sorted({*self.keys.prefill_buckets, *self.keys.decode_buckets}))

    def check(self, requests: list[Request]) -> None:
        """Raises LengthError for a prompt above the longest one, or more steps than a ring holds."""
        for row, request in enumerate(requests):
            if request.input_tokens > self.keys.max_input_tokens:
                raise LengthError(
                    f"request {row}: a prompt of {request.input_tokens} tokens; {MAX_PREFILL} is "
                    f"{self.keys.max_input_tokens}"
                )
            if request.output_tokens - 1 > self.max_decode_steps:
                raise LengthError(
                    f"request {row}: {request.output_tokens} output tokens; at most {self.max_decode_steps + 1} fit, "
                    f"{MAX_TARGET} - {MAX_PREFILL} and the one of prefill"
                )


def declared_lengths(config: Any) -> MaxTextLengths:
    """Returns the lengths of a MaxText configuration. Raises ConfigError, naming a key without a length."""
    longest, target = _length(config, MAX_PREFILL), _length(config, MAX_TARGET)
    if target <= longest:
        raise ConfigError(f"{MAX_TARGET} is {target} and {MAX_PREFILL} {longest}; want room to generate in")
    listed = {length for length in _listed(config) if length < longest}
    return MaxTextLengths(
        keys=SmallestBucket(prefill_buckets=(*sorted(listed), longest), decode_buckets=(target,)),
        max_decode_steps=target - longest,
    )


def _length(config: Any, key: str) -> int:
    value = getattr(config, key, None)
    if not isinstance(value, int) or value < 1:
        raise ConfigError(f"MaxText's {key} is {value!r}; want a number of tokens above 0")
    return value


def _listed(config: Any) -> list[int]:
    text = getattr(config, LISTED, "")
    try:
        lengths = [int(part) for part in str(text).split(",") if part.strip()]
    except ValueError:
        lengths = [0]
    if any(length < 1 for length in lengths):
        raise ConfigError(f"MaxText's {LISTED} is {text!r}; want lengths with commas between, as 64,128,256")
    return lengths


class MaxTextEngine(Engine):
    """On an open MaxEngine, whose parameters it loads. Raises ConfigError for lengths that are not declared rightly.

    compiles: the list that records go to, one for generate and one for each prefill length, each the seconds of the
    calls that compile it, which run it a few times; all count as cold, as MaxText does not tell what its compilation
    cache held.
    """

    name = "maxtext"
    prefill_shared = False
    finished: Finished = "grow"

    def __init__(self, engine: MaxEngine, *, compiles: list[CompileRecord] | None = None, seed: int = 0) -> None:
        self.lengths = declared_lengths(engine.config)
        self.buckets = self.lengths.buckets
        self.batch_size = engine.max_concurrent_decodes
        self.compiles = [] if compiles is None else compiles
        self._engine, self._seed, self._num_runs = engine, seed, 0
        self._params = engine.load_params()
        self._state: Any = None

    def load(self, buckets: Sequence[int]) -> None:
        """Compile generate, and prefill of these lengths. Raises ConfigError for one that is not declared."""
        for bucket in buckets:
            if bucket not in self.buckets:
                raise ConfigError(f"bucket {bucket} is not in the engine's set {self.buckets}")
        self._make_state()
        for bucket in buckets:
            name = f"prefill-{bucket}"
            if bucket in self.lengths.keys.prefill_buckets and name not in {one.name for one in self.compiles}:
                self._record(name, partial(self._warm_up, bucket))

    def run(self, requests: Sequence[Request]) -> Run:
        """Run seeded random prompts of these lengths, others in each run; see generate()."""
        check_batch(requests, self.batch_size)
        self._num_runs += 1
        prompts = random_prompts(requests, self._engine.config.vocab_size, seed=self._seed, run=self._num_runs)
        return self.generate(prompts, [request.output_tokens for request in requests]).counted_run

    def generate(self, prompts: Sequence[Prompt], output_tokens: Sequence[int]) -> Generation:
        """Tokens of each prompt (int32 [l_in]), its own number of them, with the timing of the whole batch.

        Raises LengthError for a batch or a length that does not fit.
        """
        requests = as_requests(prompts, output_tokens)
        check_batch(requests, self.batch_size)
        self.lengths.check(requests)
        keys = self.lengths.keys
        prefill_buckets = [keys.prefill_key(len(prompt)) for prompt in prompts]
        (decode_bucket,) = keys.decode_buckets
        self.load(sorted(set(prefill_buckets)))
        trace, first = RunTrace(), []
        for slot, (prompt, bucket) in enumerate(zip(prompts, prefill_buckets, strict=True)):
            with trace.segment(Phase.PREFILL, bucket):
                first.append(self._prefill(prompt, bucket, slot))
        steps = [first]
        for _ in range(max(output_tokens) - 1):
            with trace.segment(Phase.DECODE, decode_bucket):
                steps.append(self._step())
        run = trace.finish()
        tokens = tuple(tuple(step[slot] for step in steps[:count]) for slot, count in enumerate(output_tokens))
        return Generation(run=run, tokens=tokens)

    def time_move(self, from_bucket: int, to_bucket: int) -> Move:
        """Raises ConfigError: the decode state is one block of max_target_length and never moves."""
        raise ConfigError(f"move {from_bucket} -> {to_bucket}: MaxText's decode state has one length and never moves")

    def _prefill(self, prompt: Prompt, bucket: int, slot: int) -> int:
        """Returns the prompt's first token, once its keys and values are in the slot."""
        padded = _zeros(bucket)
        padded[: len(prompt)] = prompt
        prefix, result = self._engine.prefill(params=self._params, padded_tokens=padded, true_length=len(prompt))
        self._state = self._engine.insert(prefix, self._take_state(), slot)
        return self._fetch(result)[0]

    def _step(self) -> list[int]:
        """One token a slot."""
        self._state, result = self._engine.generate(self._params, self._take_state())
        return self._fetch(result)

    def _take_state(self) -> Any:
        """Returns the state, for a call that consumes it; a call that fails leaves none."""
        state, self._state = self._state, None
        return state

    def _make_state(self) -> None:
        """A state where there is none, stepped once.

        MaxText compiles insert and generate anew for a state that came out of init_decode_state, generate or insert:
        after this one and _warm_up, every pair of them that a run meets has been met.
        """
        if self._state is None:
            self._state = self._engine.init_decode_state()
            self._record(f"generate-{self.lengths.keys.max_kv_tokens}", lambda: (self._step(), self._step()))

    def _warm_up(self, bucket: int) -> None:
        """Into a state of generate, into one of insert, and a step from there."""
        self._prefill(_zeros(bucket), bucket, 0)
        self._prefill(_zeros(bucket), bucket, 0)
        self._step()

    def _fetch(self, result: ResultTokens) -> list[int]:
        _wait_for((self._state, result.data))
        first, stop = result.tokens_idx
        tokens: list[int] = np.asarray(result.data)[:, first:stop].reshape(-1).tolist()
        return tokens

    def _record(self, name: str, call: Callable[[], object]) -> None:
        """Call it; the first time its seconds go on record."""
        started_s = perf_counter()
        call()
        record = CompileRecord(name=name, compile_s=perf_counter() - started_s, cache=CacheState.COLD)
        if name not in {one.name for one in self.compiles}:
            self.compiles.append(record)


def _zeros(bucket: int) -> Prompt:
    return np.zeros(bucket, np.int32)


def _wait_for(arrays: Any) -> None:
    import jax

    jax.block_until_ready(arrays)
