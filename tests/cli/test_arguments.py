"""Types of options that the fuzz of all options cannot judge."""

from __future__ import annotations

import argparse

import pytest

from pytest_npubench.cli.arguments import percent


def test_a_part_up_to_1_wants_its_sign() -> None:
    """An attainment of 0.9 would be one of 0.9 %, which every setting has."""
    assert [percent(text) for text in ("0.9%", "1%", "90", "100%")] == pytest.approx([0.009, 0.01, 0.9, 1.0])
    for text in ("0.9", "1", ".5"):
        with pytest.raises(argparse.ArgumentTypeError, match=r"want .* or "):
            percent(text)
