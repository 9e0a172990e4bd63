"""What an answer may take, from what was asked for."""

from __future__ import annotations

import pytest

from pytest_npubench.engines.http.client import answer_limits
from pytest_npubench.engines.http.endpoint import Endpoint


def _endpoint(**changes: object) -> Endpoint:
    return Endpoint(**{"url": "http://host/v1", "model": "m", **changes})


def test_the_worked_example():
    found = answer_limits(_endpoint(), 16)
    assert (found.time_s, found.num_bytes, found.event_bytes, found.num_events) == (150.0, 786432, 266240, 128)


@pytest.mark.parametrize(
    ("changes", "tokens", "time_s"),
    [
        ({}, 1, 75.0),
        ({}, 10_000, 600.0),
        ({"connect_timeout_s": 1.0, "idle_timeout_s": 2.0}, 4, 23.0),
        ({"answer_timeout_s": 3.0}, 10_000, 3.0),
        ({"answer_timeout_s": 7200.0}, 1, 7200.0),
    ],
)
def test_the_time_is_derived_unless_it_is_given(changes, tokens, time_s):
    assert answer_limits(_endpoint(**changes), tokens).time_s == time_s
