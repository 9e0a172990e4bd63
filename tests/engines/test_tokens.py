"""The engine's greedy tokens are the oracle's, whatever the buckets, the padding, the cache and the rest of the batch.

Equality says something because each token's best logit is ahead of the second by more than decoders.MARGIN, a hundred
times what float32 errs by here (test_logits.py holds it to 5e-5).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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


@pytest.mark.parametrize("length", EDGES)
def test_a_prompt_at_the_edge_of_a_bucket(served: Served, length: int) -> None:
    asked = ask(served, [(length, min(3, LARGEST - length + 1))])
    assert tokens(served, asked) == [asked[0].answer.tokens]


@pytest.mark.parametrize(
    ("length", "count"),
    [
        pytest.param(5, 4, id="up to the edge: c = 6..8"),
        pytest.param(5, 5, id="one step past it: c = 6..9"),
        pytest.param(7, 25, id="two boundaries: c = 8..31"),
        pytest.param(6, 40, id="three boundaries: c = 7..45"),
        pytest.param(16, 3, id="a full bucket: its first step is in the next"),
        pytest.param(30, 6, id="into the blocked attention's bucket"),
        pytest.param(290, 11, id="to the last place of the largest bucket: c = 291..300"),
        pytest.param(300, 1, id="a full largest bucket and no step"),
    ],
)
def test_a_generation_across_buckets(served: Served, length: int, count: int) -> None:
    asked = ask(served, [(length, count)])
    assert tokens(served, asked) == [asked[0].answer.tokens]


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


@pytest.mark.parametrize("lengths", BATCHES)
def test_a_mixed_batch(served: Served, lengths: list[tuple[int, int]]) -> None:
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
