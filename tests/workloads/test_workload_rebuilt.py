"""The rebuilt workloads against the published figures, by integration and by large samples."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pytest_npubench.workloads import workload
from pytest_npubench.workloads.length_statistics import workload_statistics
from pytest_npubench.workloads.published import PUBLISHED
from pytest_npubench.workloads.quantiles import LEVELS
from pytest_npubench.workloads.rebuilt import RebuiltWorkload

ROOT = Path(__file__).parents[2]
BY_NAME = {published.name: published for published in PUBLISHED}

# The tables as printed: mean, median, p90 (LENS, Table 4); mean, p90, std (layered prefill, Table 4).
LENS_TABLE = {
    "lens-sharegpt": ((167, 23, 403), (327, 296, 666)),
    "lens-cnn-dailymail": ((865, 788, 1458), (64, 60, 95)),
    "lens-cnn-dailymail-1k": ((1393, 1305, 1872), (73, 67, 113)),
    "lens-arxiv": ((8605, 6879, 16078), (355, 202, 411)),
    "lens-arxiv-8k": ((4822, 4894, 7229), (207, 175, 326)),
    "lens-writing-prompts": ((30, 28, 52), (701, 577, 1368)),
}
LAYERED_TABLE = {
    "layered-sharegpt": ((2340, 5696, 2088), (438, 834, 265)),
    "layered-arxiv": ((9194, 17152, 5754), (231, 386, 104)),
}


def rebuilt(name: str) -> RebuiltWorkload:
    found = workload(name)
    assert isinstance(found, RebuiltWorkload)
    return found


def assert_meets(lengths: np.ndarray, name: str, side: int, slack: float = 1.0) -> None:
    """mean within 2 %, median and p90 within 1 % or 1 token, std within 5 %; slack widens all for sampling noise."""
    if name in LENS_TABLE:
        mean, median, p90 = LENS_TABLE[name][side]
        assert abs(np.median(lengths) - median) <= max(1, 0.01 * median) * slack
    else:
        mean, p90, std = LAYERED_TABLE[name][side]
        assert lengths.std() == pytest.approx(std, rel=0.05 * slack)
    assert lengths.mean() == pytest.approx(mean, rel=0.02 * slack)
    assert abs(np.quantile(lengths, 0.9) - p90) <= max(1, 0.01 * p90) * slack


def test_the_published_rows_are_the_tables_as_printed():
    for name, row in LENS_TABLE.items():
        sides = (BY_NAME[name].input, BY_NAME[name].output)
        assert tuple((side.mean, side.median, side.p90) for side in sides) == row
    for name, row in LAYERED_TABLE.items():
        sides = (BY_NAME[name].input, BY_NAME[name].output)
        assert tuple((side.mean, side.p90, side.std) for side in sides) == row
    assert set(BY_NAME) == set(LENS_TABLE) | set(LAYERED_TABLE)


@pytest.mark.parametrize("name", BY_NAME)
def test_a_large_sample_has_the_published_statistics(name):
    """After the workload's own filter, from the sampler that users call; 200,000 requests."""
    requests = workload(name).sample(200_000, seed=11).requests
    assert_meets(np.array([request.input_tokens for request in requests]), name, 0, slack=1.5)
    assert_meets(np.array([request.output_tokens for request in requests]), name, 1, slack=1.5)


