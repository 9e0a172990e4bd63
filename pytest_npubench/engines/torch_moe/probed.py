"""The engine as it is asked for its answers: probe weights, prompts that are told, tokens that are forced.

A plan runs as it does when it is timed, by the same code. What differs is the weights, where a prompt's tokens are
from, and that a request goes on with the token that it is told, while the logits beside that token are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pytest_npubench.engines.probe import (
    Floats,
    fixed_tokens,
    probe_final_norm,
    probe_layer,
    probe_table,
)
from pytest_npubench.engines.sequences import JUNK_SPREAD, AskedRequests, AskedSequences
from pytest_npubench.engines.shapes import DecoderShape
from pytest_npubench.engines.torch_moe.executor import TorchExecutor, num_threads
from pytest_npubench.engines.torch_moe.packing import packed_layer
from pytest_npubench.engines.torch_moe.weights import LayerWeights, ModelWeights

SMALL_PARAMETERS = 1e8  # active: all pairs take some seconds on one thread


class ProbedExecutor(AskedRequests, TorchExecutor):
    """An iteration.Executor whose requests are those of `ask`."""

    _sequences: AskedSequences

    def __init__(self, shape: DecoderShape, *, dtype: str, **settings: Any) -> None:
        self._dtype_name = dtype
        super().__init__(shape, dtype=dtype, **settings)
        self._fixed = torch.tensor(fixed_tokens(shape.vocab_size), device=self._device)
        self.ask(())

    def weights_bits(self) -> tuple[int, int]:
        """Returns a checksum of the weights as the device has them, and of those the host made: sums of the bits as
        whole numbers, modulo 2^32."""
        return self._put.device_bits % 2**32, self._put.made_bits % 2**32

    def fill_cache_with_junk(self) -> None:
        """Fills the slots without a request with junk, which must not change an answer."""
        generator = torch.Generator(self._device).manual_seed(1)
        for cache in (self._kv.keys, self._kv.values):
            cache[0].normal_(0, JUNK_SPREAD, generator=generator)
            cache[1:] = cache[0]

    @contextmanager
    def on_one_thread(self) -> Iterator[None]:
        """Products of a small model are so short that threads on processors which others use too wait for each other
        most of the time. Another number of threads is as harmless a change as another policy."""
        before = num_threads()
        if self.shape.num_active_parameters <= SMALL_PARAMETERS:
            torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(before)

    def _next_tokens(self, requests: Sequence[int], hidden: list[Tensor]) -> Tensor:
        """What each request goes on with; behind its last forced token that is the model's own."""
        if not requests:
            return super()._next_tokens(requests, hidden)
        logits = self._model.logits(torch.cat(hidden))
        fixed = logits[:, self._fixed].double().cpu().numpy()
        tokens = logits.argmax(-1).tolist()
        for row, request in enumerate(requests):
            tokens[row] = self._sequences.answered(request, fixed[row], tokens[row])
        return torch.tensor(tokens, device=self._device)

    def _make_weights(self, seed: int, folder: Path | None) -> ModelWeights:
        self._put = _Put(self._device, self._dtype)
        with self.on_one_thread():
            return probed_weights(self.shape, self._dtype_name, self._put)


class _Put:
    """Puts tensors on the device, and sums up their bits on both sides."""

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self._device, self._dtype = device, dtype
        self._whole = torch.int16 if dtype.itemsize == 2 else torch.int32
        self.device_bits = self.made_bits = 0

    def __call__(self, values: Floats) -> Tensor:
        made = torch.from_numpy(values).to(self._dtype)
        put = made.to(self._device)
        bits = self._bits(made)
        self.made_bits += bits
        self.device_bits += bits if put is made else self._bits(put)  # on a host they are the same memory
        return put

    def _bits(self, values: Tensor) -> int:
        """Modulo 2^32: a sum of 32 bits wraps around, and takes a tenth of the time of one of 64."""
        return int(values.view(self._whole).sum(dtype=torch.int32))


def probed_weights(shape: DecoderShape, dtype_name: str, put: Callable[[Floats], Tensor]) -> ModelWeights:
    """Returns the weights of probe.py, which the dtype holds exactly, made and packed a layer at a time."""
    embedding = put(probe_table(shape, "embedding", dtype_name))
    return ModelWeights(
        embedding=embedding,
        layers=tuple(
            packed_layer(
                _layer(shape, {name: put(values) for name, values in probe_layer(shape, index, dtype_name).items()})
            )
            for index in range(shape.num_layers)
        ),
        final_norm=put(probe_final_norm(shape, dtype_name)),
        head=embedding if shape.tied_embeddings else put(probe_table(shape, "head", dtype_name)),
    )


def _layer(shape: DecoderShape, made: Mapping[str, Tensor]) -> LayerWeights:
    """Returns a layer of tensors by probe.py's names, whose matrices are [in, out]."""

    def biases(*names: str) -> Tensor | None:
        return torch.cat([made[name] for name in names], -1) if names[0] in made else None

    def matrices(*names: str) -> Tensor:
        """[..., in, out] beside each other to [E, out, in]."""
        whole = torch.cat([made[name].transpose(-1, -2) for name in names], -2).contiguous()
        return whole if whole.dim() == 3 else whole[None]

    norms = ((made.get("q_norm"), shape.num_heads), (made.get("k_norm"), shape.num_kv_heads))
    qk_norm = [norm.expand(number, -1) for norm, number in norms if norm is not None]
    router = made.get("router")
    return LayerWeights(
        attention_norm=made["attention_norm"],
        qkv=matrices("wq", "wk", "wv")[0],
        qkv_bias=biases("bq", "bk", "bv"),
        out=matrices("wo")[0],
        out_bias=made.get("bo"),
        qk_norm=torch.cat(qk_norm) if qk_norm else None,
        sinks=made.get("sinks"),
        ffn_norm=made["ffn_norm"],
        router=None if router is None else router.T.contiguous(),
        router_bias=made.get("router_bias"),
        gate_up=matrices("w_gate", "w_up"),
        gate_up_bias=biases("b_gate", "b_up"),
        down=matrices("w_down"),
        down_bias=made.get("b_down"),
    )
