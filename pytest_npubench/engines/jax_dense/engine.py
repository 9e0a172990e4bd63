"""The reference decoder in jax: one prefill and one decode binary per bucket and batch size (static_buckets.py).

The caches of all loaded buckets stay allocated, as each compiled bucket of an NPU owns its buffers (LENS, 5.4.2).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from pytest_npubench.core.buckets import bucket_of, check_buckets
from pytest_npubench.core.measurement import CompileRecord
from pytest_npubench.engines.canary_kernels import CanaryKernels
from pytest_npubench.engines.jax_dense import forward
from pytest_npubench.engines.jax_dense.forward import Caches, DecoderState
from pytest_npubench.engines.jax_dense.graph_form import graph_form
from pytest_npubench.engines.jax_dense.memory import check_tensor_parallel
from pytest_npubench.engines.jax_dense.weights import AXIS, random_weights, weight_specs
from pytest_npubench.engines.protocol import Canaries, Compiler
from pytest_npubench.engines.request_batch import Prompt
from pytest_npubench.engines.shapes import DecoderShape
from pytest_npubench.engines.static_buckets import StaticBuckets
from pytest_npubench.errors import ConfigError


class StaticBucketEngine(StaticBuckets):
    """See the module. Raises ConfigError for a bucket set, dtype or device count the shape cannot have."""

    name = "jax-dense"

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
        self._prefill: dict[int, Callable[..., DecoderState]] = {}
        self._decode: dict[int, Callable[..., DecoderState]] = {}
        self._move: dict[tuple[int, int], Callable[..., Caches]] = {}
        self._caches: dict[int, Caches] = {}
        self._state: Any = None
        self._prompts: list[tuple[Prompt, np.int32]] = []
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
        state, prompt = DecoderState(self._cache_shapes(bucket), vector, vector), self._array_shape((bucket,))
        whole = self._sharding(P())
        compiled = partial(self._compile, donate=(1,), out=DecoderState(self._cache_shardings(), whole, whole))
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

    # -- running (static_buckets.py)

    def _begin(self, bucket: int, prompts: Sequence[Prompt]) -> None:
        self._state = None  # what a batch that failed left is gone before anything is allocated
        self._state = DecoderState(self._take_caches(bucket), self._new_vector(), self._new_vector())
        self._prompts = [(self._pad(prompt), np.int32(len(prompt))) for prompt in prompts]

    def _prefill_row(self, bucket: int, row: int) -> Prompt:
        padded, length = self._prompts[row]
        self._state = self._prefill[bucket](self._weights, self._state, padded, length, np.int32(row))
        return np.asarray(self._state.tokens)

    def _decode_step(self, bucket: int) -> Prompt:
        self._state = self._decode[bucket](self._weights, self._state)
        return np.asarray(self._state.tokens)

    def _move_caches(self, bucket: int, larger: int) -> None:
        moved = self._move[bucket, larger](self._state.caches, self._take_caches(larger))
        jax.block_until_ready(moved)
        self._caches[bucket] = self._state.caches
        self._state = self._state._replace(caches=moved)

    def _end(self, bucket: int) -> None:
        self._caches[bucket], self._state = self._state.caches, None

    # -- arrays

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


def _zeros(shape: Any) -> Any:
    """A device array without a compile: XLA would build a binary for jnp.zeros."""
    return jax.device_put(np.zeros(shape.shape, shape.dtype), shape.sharding)


def _jax_dtype(name: str) -> Any:
    try:
        return {"fp32": jnp.float32, "bf16": jnp.bfloat16, "fp16": jnp.float16}[name]
    except KeyError:
        raise ConfigError(f"dtype {name!r} is not one the decoder computes in: fp32, bf16, fp16") from None
