"""Pruning by channels and by layers, and hot lists out of date: ends known in advance, and what must not fall."""

from __future__ import annotations

from itertools import pairwise

import pytest

from pytest_npubench.engines.outliers import OutlierCase
from pytest_npubench.errors import ConfigError
from pytest_npubench.offload.pruning import make_layers, miss_rates, prune_channels, prune_layers

CASE = OutlierCase(num_tokens=32, num_channels=256, num_rows=64, num_outliers=8)
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)


def test_more_pruned_channels_more_error_less_work() -> None:
    outcomes = prune_channels(CASE, SHARES)
    assert all(one.relative_error < next_one.relative_error for one, next_one in pairwise(outcomes))
    assert [one.work_fraction for one in outcomes] == pytest.approx([1 - share for share in SHARES], abs=0.13)
    # squares add up over channels: the smaller half of them, pruned first, holds less than half of what all hold
    assert outcomes[2].relative_error ** 2 < outcomes[4].relative_error ** 2 / 2
    assert outcomes[0].relative_error < 0.02 < 0.8 < outcomes[-1].relative_error
    assert outcomes[-1].work_fraction == 0


def test_the_least_important_layers_go_first() -> None:
    layers = make_layers(CASE, 8)
    outcomes = prune_layers(layers, SHARES)
    errors = [one.relative_error for one in outcomes]
    assert errors == sorted(errors)
    late = errors[-1] - errors[-2]
    early = errors[1] - errors[0]
    assert early < late
    assert (outcomes[0].work_fraction, outcomes[-1].work_fraction) == (1, 0)


def test_miss_rate_is_the_share_that_moved() -> None:
    outcomes = miss_rates(CASE, (0.0, 0.5, 1.0))
    assert outcomes[1].miss_fraction == pytest.approx(0.5, abs=0.1)
    assert outcomes[2].miss_fraction == 1
    assert outcomes[0].dropped_error < 0.02
    assert outcomes[1].dropped_error > 10 * outcomes[1].fetched_error
    assert all(one.fetched_error < 0.02 for one in outcomes)
    assert outcomes[2].fetched_bytes >= 8 * 64 * 4


def test_without_outliers_there_is_nothing_to_prune() -> None:
    calm = CASE.at(0)
    kept, gone = prune_channels(calm, (0.0, 1.0))
    assert gone.relative_error == pytest.approx(kept.relative_error, rel=0.05)
    assert miss_rates(calm, (0.0,))[0].dropped_error < 0.05


def test_what_cannot_be_used_is_named() -> None:
    with pytest.raises(ConfigError, match=r"a share of 1\.2"):
        prune_channels(CASE, (1.2,))
    with pytest.raises(ConfigError, match="a share of nan"):
        miss_rates(CASE, (float("nan"),))
    with pytest.raises(ConfigError, match="no layers"):
        prune_layers((), (0.5,))
    with pytest.raises(ConfigError, match="num_layers is 0"):
        make_layers(CASE, 0)
