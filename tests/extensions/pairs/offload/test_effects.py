"""Effects of the factorial: planted ones come back, least squares agrees, the interval covers; comparisons refused."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from pytest_npubench.errors import ConfigError, MeasurementError
from pytest_npubench.extensions.pairs.offload.effects import factorial_effects, factorial_table
from pytest_npubench.extensions.pairs.offload.factorial import (
    CELLS,
    FACTORS,
    Cell,
    FactorialSettings,
    FactorialVisit,
    cell_name,
    cell_of,
)


def planted(num_rounds: int, noise: float = 0.0, seed: int = 0) -> dict[Cell, Sequence[float]]:
    """sharing x0.9, out_of_order x0.5, shadow x1.2; sharing with shadow another x1.1; rounds drift."""
    chance = np.random.default_rng(seed)
    drift = np.exp(chance.normal(0, 0.5, num_rounds))
    effect = {cell: 0.9 ** cell[0] * 1.2 ** cell[1] * 0.5 ** cell[2] * 1.1 ** (cell[0] and cell[1]) for cell in CELLS}
    return {cell: (drift * effect[cell] * np.exp(chance.normal(0, noise, num_rounds))).tolist() for cell in CELLS}


def test_planted_effects_come_back() -> None:
    effects = {one.name: one for one in factorial_effects(planted(3))}
    assert len(effects) == 7
    assert effects["out_of_order"].ratio == pytest.approx(0.5)
    assert effects["sharing"].ratio == pytest.approx(0.9 * 1.1**0.5)
    assert effects["shadow"].ratio == pytest.approx(1.2 * 1.1**0.5)
    assert effects["sharing x shadow"].ratio == pytest.approx(1.1**0.5)
    assert effects["sharing x shadow x out_of_order"].ratio == pytest.approx(1)
    assert effects["sharing"].low == pytest.approx(effects["sharing"].high)


def test_effects_are_least_squares() -> None:
    """A regression on columns of +-1 and their products gives half of each effect."""
    rounds = planted(1, noise=0.3)
    signs = np.array([[1 if on else -1 for on in cell] for cell in CELLS])
    a, b, c = signs.T
    columns = np.stack([np.ones(8), a, b, c, a * b, a * c, b * c, a * b * c], axis=1)
    solution = np.linalg.lstsq(columns, np.log([rounds[cell][0] for cell in CELLS]), rcond=None)[0]
    found = factorial_effects(rounds)
    assert [math.log(one.ratio) / 2 for one in found] == pytest.approx(solution[1:].tolist())
    assert all(one.low is None and one.high is None and one.num_rounds == 1 for one in found)


def test_the_interval_covers_as_often_as_it_says() -> None:
    hits = [
        one.low <= 0.5 <= one.high
        for seed in range(400)
        for one in factorial_effects(planted(5, noise=0.1, seed=seed), coverage=0.9)
        if one.name == "out_of_order"
    ]
    assert 0.86 <= np.mean(hits) <= 0.94


def test_the_table_has_eight_rows_in_order() -> None:
    known = {"num_graphs": 4, "executable_bytes": 9, "compile_s": 1, "bubble_fraction": 0.5, "relative_error": 0.1}
    visits = {
        cell: [FactorialVisit(total_s=time_s, weight_bytes=8, **known) for time_s in times]
        for cell, times in planted(3).items()
    }
    rows = factorial_table(visits)
    assert [one.cell for one in rows] == [
        *("none", "out_of_order", "shadow", "shadow+out_of_order", "sharing", "sharing+out_of_order"),
        *("sharing+shadow", "sharing+shadow+out_of_order"),
    ]
    assert rows[0].over_none == 1
    assert rows[1].over_none == pytest.approx(0.5)
    assert rows[6].over_none == pytest.approx(0.9 * 1.2 * 1.1)
    assert rows[3].weight_bytes == 8


def test_cells_and_names_are_one_to_one() -> None:
    assert [cell_of(cell_name(cell)) for cell in CELLS] == list(CELLS)
    assert len({point.name for point in FactorialSettings.points()}) == 8
    assert FACTORS == ("sharing", "shadow", "out_of_order")
    with pytest.raises(ConfigError, match="no cell 'x'; cells: none"):
        cell_of("x")


def test_rounds_that_cannot_be_used_are_named() -> None:
    rounds = planted(2)
    with pytest.raises(MeasurementError, match="no samples of sharing; a factorial needs all 8 cells"):
        factorial_effects({cell: times for cell, times in rounds.items() if cell_name(cell) != "sharing"})
    with pytest.raises(MeasurementError, match="cells have 1 and 2 rounds"):
        factorial_effects({**rounds, CELLS[3]: [1.0]})
    with pytest.raises(MeasurementError, match=r"shadow: value 1 of 2 is 0\.0; want more than 0"):
        factorial_effects({**rounds, cell_of("shadow"): [1.0, 0.0]})
    with pytest.raises(MeasurementError, match="none: value 0 of 2 is nan"):
        factorial_effects({**rounds, CELLS[0]: [math.nan, 1.0]})
    with pytest.raises(ConfigError, match="coverage"):
        factorial_effects(rounds, coverage=1.0)
