"""What the reference decoder in jax compiles, and nothing else: functions, shapes, shardings and what they donate.

The engine compiles these for devices that it runs on, a compiler without a device for those that it is told of. No
array is made here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from pytest_npubench.engines.jax_dense import forward
from pytest_npubench.engines.jax_dense.forward import Caches, DecoderState
from pytest_npubench.engines.jax_dense.graph_form import GraphForm, graph_form
from pytest_npubench.engines.jax_dense.memory import check_tensor_parallel
from pytest_npubench.engines.jax_dense.weights import AXIS, random_weights, weight_specs
from pytest_npubench.engines.probe import NUM_FIXED
from pytest_npubench.engines.shapes import DecoderShape
from pytest_npubench.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Binary:
    """What one binary is compiled from. `donate`: the arguments whose buffers become its results; `out`: shardings of
    its results."""

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    donate: tuple[int, ...] = ()
    out: Any = None


class DecoderBinaries:
    """The binaries of one shape and batch size on these devices, by default in their platform's form. Raises
    ConfigError for a dtype or a number of devices that the shape cannot have."""

    def __init__(
        self, shape: DecoderShape, devices: Sequence[Any], *, batch_size: int, dtype: str, form: GraphForm | None = None
    ) -> None:
        check_tensor_parallel(shape, len(devices))
        if batch_size < 1:
            raise ConfigError(f"batch_size is {batch_size}; want at least 1")
        self.shape, self.batch_size, self.dtype = shape, batch_size, jax_dtype(dtype)
        self.mesh = Mesh(np.array(devices), (AXIS,))
        self.form = form or graph_form(devices[0].platform, self.mesh)

    def weights(self) -> Binary:
        """Makes the weights from a seed, uint32."""
        return Binary(
            name=f"weights-{self.shape.name}",
            function=partial(random_weights, self.shape, dtype=self.dtype),
            arguments=(jax.ShapeDtypeStruct((), np.uint32, sharding=self.sharding()),),
            out=self._weight_shardings,
        )

    def prefill(self, bucket: int) -> Binary:
        """(weights, state, prompt [bucket], its length, its row) to the state after it."""
        scalar = self.vector(())
        arguments = (self.weight_shapes, self.state(bucket), self.vector((bucket,)), scalar, scalar)
        step = partial(forward.prefill, self.shape, form=self.form)
        return self._step("prefill", bucket, step, arguments, self._state_shardings)

    def decode(self, bucket: int) -> Binary:
        """(weights, caches and lengths of a state, tokens) to the state without its tokens, and these, after one token
        of every row. The tokens are not donated: they can be fetched while the next step runs."""
        step = partial(_decode_apart, partial(forward.decode, self.shape, form=self.form))
        kept, tokens = _apart(self.state(bucket))
        return self._step(
            "decode",
            bucket,
            step,
            (self.weight_shapes, kept._replace(fixed_logits=None), tokens),
            _apart(self._state_shardings),
        )

    def move(self, bucket: int, neighbour: int) -> Binary:
        """(caches of one bucket, of its neighbour) to the neighbour's."""
        return Binary(
            name=f"move-{self._label}-{bucket}-{neighbour}",
            function=forward.move,
            arguments=(self.caches(bucket), self.caches(neighbour)),
            donate=(1,),
            out=self._cache_shardings,
        )

    def caches(self, bucket: int) -> Caches:
        """Shapes [batch, KV heads, bucket, head dimension] of every layer's keys and values."""
        dims = (self.batch_size, self.shape.num_kv_heads, bucket, self.shape.head_dim)
        layer = jax.ShapeDtypeStruct(dims, self.dtype, sharding=self.sharding(heads_axis=1))
        return Caches(*((layer,) * self.shape.num_layers for _ in Caches._fields))

    def state(self, bucket: int) -> DecoderState:
        vector = self.vector((self.batch_size,))
        return DecoderState(self.caches(bucket), vector, vector, self.fixed_logits())

    def vector(self, dims: tuple[int, ...]) -> Any:
        """An int32 array, whole on every device."""
        return jax.ShapeDtypeStruct(dims, np.int32, sharding=self.sharding())

    def fixed_logits(self) -> Any:
        """A float32 array, whole on every device."""
        return jax.ShapeDtypeStruct((self.batch_size, NUM_FIXED), np.float32, sharding=self.sharding())

    def _step(self, phase: str, bucket: int, step: Callable[..., Any], arguments: tuple[Any, ...], out: Any) -> Binary:
        name = f"{phase}-{self._label}-{bucket}"
        return Binary(name=name, function=step, arguments=arguments, donate=(1,), out=out)

    @property
    def _label(self) -> str:
        return f"{self.shape.name}-b{self.batch_size}"

    @cached_property
    def weight_shapes(self) -> Any:
        made = jax.eval_shape(self.weights().function, jax.ShapeDtypeStruct((), np.uint32))
        return jax.tree.map(
            lambda weight, sharding: jax.ShapeDtypeStruct(weight.shape, weight.dtype, sharding=sharding),
            made,
            self._weight_shardings,
        )

    @cached_property
    def _weight_shardings(self) -> Any:
        specs = weight_specs(self.shape)
        return jax.tree.map(self._sharding, specs, is_leaf=lambda node: isinstance(node, P))

    @property
    def _cache_shardings(self) -> Caches:
        return Caches(*((self.sharding(heads_axis=1),) * self.shape.num_layers for _ in Caches._fields))

    @property
    def _state_shardings(self) -> DecoderState:
        whole = self.sharding()
        return DecoderState(self._cache_shardings, whole, whole, whole)

    def sharding(self, heads_axis: int | None = None) -> NamedSharding:
        """The sharding of an array whose heads lie on that axis; without an axis it is whole on every device."""
        return self._sharding(P() if heads_axis is None else P(*(None,) * heads_axis, AXIS))

    def _sharding(self, spec: P) -> NamedSharding:
        return NamedSharding(self.mesh, spec)


def _decode_apart(decode: Callable[..., DecoderState], weights: Any, kept: DecoderState, tokens: Any) -> Any:
    return _apart(decode(weights, kept._replace(tokens=tokens)))


def _apart(state: DecoderState) -> tuple[DecoderState, Any]:
    return state._replace(tokens=None), state.tokens


def jax_dtype(name: str) -> Any:
    try:
        return {"fp32": jnp.float32, "bf16": jnp.bfloat16, "fp16": jnp.float16}[name]
    except KeyError:
        raise ConfigError(f"dtype {name!r} is not one the decoder computes in: fp32, bf16, fp16") from None
