"""The jax decoder with a fault of campaign/test_answer_judgement.py in it, whose name $PLANTED is."""

from __future__ import annotations

import os

import pytest
from campaign.test_answer_judgement import IN_THE_BINARIES, IN_THE_WEIGHTS, SHAPE, forwards, silent, with_weights

from pytest_npubench.engines.jax_dense.engine import StaticBucketEngine


def reordered(true, layer, x, **form):
    """The intermediate width backwards: the same sums in another order."""
    turned = {"w_gate": layer["w_gate"][:, ::-1], "w_up": layer["w_up"][:, ::-1], "w_down": layer["w_down"][::-1]}
    return true({**layer, **turned}, x, **form)


PLANTS = {
    **IN_THE_WEIGHTS,
    **{name: plant for name, (plant, _) in IN_THE_BINARIES.items()},
    "all matrices zero": with_weights(silent),
    "sums in another order": forwards("feed_forward", reordered),
    "pads of another token": lambda patch: patch.setattr(StaticBucketEngine, "padding_token", 7),
}


def install() -> None:
    if plant := PLANTS.get(os.environ.get("PLANTED", "")):
        plant(pytest.MonkeyPatch())


def pytest_npubench_shapes():
    return [SHAPE]
