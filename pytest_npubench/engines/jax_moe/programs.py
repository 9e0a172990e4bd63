"""The sizes that a serving engine is compiled for, and what each binary is made from. No array is made here.

A size has room for num_single sequences of one token and num_prefill tokens of prompts. Worked example: a chunk of 512
tokens, batches of at most 128: 8, 32 and 128 single tokens, then 512, 1024, 2048, 4096 and 8192 tokens of prompts
beside 128 single ones, and the head: 9 binaries, which all policies share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from pytest_npubench.engines.jax_dense.binaries import Binary, jax_dtype
from pytest_npubench.engines.jax_moe import why_not_served
from pytest_npubench.engines.jax_moe.forward import AXIS, Batch, Kernels, State, next_tokens, run_layers
from pytest_npubench.engines.jax_moe.plain_kernels import KEYS, PlainKernels
from pytest_npubench.engines.jax_moe.tpu_kernels import TpuKernels
from pytest_npubench.engines.jax_moe.weights import checksum, random_weights, stacked_dims, weight_specs, with_layer
from pytest_npubench.engines.shapes import DecoderShape
from pytest_npubench.errors import ConfigError

FEW, TIMES = 8, 4  # the smallest size of single tokens, and how much larger the next one is
MOST_CHUNKS = 16  # of the largest size; longer passes run in pieces
NUM_PROMPTS = 32  # sequences of prompts in a pass
LONGEST_CONTEXT = 32_768  # of a sequence, where the cache holds more: page tables lie in a TPU's small scalar memory


class Size(NamedTuple):
    """num_single tokens that are a sequence each, then num_prefill tokens of at most num_prompts sequences."""

    num_single: int
    num_prefill: int = 0
    num_prompts: int = 0

    @property
    def num_tokens(self) -> int:
        return self.num_single + self.num_prefill

    @property
    def num_sequences(self) -> int:
        return self.num_single + self.num_prompts


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingSizes:
    """What decides the sizes: chunk_tokens are the prefill tokens of an iteration."""

    kv_capacity_tokens: int
    block_size_tokens: int
    chunk_tokens: int
    max_batch_size: int

    @property
    def decode(self) -> tuple[Size, ...]:
        """Ascending."""
        most = -(-self.max_batch_size // FEW) * FEW
        sizes = [FEW]
        while sizes[-1] * TIMES < most:
            sizes.append(sizes[-1] * TIMES)
        return tuple(map(Size, dict.fromkeys((*sizes, most))))

    @property
    def passes(self) -> tuple[Size, ...]:
        """Ascending."""
        num_single, chunk = self.decode[-1].num_single, -(-self.chunk_tokens // FEW) * FEW
        doublings = range(MOST_CHUNKS.bit_length())
        lengths = [chunk << index for index in doublings if index == 0 or chunk << index < 2 * self.kv_capacity_tokens]
        return tuple(Size(num_single, length, NUM_PROMPTS) for length in lengths)

    @property
    def longest_context(self) -> int:
        return min(self.kv_capacity_tokens, LONGEST_CONTEXT)

    @property
    def num_pages(self) -> int:
        """Of a sequence, in whole steps of the attention."""
        step = max(1, KEYS // self.block_size_tokens)
        return -(-self.longest_context // self.block_size_tokens // step) * step

    @property
    def num_layer_pages(self) -> int:
        """Of a layer's part of the pool: behind those that are lent, scratch for a token of every row."""
        scratch = -(-(self.decode[-1].num_single + 1) // self.block_size_tokens)
        return self.kv_capacity_tokens // self.block_size_tokens + scratch


class ServingPrograms:
    """The binaries of one shape on these devices. Raises ConfigError for a dtype, a number of devices or a shape that
    they cannot have."""

    def __init__(self, shape: DecoderShape, devices: Sequence[Any], *, dtype: str, sizes: ServingSizes) -> None:
        self.shape, self.sizes, self.dtype = shape, sizes, jax_dtype(dtype)
        self._kernels: Kernels = TpuKernels() if devices[0].platform == "tpu" else PlainKernels()
        if why := why_not_served(shape, devices[0].platform, len(devices)):
            raise ConfigError(why)
        self.copies = max(1, len(devices) // shape.num_kv_heads)
        self._mesh = Mesh(np.array(devices), (AXIS,))

    @cached_property
    def weights(self) -> dict[str, Any]:
        specs = weight_specs(self.shape)
        every = stacked_dims(self.shape, self.copies)
        return {name: self._array(dims, self.dtype, specs[name]) for name, dims in every.items()}

    @cached_property
    def state(self) -> State:
        shape, page_size = self.shape, self.sizes.block_size_tokens
        num_pages = self.sizes.num_layer_pages
        pool = (shape.num_layers * num_pages, page_size, 2 * shape.num_kv_heads * self.copies, shape.head_dim)
        return State(
            self._array(pool, self.dtype, POOL_SPEC), self._array((num_pages * page_size, shape.hidden), self.dtype)
        )

    def filled_state(self) -> Binary:
        """(spread, float32) to a state of random numbers of that spread; of zeros where it is 0."""

        def filled(spread: Any) -> State:
            keys = State(*jax.random.split(jax.random.key(1)))
            made: State = jax.tree.map(
                lambda key, array: jax.random.normal(key, array.shape, array.dtype) * spread.astype(array.dtype),
                keys,
                self.state,
            )
            return made

        out = jax.tree.map(lambda array: array.sharding, self.state)
        return self._binary("state", filled, (self._array((), np.float32),), out=out)

    def layers(self, size: Size) -> Binary:
        """(weights, state, batch, first, stop) to the state and what was loaded (forward.run_layers)."""
        specs = State(POOL_SPEC, P())
        shared_out = jax.shard_map(
            partial(run_layers, self.shape, self._kernels, size.num_single),
            mesh=self._mesh,
            in_specs=(weight_specs(self.shape), specs, Batch(*[P()] * len(Batch._fields)), P(), P()),
            out_specs=(specs, P()),
            check_vma=False,
        )
        scalar = self._numbers(())
        arguments = (self.weights, self.state, self.batch(size), scalar, scalar)
        return self._binary(f"layers-{size.num_single}-{size.num_prefill}", shared_out, arguments, donate=(1,))

    def batch(self, size: Size) -> Batch:
        tokens, sequences = self._numbers((size.num_tokens,)), size.num_sequences
        return Batch(
            tokens=tokens,
            positions=tokens,
            slots=tokens,
            ranks=tokens,
            lengths=self._numbers((sequences,)),
            pages=self._numbers((sequences, self.sizes.num_pages)),
            starts=self._numbers((sequences + 1,)),
            num_sequences=self._numbers((1,)),
        )

    def head(self) -> Binary:
        """(weights, hidden states, slots [rows]) to tokens and fixed logits (forward.next_tokens)."""
        slots = self._numbers((self.sizes.decode[-1].num_single,))
        arguments = (self.weights, self.state.hidden, slots)
        return self._binary("head", partial(next_tokens, self.shape), arguments)

    def random_weights(self) -> Binary:
        """Of a seed, uint32."""
        made = partial(random_weights, self.shape, dtype=self.dtype, copies=self.copies)
        out = {name: array.sharding for name, array in self.weights.items()}
        return self._binary("weights", made, (self._array((), np.uint32),), out=out)

    def with_layer(self, layer: dict[str, Any]) -> Binary:
        """(weights, a layer's, its index) to the weights, in place."""
        values = {name: self._array(array.shape, self.dtype) for name, array in layer.items()}
        return self._binary("with-layer", with_layer, (self.weights, values, self._numbers(())), donate=(0,))

    def checksum(self) -> Binary:
        return self._binary("checksum", checksum, (self.weights,))

    def _binary(
        self,
        name: str,
        function: Callable[..., Any],
        arguments: tuple[Any, ...],
        *,
        donate: tuple[int, ...] = (),
        out: Any = None,
    ) -> Binary:
        return Binary(name=f"{name}-{self.shape.name}", function=function, arguments=arguments, donate=donate, out=out)

    def _array(self, dims: tuple[int, ...], dtype: Any, spec: P = P()) -> Any:  # noqa: B008 - it has no state
        return jax.ShapeDtypeStruct(dims, dtype, sharding=NamedSharding(self._mesh, spec))

    def _numbers(self, dims: tuple[int, ...]) -> Any:
        return self._array(dims, np.int32)


POOL_SPEC = P(None, None, AXIS, None)
