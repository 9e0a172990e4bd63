"""A table of iterations: against scipy's interpolation, and what is wrong with one."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.interpolate import RegularGridInterpolator

from pytest_npubench.errors import LengthError, StoreError
from pytest_npubench.extensions.planning.virtual.step_cost import PassWork, StepWork
from pytest_npubench.extensions.planning.virtual.table import AXES, TableCost, read_table
from pytest_npubench.serving.iteration import PrefillRow

HEAD = ",".join((*AXES, "seconds"))
NUM_LAYERS = 4


def work(prefill: int, rows: int, mean_context: float, layers: tuple[int, int] = (0, NUM_LAYERS)) -> StepWork:
    prompts = (PrefillRow(0, 0, prefill),) if prefill else ()
    return StepWork([PassWork(*layers, prompts, 0)], rows, rows * mean_context, 0, rows)


def written(folder: Path, *lines: str) -> Path:
    path = folder / "table.csv"
    path.write_text("\n".join((HEAD, *lines)) + "\n", encoding="utf-8")
    return path


axis = st.lists(st.integers(1, 5000), min_size=1, max_size=4, unique=True).map(sorted)


@given(axis, axis, axis, st.integers(0, 2**32 - 1), st.tuples(*[st.floats(0, 1)] * 3))
def test_between_points_it_is_linear(prefill, rows, context, seed, at):
    axes = tuple(tuple(map(float, one)) for one in (prefill, rows, context))
    values = np.random.default_rng(seed).uniform(1e-3, 1.0, tuple(map(len, axes)))
    known = dict(zip(product(*axes), values.ravel().tolist(), strict=True))
    cost = TableCost(num_layers=NUM_LAYERS, axes=axes, seconds_at=known)
    tokens, batch = (round(one[0] + part * (one[-1] - one[0])) for one, part in zip(axes[:2], at, strict=False))
    mean = axes[2][0] + at[2] * (axes[2][-1] - axes[2][0])
    step = work(tokens, batch, mean)
    grid = [np.array(one) if len(one) > 1 else np.array([one[0], one[0] + 1]) for one in axes]
    whole = values
    for place, one in enumerate(axes):
        if len(one) == 1:
            whole = np.repeat(whole, 2, axis=place)
    inside = [
        min(max(v, one[0]), one[-1]) for v, one in zip((tokens, batch, step.context_tokens / batch), grid, strict=True)
    ]
    try:
        found = cost.seconds(step)
    except LengthError:  # what divides and multiplies again may lie a rounding beyond
        assert not axes[2][0] <= step.context_tokens / batch <= axes[2][-1]
        return
    assert found == pytest.approx(float(RegularGridInterpolator(grid, whole)(inside)[0]), rel=1e-9)


def test_a_file_by_hand(tmp_path: Path) -> None:
    """The docstring's example, a prompt through half of the layers, and steps that decode nothing."""
    lines = ["0,8,1000,0.010", "0,8,3000,0.014", "512,8,1000,0.030", "512,8,3000,0.034"]
    cost = read_table(written(tmp_path, *lines, "512,0,1000,0.02", "512,0,3000,0.02"), NUM_LAYERS)
    assert cost.seconds(work(0, 8, 2000)) == pytest.approx(0.012)
    assert cost.seconds(work(512, 8, 2000, layers=(0, 2))) == pytest.approx(0.016)
    assert cost.seconds(work(512, 0, 0)) == pytest.approx(0.02)
    for beyond, name in ((work(513, 8, 2000), "prefill_tokens 513"), (work(0, 9, 2000), "decode_rows 9")):
        with pytest.raises(LengthError, match=name):
            cost.seconds(beyond)
    with pytest.raises(LengthError, match="mean_context_tokens 999"):
        cost.seconds(work(0, 8, 999))


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["0,1,1,x"], "line 2: seconds is 'x'"),
        (["0,1,1,-1"], "line 2: seconds is '-1'"),
        (["0,1,1,inf"], "line 2: seconds is 'inf'"),
        (["0,1,1"], "line 2: seconds is None"),
        (["0,1,1,1", "0,1,1,1"], "line 3: this point stands there twice"),
        (["0,1,1,1", "5,1,1,1", "5,2,1,1"], "no point of prefill_tokens 0, decode_rows 2"),
        ([], "no line of a point"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(tmp_path: Path, lines: list[str], words: str) -> None:
    with pytest.raises(StoreError) as raised:
        read_table(written(tmp_path, *lines), NUM_LAYERS)
    assert words in str(raised.value)


def test_a_column_that_lacks_and_a_file_that_does(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("prefill_tokens,seconds\n1,1\n", encoding="utf-8")
    with pytest.raises(StoreError, match="no column 'decode_rows'"):
        read_table(tmp_path / "x.csv", NUM_LAYERS)
    with pytest.raises(StoreError, match="No such file"):
        read_table(tmp_path / "absent.csv", NUM_LAYERS)
