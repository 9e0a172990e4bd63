"""Rows of a packed batch, against a walk token by token."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pytest_npubench.extensions.vllm.layered.rows import split_rows


@given(st.lists(st.tuples(st.integers(1, 7), st.booleans()), min_size=1, max_size=8))
def test_rows_against_a_walk_over_the_tokens(batch: list[tuple[int, bool]]) -> None:
    names = [f"r{index}" for index in range(len(batch))]
    staged = {name for name, (_, on_its_way) in zip(names, batch, strict=True) if on_its_way}
    rows = split_rows(names, [count for count, _ in batch], staged)

    owner = [name for name, (count, _) in zip(names, batch, strict=True) for _ in range(count)]
    assert rows.num_tokens == len(owner)
    assert rows.rest_tokens.tolist() == [index for index, name in enumerate(owner) if name not in staged]
    assert rows.rest_requests.tolist() == [index for index, name in enumerate(names) if name not in staged]
    assert rows.rest_counts.tolist() == [batch[index][0] for index in rows.rest_requests]
    assert [name for name, _ in rows.staged] == [name for name in names if name in staged]
    for name, span in rows.staged:
        assert [index for index, other in enumerate(owner) if other == name] == list(range(span.start, span.stop))
    assert rows.num_staged_tokens == sum(name in staged for name in owner)
