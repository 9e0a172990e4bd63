"""The reference decoder in jax: one prefill and one decode binary per bucket and batch size (static_buckets.py).

The caches of all loaded buckets stay allocated, as each compiled bucket of an NPU owns its buffers (LENS, 5.4.2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import jax
import numpy as np

from pytest_npubench.core.buckets import check_buckets
from pytest_npubench.core.measurement import CompileRecord
from pytest_npubench.engines.answer_walk import AnsweringBuckets
from pytest_npubench.engines.answers import Logits
from pytest_npubench.engines.canary_kernels import CanaryKernels
from pytest_npubench.engines.jax_dense.binaries import Binary, DecoderBinaries
from pytest_npubench.engines.jax_dense.forward import Caches, DecoderState
from pytest_npubench.engines.jax_dense.operators import DecoderOperators
from pytest_npubench.engines.jax_dense.parts import DecoderParts
from pytest_npubench.engines.probe import probe_weights, weights_bits
from pytest_npubench.engines.protocol import Canaries, Compiler, Parts
from pytest_npubench.engines.request_batch import Prompt
from pytest_npubench.engines.shapes import DecoderShape
from pytest_npubench.errors import ConfigError, MeasurementError


class StaticBucketEngine(AnsweringBuckets):
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
        weights: Any = None,
    ) -> None:
        """weights: those of an engine of the same shape, dtype and devices that this one shares; None: it makes its
        own."""
        if jax.config.jax_enable_x64:
            raise ConfigError("JAX_ENABLE_X64 is on: the suites' decoder counts in 32 bits; switch it off for this run")
        self.shape = shape
        self.buckets = check_buckets(buckets)
        self.batch_size = batch_size
        self.compiles: Sequence[CompileRecord] = ()
        self.canaries: Canaries | None = CanaryKernels(compiler)
        self._compiler = compiler
        self._seed, self._dtype = seed, dtype
        self._binaries = DecoderBinaries(shape, compiler.devices, batch_size=batch_size, dtype=dtype)
        self._prefill: dict[int, Callable[..., DecoderState]] = {}
        self._decode: dict[int, Callable[..., tuple[DecoderState, Any]]] = {}
        self._move: dict[tuple[int, int], Callable[..., Caches]] = {}
        self._compiled: dict[str, Any] = {}
        self._caches: dict[int, Caches] = {}
        self._state: Any = None
        self._vectors: tuple[Any, Any, Any] | None = None  # tokens, lengths and logits that the batch before left
        self._make_weights = self._compile(self._binaries.weights())
        self.weights = self._seeded_weights() if weights is None else weights
        self.parts: Parts | None = DecoderParts(self, lambda: DecoderOperators(self._binaries, compiler, self.weights))

    @property
    def starts_ahead(self) -> bool:
        return bool(self._compiler.devices[0].platform != "cpu")

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
        prefilled = self._compile(self._binaries.prefill(bucket))
        decoded = self._compile(self._binaries.decode(bucket))
        # now, small buckets before large ones: what does not fit is found before anything is timed
        self._caches[bucket] = jax.block_until_ready(self._new_caches(bucket))
        self._prefill[bucket], self._decode[bucket] = prefilled, decoded  # a bucket is there whole or not at all

    def load_slots(self) -> None:
        super().load_slots()
        for small, large in pairwise(self.buckets):
            self._compile_move(large, small)

    def _compile_move(self, bucket: int, neighbour: int) -> None:
        if (bucket, neighbour) not in self._move:
            self._move[bucket, neighbour] = self._compile(self._binaries.move(bucket, neighbour))

    def _compile(self, binary: Binary) -> Callable[..., Any]:
        """Compiles a binary and keeps its record: a runtime's list holds other engines' records too."""
        compiled = self._compiler.compile(
            binary.name, binary.function, *binary.arguments, donate=binary.donate, out=binary.out
        )
        self.compiles = (*self.compiles, self._compiler.compiles[-1])
        self._compiled[binary.name] = compiled
        return compiled

    def module(self, name: str) -> str:
        if name not in self._compiled:
            raise MeasurementError(f"{name} is no binary of {self.name}")
        return str(self._compiled[name].as_text())

    # -- running (static_buckets.py)

    def begin(self, bucket: int) -> None:
        self._state = None  # what a batch that failed left is gone before anything is allocated
        vectors = self._vectors or (self._new_vector(), self._new_vector(), _zeros(self._binaries.fixed_logits()))
        self._vectors = None
        self._state = DecoderState(self._take_caches(bucket), *vectors)

    def prefill_row(self, bucket: int, row: int, prompt: Prompt) -> Prompt:
        padded = np.full(bucket, self.padding_token, np.int32)
        padded[: len(prompt)] = prompt
        self._state = self._prefill[bucket](self.weights, self._state, padded, np.int32(len(prompt)), np.int32(row))
        return np.asarray(self._state.tokens)

    def start_step(self, bucket: int) -> Callable[[], Prompt]:
        before = self._state
        kept, tokens = self._decode[bucket](
            self.weights, DecoderState(before.caches, None, before.lengths), before.tokens
        )
        self._state = DecoderState(kept.caches, tokens, kept.lengths, kept.fixed_logits)
        if self.starts_ahead:
            tokens.copy_to_host_async()
        return lambda: np.asarray(tokens)

    def force(self, tokens: Prompt, lengths: Prompt | None = None) -> None:
        forced = {"tokens": tokens} if lengths is None else {"tokens": tokens, "lengths": lengths}
        self._state = self._state._replace(**jax.device_put(forced, self._state.tokens.sharding))

    def fixed_logits(self) -> Logits:
        return np.asarray(self._state.fixed_logits, np.float64)

    def move_caches(self, bucket: int, neighbour: int) -> None:
        moved = self._move[bucket, neighbour](self._state.caches, self._take_caches(neighbour))
        jax.block_until_ready(moved)
        self._caches[bucket] = self._state.caches
        self._state = self._state._replace(caches=moved)

    def end(self, bucket: int) -> None:
        state, self._state = self._state, None
        self._caches[bucket], self._vectors = state.caches, (state.tokens, state.lengths, state.fixed_logits)

    # -- weights

    @contextmanager
    def probe_weights(self) -> Iterator[tuple[int, int]]:
        self.weights = None  # never two sets on the devices
        try:
            made_bits, self.weights = self._placed_probe()
            yield weights_bits(map(np.asarray, jax.tree.leaves(self.weights))), made_bits
        finally:
            self.weights = None
            self.weights = self._seeded_weights()

    def _placed_probe(self) -> tuple[int, Any]:
        """The checksum of the host's probe weights, and the tree of them on the devices."""
        bits: list[int] = []

        def put(path: tuple[str | int, ...], values: Any) -> Any:
            like: Any = self._binaries.weight_shapes
            for key in path:
                like = like[key]
            narrow = values.astype(like.dtype)
            bits.append(weights_bits([narrow]))
            return jax.device_put(narrow, like.sharding)

        tree = probe_weights(self.shape, self._dtype, put)
        return sum(bits) % 2**32, jax.block_until_ready(tree)

    def _seeded_weights(self) -> Any:
        return jax.block_until_ready(self._make_weights(np.uint32(self._seed)))

    # -- arrays

    def _take_caches(self, bucket: int) -> Caches:
        """The bucket's own caches, allocated on first use. Whoever takes them puts their successors back."""
        return self._caches.pop(bucket, None) or self._new_caches(bucket)

    def _new_caches(self, bucket: int) -> Caches:
        return Caches(*(tuple(map(_zeros, shapes)) for shapes in self._binaries.caches(bucket)))

    def _new_vector(self) -> Any:
        return _zeros(self._binaries.vector((self.batch_size,)))


def _zeros(shape: Any) -> Any:
    """A device array without a compile: XLA would build a binary for jnp.zeros."""
    return jax.device_put(np.zeros(shape.shape, shape.dtype), shape.sharding)
