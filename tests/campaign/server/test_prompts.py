"""Prompts of a wanted length that no server has seen before."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pytest_npubench.suites.server.prompts import WORDS, Prompts


@given(num=st.integers(1, 300), first=st.integers(0, 5000), width=st.integers(1, 5000))
def test_token_ids_are_as_many_and_in_range(num, first, width):
    found = Prompts(form="tokens", token_ids=(first, first + width), run="a").prompt(num, "0")
    assert len(found) == num
    assert all(first <= token <= first + width for token in found)


@given(num=st.integers(1, 300))
def test_words_are_as_many_and_known(num):
    found = Prompts(form="words", token_ids=(0, 1), run="a").prompt(num, "0")
    assert isinstance(found, str)
    assert len(found.split(" ")) == num
    assert set(found.split(" ")) <= set(WORDS)


def test_another_request_and_another_run_have_another_prompt_from_the_first_tokens_on():
    """Else a server would answer from keys and values that it has kept."""
    runs = [Prompts(form="tokens", token_ids=(100, 999), run=name) for name in ("a", "b")]
    prompts = [run.prompt(64, request) for run in runs for request in ("short@r1/0/1", "short@r1/0/2", "short@r1/1/1")]
    assert len({prompt[:16] for prompt in prompts}) == len(prompts)
    assert runs[0].prompt(64, "x") == runs[0].prompt(64, "x")