@pytest.mark.parametrize("name", BY_NAME)
def test_integrated_statistics_meet_the_published_ones_and_agree_with_brute_force(name):
    found = rebuilt(name)
    statistics = workload_statistics(found)
    levels = (np.arange(1000) + 0.5) / 1000  # every pair of a coarse grid, filtered by hand
    inputs, outputs = (grid.ravel() for grid in np.meshgrid(found.input.lengths(levels), found.output.lengths(levels)))
    limit = BY_NAME[name].max_total_tokens or np.inf
    kept = inputs + outputs <= limit
    assert statistics.kept_fraction == pytest.approx(kept.mean(), abs=1e-3)
    for side, (lengths, reached) in enumerate(((inputs[kept], statistics.input), (outputs[kept], statistics.output))):
        assert_meets(lengths, name, side)
        assert reached.mean == pytest.approx(lengths.mean(), rel=0.01)
        assert reached.median == pytest.approx(np.median(lengths), rel=0.01, abs=1)
        assert reached.p90 == pytest.approx(np.quantile(lengths, 0.9), rel=0.01, abs=1)
        assert reached.std == pytest.approx(lengths.std(), rel=0.05)


@pytest.mark.parametrize("name", ["lens-sharegpt", "lens-arxiv-8k", "lens-writing-prompts"])
def test_the_8k_sets_never_exceed_8192_tokens(name):
    requests = workload(name).sample(20_000, seed=5, max_total_tokens=100_000).requests
    assert max(request.input_tokens + request.output_tokens for request in requests) <= 8192


def test_the_1k_set_starts_above_1024_tokens():
    requests = workload("lens-cnn-dailymail-1k").sample(20_000, seed=5).requests
    assert min(request.input_tokens for request in requests) >= 1025


@pytest.mark.parametrize("name", BY_NAME)
def test_inputs_and_outputs_are_independent(name):
    uniforms = np.random.default_rng(3).random((50_000, 2))
    inputs, outputs = rebuilt(name).draw(uniforms)
    assert np.corrcoef(np.log(inputs), np.log(outputs))[0, 1] == pytest.approx(0, abs=0.02)
    assert "independently" in workload(name).note
    assert workload(name).kind == "rebuilt"


def test_the_unfiltered_arxiv_set_filtered_to_8k_resembles_the_published_filtered_set():
    """Held out: the fit of lens-arxiv saw nothing of the row after the filter (121K of 216K queries)."""
    filtered = workload_statistics(rebuilt("lens-arxiv"), 8192)
    assert filtered.kept_fraction == pytest.approx(121 / 216, abs=0.03)
    assert filtered.input.mean == pytest.approx(4822, rel=0.02)
    assert filtered.input.median == pytest.approx(4894, rel=0.02)
    assert filtered.input.p90 == pytest.approx(7229, rel=0.02)


def test_the_unfiltered_cnn_inputs_above_1024_resemble_the_published_filtered_set():
    """Held out likewise: 92K of 312K queries have inputs above 1,024 tokens."""
    lengths = rebuilt("lens-cnn-dailymail").input.lengths((np.arange(100_000) + 0.5) / 100_000)
    long = lengths[lengths > 1024]
    assert len(long) / len(lengths) == pytest.approx(92 / 312, abs=0.01)
    assert long.mean() == pytest.approx(1393, rel=0.03)
    assert np.median(long) == pytest.approx(1305, rel=0.01)
    assert np.quantile(long, 0.9) == pytest.approx(1872, rel=0.02)


def printed_by_the_script(*arguments):
    command = [sys.executable, str(ROOT / "benchmarks" / "workload_table.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.soak
def test_fitting_again_gives_the_shipped_knots():
    """Within 1 %: optimisers of other scipy versions stop a little elsewhere."""
    fitted = json.loads(printed_by_the_script("refit"))
    assert fitted["levels"] == list(LEVELS)
    assert list(fitted["workloads"]) == list(BY_NAME)
    for name, knots in fitted["workloads"].items():
        shipped = rebuilt(name)
        assert shipped.input.knots == pytest.approx(knots["input"], rel=0.01)
        assert shipped.output.knots == pytest.approx(knots["output"], rel=0.01)


def test_the_docs_show_the_table_that_the_command_prints():
    printed = printed_by_the_script()
    assert printed.count("\n") == 2 + 2 * len(PUBLISHED)
    assert printed in (ROOT / "docs" / "workloads.md").read_text(encoding="utf-8")
