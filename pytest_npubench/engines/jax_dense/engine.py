"""A statically bucketed decoder: one prefill and one decode binary per bucket and batch size, as an NPU serves.

One batch, walked through: requests are prefilled one by one, shortest first, each in its own bucket's binary, into the
KV cache of that bucket; when the next prompt (or, later, the growing KV length c_t) needs a larger bucket, the whole
cache moves there by a copy. Decode then advances all rows together in the binary of bucket(max c_t) until the longest
output ends; a row that ended earlier is carried along and its c_t counts as frozen. Every step is waited for and its
tokens fetched to the host, as a server that streams them must.

The caches of all loaded buckets stay allocated, as each compiled bucket of an NPU owns its buffers (LENS, 5.4.2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from pytest_npubench.buckets import bucket_of, check_buckets
from pytest_npubench.engines.canary_kernels import CanaryKernels
from pytest_npubench.engines.jax_dense import forward
from pytest_npubench.engines.jax_dense.forward import Caches, State
from pytest_npubench.engines.jax_dense.graph_form import graph_form
from pytest_npubench.engines.jax_dense.memory import check_tensor_parallel
from pytest_npubench.engines.jax_dense.trace import RunTrace
from pytest_npubench.engines.jax_dense.weights import AXIS, random_weights, weight_specs
from pytest_npubench.engines.protocol import Canaries, Compiler, Engine, Finished
from pytest_npubench.engines.shapes import DecoderShape
from pytest_npubench.errors import ConfigError, LengthError
from pytest_npubench.measurement import CompileRecord, Move, Phase, Request, Run

Prompt = np.ndarray[Any, np.dtype[np.int32]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """A run and the tokens it produced: one tuple a request, in the order the requests were given."""

    run: Run
    tokens: tuple[tuple[int, ...], ...]


class StaticBucketEngine(Engine):
    """See the module. Raises ConfigError for a bucket set, dtype or device count the shape cannot have."""

    name = "jax-dense"
    prefill_shared = False
    finished: Finished = "freeze"

    def __init__(
        self,
        shape: DecoderShape,
        compiler: Compiler,
        *,
        buckets: Sequence[int],
        batch_size: int,
        dtype: str = "fp32",
        seed: int = 0,
    ) -> None:
        check_tensor_parallel(shape, len(compiler.devices))
        if batch_size < 1:
            raise ConfigError(f"batch_size is {batch_size}; want at least 1")
        self.shape = shape
        self.buckets = check_buckets(buckets)
        self.batch_size = batch_size
        self.compiles: Sequence[CompileRecord] = ()
        self.canaries: Canaries | None = CanaryKernels(compiler)
        self._compiler = compiler
        self._dtype = _jax_dtype(dtype)
        self._seed = seed
        self._mesh = Mesh(np.array(compiler.devices), (AXIS,))
        self._form = graph_form(compiler.devices[0].platform, self._mesh)
        self._prefill: dict[int, Callable[..., State]] = {}
        self._decode: dict[int, Callable[..., State]] = {}
        self._move: dict[tuple[int, int], Callable[..., Caches]] = {}
        self._caches: dict[int, Caches] = {}
        self._weights: Any = self._make_weights()

    # -- compiling

    def load(self, buckets: Sequence[int]) -> None:
        """Compile prefill and decode of each bucket, and the moves between neighbours in the engine's set."""
        for bucket in buckets:
            self._compile_bucket(bucket)
        for small, large in pairwise(self.buckets):
            if {small, large} <= self._prefill.keys():
                self._compile_move(small, large)

    def _compile_bucket(self, bucket: int) -> None:
        if bucket in self._prefill:
            return
        if bucket not in self.buckets:
            raise ConfigError(f"bucket {bucket} is not in the engine's set {self.buckets}")
        vector, scalar = self._array_shape((self.batch_size,)), self._array_shape(())
        state, prompt = State(self._cache_shapes(bucket), vector, vector), self._array_shape((bucket,))
        whole = self._sharding(P())
        compiled = partial(self._compile, donate=(1,), out=State(self._cache_shardings(), whole, whole))
        label = f"{self.shape.name}-b{self.batch_size}-{bucket}"
        prefill, decode = (partial(step, self.shape, form=self._form) for step in (forward.prefill, forward.decode))
        prefilled = compiled(f"prefill-{label}", prefill, self._weights, state, prompt, scalar, scalar)
        decoded = compiled(f"decode-{label}", decode, self._weights, state)
        # now, small buckets before large ones: what does not fit is found before anything is timed
        self._caches[bucket] = jax.block_until_ready(self._new_caches(bucket))
        self._prefill[bucket], self._decode[bucket] = prefilled, decoded  # a bucket is there whole or not at all

    def _compile_move(self, small: int, large: int) -> None:
        if (small, large) not in self._move:
            self._move[small, large] = self._compile(
                f"move-{self.shape.name}-b{self.batch_size}-{small}-{large}",
                forward.move,
                self._cache_shapes(small),
                self._cache_shapes(large),
                donate=(1,),
                out=self._cache_shardings(),
            )

    def _compile(self, name: str, function: Callable[..., Any], *arguments: Any, **options: Any) -> Callable[..., Any]:
        """Compile and keep the record: a runtime's own list holds those of its other engines too."""
        compiled = self._compiler.compile(name, function, *arguments, **options)
        self.compiles = (*self.compiles, self._compiler.compiles[-1])
        return compiled

    def _make_weights(self) -> Any:
        specs = weight_specs(self.shape)
        shardings = jax.tree.map(self._sharding, specs, is_leaf=lambda node: isinstance(node, P))
        make = self._compile(
            f"weights-{self.shape.name}",
            partial(random_weights, self.shape, dtype=self._dtype),
            jax.ShapeDtypeStruct((), np.uint32, sharding=self._sharding(P())),
            out=shardings,
        )
        return jax.block_until_ready(make(np.uint32(self._seed)))

    # -- running

    def run(self, requests: Sequence[Request]) -> Run:
        """Run seeded random prompts of these lengths; see generate()."""
        self._check_batch(requests)
        prompts = [self._random_prompt(index, request.input_tokens) for index, request in enumerate(requests)]
        return self.generate(prompts, [request.output_tokens for request in requests]).run

    def generate(self, prompts: Sequence[Prompt], output_tokens: Sequence[int]) -> Generation:
        """Greedy tokens of each prompt (int32 [l_in]), its own number of them, with the timing of the whole batch.

        Raises LengthError for an empty batch, one above the compiled size, or a length no bucket holds, ConfigError for
        a token outside the vocabulary.
        """
        requests = self._as_requests(prompts, output_tokens)
        rows = sorted(range(len(prompts)), key=lambda row: len(prompts[row]))
        padded = [self._pad(prompts[row]) for row in rows]
        self.load(self._path(len(padded[0]), max(map(_final_kv_length, requests))))
        bucket = len(padded[0])
        state = State(self._take_caches(bucket), self._new_vector(), self._new_vector())
        fetched: list[Any] = []
        trace = RunTrace()
        for row, prompt in zip(rows, padded, strict=True):
            bucket, state = self._grow(bucket, len(prompt), state, trace)
            with trace.segment(Phase.PREFILL, bucket):
                length = np.int32(len(prompts[row]))
                state = self._prefill[bucket](self._weights, state, prompt, length, np.int32(row))
                first = np.asarray(state.tokens)
        fetched.append(first)
        for kv_length in _kv_lengths(requests):
            bucket, state = self._grow(bucket, kv_length, state, trace)
            with trace.segment(Phase.DECODE, bucket):
                state = self._decode[bucket](self._weights, state)
                fetched.append(np.asarray(state.tokens))
        run = trace.finish()
        self._caches[bucket] = state.caches
        tokens = tuple(tuple(int(step[row]) for step in fetched[:count]) for row, count in enumerate(output_tokens))
        return Generation(run=run, tokens=tokens)

    def time_move(self, from_bucket: int, to_bucket: int) -> Move:
        """Move the cache between two neighbouring buckets of the set. Raises ConfigError for any other two."""
        if (from_bucket, to_bucket) not in pairwise(self.buckets):
            raise ConfigError(
                f"move {from_bucket} -> {to_bucket}: want a bucket and the next larger one of {self.buckets}"
            )
        self.load((from_bucket, to_bucket))
        trace = RunTrace()
        state = State(self._take_caches(from_bucket), self._new_vector(), self._new_vector())
        bucket, state = self._grow(from_bucket, to_bucket, state, trace)
        self._caches[bucket] = state.caches
        return trace.finish().moves[-1]

    def _grow(self, bucket: int, kv_length: int, state: State, trace: RunTrace) -> tuple[int, State]:
        """Move step by step through the set until the caches hold kv_length."""
        while bucket < kv_length:
            larger = self.buckets[self.buckets.index(bucket) + 1]
            with trace.move(bucket, larger):
                moved = self._move[bucket, larger](state.caches, self._take_caches(larger))
                jax.block_until_ready(moved)
            self._caches[bucket] = state.caches
            bucket, state = larger, state._replace(caches=moved)
        return bucket, state

    def _as_requests(self, prompts: Sequence[Prompt], output_tokens: Sequence[int]) -> list[Request]:
        if len(prompts) != len(output_tokens):
            raise LengthError(f"{len(prompts)} prompts with {len(output_tokens)} output lengths; want as many of each")
        requests = [
            Request(input_tokens=len(prompt), output_tokens=count)
            for prompt, count in zip(prompts, output_tokens, strict=True)
        ]
        self._check_batch(requests)
        for row, prompt in enumerate(prompts):
            if prompt.min() < 0 or prompt.max() >= self.shape.vocab_size:
                raise ConfigError(
                    f"request {row}: a prompt token outside the vocabulary, 0..{self.shape.vocab_size - 1}"
                )
        return requests

    def _check_batch(self, requests: Sequence[Request]) -> None:
        if not 1 <= len(requests) <= self.batch_size:
            raise LengthError(f"{len(requests)} requests; the engine is compiled for 1..{self.batch_size}")
        for row, request in enumerate(requests):
            if request.input_tokens < 1 or request.output_tokens < 1:
                raise LengthError(
                    f"request {row}: {request.input_tokens} prompt and {request.output_tokens} output tokens; "
                    "want at least 1 of each"
                )
        bucket_of(self.buckets, max(map(_final_kv_length, requests)))

    def _path(self, first: int, longest: int) -> tuple[int, ...]:
        """Every bucket from the first one to the one of the longest KV length."""
        return tuple(bucket for bucket in self.buckets if first <= bucket <= bucket_of(self.buckets, longest))

    # -- arrays

    def _random_prompt(self, index: int, length: int) -> Prompt:
        generator = np.random.default_rng((self._seed, index))
        return generator.integers(0, self.shape.vocab_size, length, dtype=np.int32)

    def _pad(self, prompt: Prompt) -> Prompt:
        padded = np.zeros(bucket_of(self.buckets, len(prompt)), np.int32)
        padded[: len(prompt)] = prompt
        return padded

    def _take_caches(self, bucket: int) -> Caches:
        """The bucket's own caches, allocated on first use. Whoever takes them puts their successors back."""
        return self._caches.pop(bucket, None) or self._new_caches(bucket)

    def _new_caches(self, bucket: int) -> Caches:
        return Caches(*(tuple(map(_zeros, shapes)) for shapes in self._cache_shapes(bucket)))

    def _new_vector(self) -> Any:
        return _zeros(self._array_shape((self.batch_size,)))

    def _cache_shapes(self, bucket: int) -> Caches:
        dims = (self.batch_size, self.shape.num_kv_heads, bucket, self.shape.head_dim)
        one = jax.ShapeDtypeStruct(dims, self._dtype, sharding=self._sharding(P(None, AXIS)))
        return Caches(*((one,) * self.shape.num_layers for _ in Caches._fields))

    def _cache_shardings(self) -> Caches:
        return Caches(*((self._sharding(P(None, AXIS)),) * self.shape.num_layers for _ in Caches._fields))

    def _array_shape(self, dims: tuple[int, ...]) -> Any:
        return jax.ShapeDtypeStruct(dims, np.int32, sharding=self._sharding(P()))

    def _sharding(self, spec: P) -> NamedSharding:
        return NamedSharding(self._mesh, spec)


def _final_kv_length(request: Request) -> int:
    """KV length once the last token is out; that token itself is never written."""
    return request.input_tokens + request.output_tokens - 1


def _kv_lengths(requests: Sequence[Request]) -> Iterator[int]:
    """max_i c_t of every decode step (LENS, Eq. 8), rows that ended frozen at their final length."""
    for step in range(max(request.output_tokens for request in requests) - 1):
        yield max(min(request.input_tokens + step + 1, _final_kv_length(request)) for request in requests)


def _zeros(shape: Any) -> Any:
    """A device array without a compile: XLA would build a binary for jnp.zeros."""
    return jax.device_put(np.zeros(shape.shape, shape.dtype), shape.sharding)


def _jax_dtype(name: str) -> Any:
    try:
        return {"fp32": jnp.float32, "bf16": jnp.bfloat16, "fp16": jnp.float16}[name]
    except KeyError:
        raise ConfigError(f"dtype {name!r} is not one the decoder computes in: fp32, bf16, fp16") from None
