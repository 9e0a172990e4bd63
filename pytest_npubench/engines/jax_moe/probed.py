"""The engine as it is asked for its answers: the same binaries on probe weights, with prompts and tokens told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from pytest_npubench.engines.jax_moe.executor import JaxExecutor
from pytest_npubench.engines.jax_moe.forward import Weights
from pytest_npubench.engines.jax_moe.weights import with_copies
from pytest_npubench.engines.probe import Floats, probe_final_norm, probe_layer, probe_table, weights_bits
from pytest_npubench.engines.protocol import Compiler
from pytest_npubench.engines.sequences import JUNK_SPREAD, AskedRequests, AskedSequences
from pytest_npubench.engines.shapes import DecoderShape


class ProbedJaxExecutor(AskedRequests, JaxExecutor):
    """An iteration.Executor whose requests are those of `ask`."""

    _sequences: AskedSequences

    def __init__(self, shape: DecoderShape, compiler: Compiler, *, dtype: str, **settings: Any) -> None:
        self._dtype_name, self._made_bits = dtype, 0
        super().__init__(shape, compiler, dtype=dtype, **settings)
        self.ask(())

    def weights_bits(self) -> tuple[int, int]:
        """A checksum of the weights as the devices have them, and of those the host made."""
        return int(self._compiled(self._programs.checksum())(self._weights)), self._made_bits

    def fill_cache_with_junk(self) -> None:
        """Fills the slots without a request with junk, which must not change an answer."""
        del self._state  # never two of them on the devices
        self._state = self._filled_state(np.float32(JUNK_SPREAD))

    def _next_tokens(self, requests: Sequence[int], slots: Sequence[int]) -> dict[int, int]:
        """What each request goes on with; behind its last forced token that is the model's own."""
        tokens, logits = self._fetched(slots)
        return {
            request: self._sequences.answered(request, row, token)
            for request, row, token in zip(requests, logits, tokens.tolist(), strict=True)
        }

    def _make_weights(self, seed: int) -> Weights:
        """Seeded weights, with those of probe.py put in their place a layer at a time."""
        shape, dtype, weights = self.shape, self._dtype_name, super()._make_weights(seed)
        with_layer: Any = None
        for index in range(shape.num_layers):
            made = probe_layer(shape, index, dtype)
            made |= {name: with_copies(made[name], shape.head_dim, self._programs.copies) for name in ("wk", "wv")}
            layer = {name: self._narrow(values) for name, values in made.items()}
            if "router_bias" in weights:
                layer["router_bias"] = self._narrow(np.zeros(shape.num_experts, np.float32))
            with_layer = with_layer or self._compiled(self._programs.with_layer(layer))
            weights = with_layer(weights, layer, np.int32(index))
        whole: dict[str, Floats] = {"final_norm": probe_final_norm(shape, dtype)}
        whole |= {name: probe_table(shape, name, dtype) for name in ("embedding", "head") if name in weights}
        put = {name: jax.device_put(self._narrow(array), weights[name].sharding) for name, array in whole.items()}
        return {**weights, **put}

    def _narrow(self, values: Floats) -> Any:
        """The values in the engine's dtype, which holds them exactly; their bits are summed up."""
        narrow = values.astype(self._programs.dtype)
        self._made_bits = (self._made_bits + weights_bits([narrow])) % 2**32
        return narrow
