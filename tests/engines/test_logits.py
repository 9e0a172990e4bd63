"""Logits of prefill and of every decode step against the oracle: float32 to 5e-5, bfloat16 to 3 % of their spread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import pytest

from pytest_npubench.engines.jax_dense import forward
from pytest_npubench.engines.jax_dense.forward import Caches, DecoderState
from pytest_npubench.engines.shapes import DecoderShape

from . import oracle
from .conftest import Served
from .decoders import BATCH_SIZE, Asked

BUCKET = 300
ROW = 1  # neither the first nor the last, so that a wrong row index shows
FP32_TOLERANCE = 5e-5  # the largest error seen is 1e-5

Logits = Iterator[npt.NDArray[np.float32]]


class Steps:
    """The jitted parts of one shape on one device, compiled once for all lengths."""

    def __init__(self, shape: DecoderShape, weights: Any, device: Any) -> None:
        parts = (forward.prefill_hidden, forward.decode_hidden, forward.logits)
        self._prefill, self._decode, self._logits = (jax.jit(partial(part, shape)) for part in parts)
        self._shape, self._device = shape, device
        self.weights = self.put(jax.tree.map(np.asarray, weights))

    def put(self, tree: Any) -> Any:
        return jax.device_put(tree, self._device)

    def caches(self, value: float) -> Caches:
        """Caches of BUCKET filled with one number."""
        dims = (BATCH_SIZE, self._shape.num_kv_heads, BUCKET, self._shape.head_dim)
        one = np.full(dims, value, self.weights["embedding"].dtype)
        return Caches(*(self.put((one,) * self._shape.num_layers) for _ in Caches._fields))

    def prefill(self, prompt: npt.NDArray[np.int32], caches: Caches) -> tuple[Any, Caches]:
        padded = self.put(np.pad(prompt, (0, BUCKET - len(prompt))))
        hidden, caches = self._prefill(self.weights, caches, padded, np.int32(len(prompt)), np.int32(ROW))
        return hidden, caches

    def logits(self, asked: Asked, caches: Caches) -> Logits:
        """Logits [vocab] of prefill, then of each decode step, fed with the oracle's own tokens."""
        hidden, caches = self.prefill(asked.prompt, caches)
        yield np.asarray(self._logits(self.weights, hidden))[0]
        for step, token in enumerate(asked.answer.tokens[:-1]):
            tokens, lengths = np.zeros((2, BATCH_SIZE), np.int32)
            tokens[ROW], lengths[ROW] = token, len(asked.prompt) + step
            hidden, caches = self._decode(self.weights, DecoderState(caches, self.put(tokens), self.put(lengths)))
            yield np.asarray(self._logits(self.weights, hidden))[ROW]


@pytest.fixture(scope="module")
def steps(served: Served, runtime: Any) -> Steps:
    return Steps(served.engine.shape, served.engine.weights, runtime.devices[0])


@pytest.mark.parametrize(("length", "count"), [(1, 12), (255, 4), (256, 3), (257, 3), (290, 11), (300, 1)])
def test_logits_in_float32(served: Served, steps: Steps, length: int, count: int) -> None:
    asked = served.oracle.ask(length, count)
    for got, want in zip(steps.logits(asked, steps.caches(0.0)), asked.answer.logits, strict=True):
        np.testing.assert_allclose(got, want, rtol=0, atol=FP32_TOLERANCE)


def test_what_an_earlier_batch_left_is_not_seen(served: Served, steps: Steps) -> None:
    asked = served.oracle.ask(40, 4)
    for got, want in zip(steps.logits(asked, steps.caches(1e3)), asked.answer.logits, strict=True):
        np.testing.assert_allclose(got, want, rtol=0, atol=FP32_TOLERANCE)


def test_prefill_writes_its_own_row_only(steps: Steps) -> None:
    _, caches = steps.prefill(np.arange(40, dtype=np.int32), steps.caches(0.0))
    for array in (*caches.keys, *caches.values):
        rows = np.asarray(array)
        assert rows[ROW, :, :40].any(axis=-1).all()
        assert not np.delete(rows, ROW, axis=0).any()


def test_logits_in_bfloat16(serve: Callable[[str], Served], runtime: Any) -> None:
    """The weights are rounded for both, so what remains is the arithmetic of two layers in 8 bits."""
    shape = serve("normed").engine.shape
    rounded = jax.tree.map(lambda array: np.asarray(array).astype(jnp.bfloat16), serve("normed").engine.weights)
    steps = Steps(shape, rounded, runtime.devices[0])
    prompt = np.random.default_rng(1).integers(0, shape.vocab_size, 270, dtype=np.int32)
    answer = oracle.generate(shape, oracle.exact(rounded), prompt, 3)
    got = np.stack([*steps.logits(Asked(prompt=prompt, count=3, answer=answer), steps.caches(0.0))])
    assert got.dtype == np.float32
    errors = np.sqrt(np.mean((got - answer.logits) ** 2, axis=1)) / np.std(answer.logits, axis=1)
    assert errors.max() < 0.03
