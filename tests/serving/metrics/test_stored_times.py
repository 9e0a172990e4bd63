"""Token times as a sequence, whether they are their own or a view of an iteration log's."""

from __future__ import annotations

import copy
import pickle
from array import array

import numpy as np
import pytest

from pytest_npubench.serving.metrics.stored_times import StoredTimes, Times

TIMES_S = (0.5, 0.75, 2.0)


@pytest.fixture(params=["its own", "a view"])
def stored(request: pytest.FixtureRequest) -> StoredTimes:
    own = array("d", TIMES_S)
    times_s: Times = own if request.param == "its own" else memoryview(array("d", [0.25, *TIMES_S, 3.0]))[1:4]
    return StoredTimes(times_s, is_ordered=True)


def test_it_is_as_a_tuple_of_them(stored: StoredTimes) -> None:
    assert stored == TIMES_S
    assert hash(stored) == hash(TIMES_S)
    assert (stored[0], stored[-1], stored[1:], len(stored)) == (0.5, 2.0, (0.75, 2.0), 3)
    assert repr(stored) == repr(TIMES_S)
    assert np.asarray(stored).tolist() == list(TIMES_S)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_a_copy_holds_the_same(stored: StoredTimes, copied) -> None:
    other = copied(stored)
    assert other == stored
    assert other.is_ordered
