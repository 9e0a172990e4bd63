"""A real run of vLLM with its published summary: the metrics from its time points must be the published ones.

The data (casys-kaist/LLMServingSim, MIT) is not part of the project; without it there is nothing to compare with.
"""

from __future__ import annotations

import json
import re

import pytest

from pytest_npubench.serving.metrics import RequestRecord, summarize

from .made_runs import MadeRun, by_name

LINE = re.compile(r"(TTFT|TPOT|Latency) (Mean|Median|P90|P95|P99)\s+([\d.]+)")
OURS = {"Mean": "mean", "Median": "p50", "P90": "p90", "P99": "p99"}
NAMES = {"TTFT": "ttft", "TPOT": "tpot", "Latency": "e2e"}


@pytest.fixture(scope="module")
def metrics(published_run):
    rows = [json.loads(line) for line in (published_run / "requests.jsonl").read_text(encoding="utf-8").splitlines()]
    records = []
    for index, row in enumerate(rows):
        first, last, number = row["first_token_ts"], row["last_token_ts"], row["output_toks"]
        # only the ends are known: tokens in between are spread evenly, which no figure compared here can see
        between = (first + (last - first) * step / (number - 1) for step in range(1, number - 1))
        records.append(
            RequestRecord(
                id=index,
                arrival_s=row["queued_ts"],
                scheduled_s=row["scheduled_ts"],
                token_times_s=(first, *between, last),
                prompt_tokens=row["input_toks"],
                output_tokens=number,
            )
        )
    return by_name(summarize(MadeRun(records=tuple(records))))


def test_the_published_summary_comes_out(published_run, metrics):
    published = LINE.findall((published_run / "summary.txt").read_text(encoding="utf-8"))
    assert len(published) == 15
    for name, part, text in published:
        if part in OURS:
            ours = metrics[f"{NAMES[name]}_{OURS[part]}_s"]
            assert 1000 * ours.value == pytest.approx(float(text), abs=0.1), ours.name
            assert ours.num_samples == 300


def test_intervals_of_the_real_run_hold_their_values(metrics):
    for name in ("ttft_mean_s", "ttft_p50_s", "e2e_mean_s", "e2e_p90_s", "tpot_mean_s", "tpot_p50_s"):
        low, high = metrics[name].interval
        assert low < metrics[name].value < high
