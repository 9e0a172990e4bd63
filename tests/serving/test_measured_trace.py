"""A vLLM run that others measured and summed up: our metrics from its time points must be their figures.

measured_trace/ has the 300 requests and what was published of them; LICENSE.txt there says whose they are.
"""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from pytest_npubench.serving.metrics import RequestRecord, summarize

from .metrics.made_runs import MadeRun, by_name

FOLDER = Path(__file__).parent / "measured_trace"
PRINTED_TO_MS = 0.05  # one decimal, rounded
KEPT_TO_MS = 0.002  # the excerpt has microseconds
PARTS = ("mean", "p50", "p90", "p95", "p99")


def _rows(name: str) -> list[dict[str, str]]:
    lines = (FOLDER / name).read_text(encoding="utf-8").splitlines()
    return list(csv.DictReader(line for line in lines if not line.startswith("#")))


PUBLISHED_MS = {(row["metric"], part): float(row[part]) for row in _rows("published_summary.csv") for part in PARTS}


def _record(index: int, row: dict[str, str]) -> RequestRecord:
    """vLLM told the first and the last token's time; those in between are spread evenly, which no figure compared here
    can see."""
    arrival_s, scheduled_s, first_s, last_s = (
        int(row[f"{point}_us"]) / 1e6 for point in ("queued", "scheduled", "first_token", "last_token")
    )
    number = int(row["output_tokens"])
    gap_s = (last_s - first_s) / (number - 1)
    return RequestRecord(
        id=index,
        arrival_s=arrival_s,
        scheduled_s=scheduled_s,
        token_times_s=(*(first_s + step * gap_s for step in range(number - 1)), last_s),
        prompt_tokens=int(row["input_tokens"]),
        output_tokens=number,
    )


@pytest.fixture(scope="module")
def metrics():
    records = tuple(_record(index, row) for index, row in enumerate(_rows("requests.csv")))
    assert len(records) == 300
    return by_name(summarize(MadeRun(records=records)))


@pytest.mark.parametrize(("metric", "part"), PUBLISHED_MS)
def test_the_published_figure_comes_out(metrics, metric, part):
    ours = metrics[f"{metric}_{part}_s"]
    assert 1000 * ours.value == pytest.approx(PUBLISHED_MS[metric, part], abs=PRINTED_TO_MS + KEPT_TO_MS)
    assert ours.num_samples == 300


def test_the_load_is_the_one_that_was_announced(metrics):
    """Poisson at 10 requests a second: 299 gaps know their mean to 6 %, and three times that is allowed."""
    assert metrics["realised_rate_per_s"].value == pytest.approx(10.0, rel=0.18)
    assert metrics["num_finished"].value == 300


@pytest.mark.parametrize("name", ["ttft_mean", "ttft_p50", "e2e_mean", "e2e_p90", "tpot_mean", "tpot_p50"])
def test_an_interval_of_the_real_run_holds_its_value(metrics, name):
    low, high = metrics[f"{name}_s"].interval
    assert low < metrics[f"{name}_s"].value < high
