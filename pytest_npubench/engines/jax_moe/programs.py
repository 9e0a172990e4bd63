"""What each binary of a serving engine is made from. No array is made here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from pytest_npubench.engines.jax_dense.binaries import Binary, jax_dtype
from pytest_npubench.engines.jax_moe import why_not_served
from pytest_npubench.engines.jax_moe.forward import AXIS, Batch, Kernels, State, next_tokens, run_layers
from pytest_npubench.engines.jax_moe.plain_kernels import PlainKernels
from pytest_npubench.engines.jax_moe.sizes import ServingSizes, Size
from pytest_npubench.engines.jax_moe.tpu_kernels import TpuKernels
from pytest_npubench.engines.jax_moe.weights import checksum, random_weights, stacked_dims, weight_specs, with_layer
from pytest_npubench.engines.shapes import DecoderShape
from pytest_npubench.errors import ConfigError


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
