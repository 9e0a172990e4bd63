"""Greedy tokens and logits of the engine against the oracle, whatever the buckets, the padding and the cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_npubench.engines.jax_dense import forward
from pytest_npubench.engines.jax_dense.forward import Caches, DecoderState
from pytest_npubench.engines.shapes import DecoderShape

from . import oracle
from .conftest import Served
from .decoders import BATCH_SIZE, BUCKETS, MARGIN, Asked

LARGEST = BUCKETS[-1]
EDGES = sorted({1, *BUCKETS, *(bucket - 1 for bucket in BUCKETS), *(bucket + 1 for bucket in BUCKETS[:-1])})


def ask(served: Served, lengths: Sequence[tuple[int, int]]) -> list[Asked]:
    """A prompt for each (input tokens, output tokens), no two alike."""
    asked = [served.oracle.ask(length, count, seed) for seed, (length, count) in enumerate(lengths)]
    assert min(one.answer.margin for one in asked) > MARGIN
    return asked


def tokens(served: Served, asked: Sequence[Asked]) -> list[tuple[int, ...]]:
    return list(served.engine.generate([one.prompt for one in asked], [one.count for one in asked]).tokens)


ALONE = [
    *(pytest.param([(length, min(3, LARGEST - length + 1))], id=f"a prompt of {length}") for length in EDGES),
    pytest.param([(5, 4)], id="up to the edge: c = 6..8"),
    pytest.param([(5, 5)], id="one step past it: c = 6..9"),
    pytest.param([(7, 25)], id="two boundaries: c = 8..31"),
    pytest.param([(6, 40)], id="three boundaries: c = 7..45"),
    pytest.param([(16, 3)], id="a full bucket: its first step is in the next"),
    pytest.param([(30, 6)], id="into the blocked attention's bucket"),
    pytest.param([(290, 11)], id="to the last place of the largest bucket: c = 291..300"),
    pytest.param([(300, 1)], id="a full largest bucket and no step"),
]
BATCHES = [
    pytest.param([(5, 10), (16, 3), (30, 6)], id="three buckets, shortest first"),
    pytest.param([(30, 6), (5, 10), (16, 3)], id="in another order"),
    pytest.param([(9, 1), (9, 1), (9, 1)], id="prefill only"),
    pytest.param([(4, 2), (4, 30), (4, 7)], id="rows that end early, by far"),
    pytest.param([(17, 20)], id="one row of three"),
    pytest.param([(31, 3), (2, 20)], id="two rows of three"),
    pytest.param([(3, 12), (250, 2)], id="a short prompt in a long one's bucket"),
    pytest.param([(1, 16), (300, 1)], id="a row that ended fills the largest bucket"),
]


@pytest.mark.parametrize("lengths", [*ALONE, *BATCHES])
def test_tokens_are_the_oracle_s(served: Served, lengths: list[tuple[int, int]]) -> None:
    asked = ask(served, lengths)
    assert tokens(served, asked) == [one.answer.tokens for one in asked]


@pytest.mark.parametrize("lengths", BATCHES[:4])
def test_a_row_does_not_see_the_others(served: Served, lengths: list[tuple[int, int]]) -> None:
    asked = ask(served, lengths)
    alone = [tokens(served, [one])[0] for one in asked]
    assert tokens(served, asked) == alone


def test_equal_prompts_give_equal_rows(served: Served) -> None:
    one = ask(served, [(11, 12)])[0]
    assert tokens(served, [one] * BATCH_SIZE) == [one.answer.tokens] * BATCH_SIZE


def test_the_oracle_has_something_to_say(served: Served) -> None:
    """A decoder that always answers with one token would make every test above hollow."""
    asked = [served.oracle.ask(length, 10, seed) for seed, length in enumerate((3, 8, 17, 30))]
    assert len({token for one in asked for token in one.answer.tokens}) > 8


near_the_edges = st.one_of(st.integers(1, 40), st.sampled_from([edge for edge in EDGES if edge < 40]))
batches = st.lists(st.tuples(near_the_edges, st.integers(1, 12)), min_size=1, max_size=BATCH_SIZE)


@settings(max_examples=15, deadline=None, derandomize=True)
@given(lengths=batches)
def test_any_batch(served: Served, lengths: list[tuple[int, int]]) -> None:
    asked = ask(served, lengths)
    assert tokens(served, asked) == [one.answer.tokens for one in asked]


def test_prompts_are_left_as_they_were(served: Served) -> None:
    prompt = served.oracle.ask(5, 4).prompt.copy()
    before = prompt.copy()
    served.engine.generate([prompt], [4])
    np.testing.assert_array_equal(prompt, before)


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
