"""Every metric against a table worked out by hand, and against plain loops over made runs."""

import doctest
import math
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given, settings

from pytest_npubench.errors import MeasurementError
from pytest_npubench.serving.metrics import RequestRecord, ServingMetric, Slo, metric, summarize
from pytest_npubench.verdict import result

from .made_runs import MadeLog, MadeRun, by_name, deviation, gaps_of, is_finished, percentile, requests

DOCUMENT = Path(__file__).parents[3] / "docs" / "serving-metrics.md"
SLO = Slo(ttft_s=3.5, tbt_s=1.0)


def by_hand():
    """Three requests on two layers of four experts of 100 bytes; the third one is cut off at 8 s, two tokens short."""
    log = MadeLog()
    rows = [  # start, end, decode rows, prefill tokens and layers, activations, padded, KV, hidden, J
        (0, 1, 0, 4, 2, 5, 5, 40, 0, 1.0),
        (1, 2, 1, 6, 1, 6, 7, 50, 60, 1.0),
        (2, 4, 1, 6, 1, 7, 7, 110, 0, 2.0),
        (4, 5, 1, 2, 1, 4, 4, 80, 20, 1.0),
        (5, 6, 0, 2, 1, 2, 2, 20, 0, 1.0),
        (6, 7, 1, 0, 0, 3, 3, 30, 0, 1.0),
    ]
    names = (
        "num_decode",
        "num_prefill_tokens",
        "num_prefill_layers",
        "expert_activations",
        "padded_expert_activations",
    )
    for start, end, *counts, kv, hidden, energy in rows:
        log.add(
            start_s=start,
            end_s=end,
            **dict(zip(names, counts, strict=True)),
            expert_load_bytes=100 * counts[3],
            kv_bytes=kv,
            hidden_bytes=hidden,
            energy_j=energy,
            host_s=(end - start) / 4 if counts[0] else None,
        )
    requests = [  # arrival, dispatched, scheduled, prompt, output, token times
        (0.0, 0.0, 0.0, 4, 3, (1.0, 2.0, 4.0)),
        (0.5, 1.0, 1.0, 6, 2, (4.0, 5.0)),
        (3.0, 4.0, 4.0, 2, 4, (6.0, 7.0)),
    ]
    records = tuple(
        RequestRecord(
            id=index,
            arrival_s=arrival,
            dispatched_s=dispatched,
            scheduled_s=scheduled,
            prompt_tokens=prompt,
            output_tokens=output,
            token_times_s=times,
            num_preemptions=index % 2,
        )
        for index, (arrival, dispatched, scheduled, prompt, output, times) in enumerate(requests)
    )
    return MadeRun(records=records, log=log, ended_s=8.0)


def in_parts(name, *values_s):
    return {
        f"{name}_{part}_s": value for part, value in zip(("mean", "p50", "p90", "p95", "p99"), values_s, strict=True)
    }


BY_HAND = {
    "slo_attainment": 1 / 3,
    "ttft_attainment": 1.0,
    "tbt_attainment": 1 / 3,
    **in_parts("ttft", 2.5, 3.0, 3.5, 3.5, 3.5),
    **in_parts("tbt", 1.25, 1.0, 2.0, 2.0, 2.0),
    **in_parts("tpot", 1.25, 1.25, 1.5, 1.5, 1.5),
    **in_parts("e2e", 4.25, 4.25, 4.5, 4.5, 4.5),
    **in_parts("queue_delay", 0.5, 0.5, 1.0, 1.0, 1.0),
    "tbt_host_mean_s": (1 + 2 + 1 + 1) / 4 / 4,
    "tbt_std_pooled_s": 0.5,
    "tbt_std_per_request_s": math.sqrt(0.5),
    "jain_index": 64 / 66,
    "goodput_requests_per_s": 1 / 8,
    "output_tokens_per_s": 7 / 8,
    "mean_decode_batch_size": 1.0,
    "expert_activations": 27,
    "padded_expert_activations": 28,
    "expert_load_bytes": 2700,
    "expert_load_bytes_per_request": 1350,
    "expert_coverage": 27 / 44,
    "expert_coverage_decode_only": 3 / 8,
    "expert_coverage_with_prefill": 24 / 36,
    "kv_bytes_max": 110,
    "kv_bytes_mean": 440 / 7,
    "hidden_bytes_max": 60,
    "hidden_bytes_mean": 80 / 7,
    "energy_mj_per_prompt_and_output_token": 7000 / 19,
    "energy_mj_per_output_token": 1000.0,
    "num_arrived": 3,
    "num_finished": 2,
    "num_aborted": 0,
    "num_preemptions": 1,
    "duration_s": 8.0,
    "realised_rate_per_s": 2 / 3,
    "realised_cv": math.sqrt(2) / 1.5,
    **in_parts("dispatch_lag", 0.5, 0.5, 1.0, 1.0, 1.0),
}


def test_the_table_worked_out_by_hand():
    metrics = by_name(summarize(by_hand(), SLO, num_experts=4))
    assert {name: found.value for name, found in metrics.items()} == pytest.approx(BY_HAND)


def test_the_hosts_part_of_a_gap_counts_once_for_each_decode_row():
    run = MadeRun()
    for num_decode, host_s in ((3, 0.004), (1, 0.008), (0, 0.5)):  # of the docstring, and a prompt alone
        run.log.add(num_decode=num_decode, host_s=host_s)
    assert by_name(summarize(run))["tbt_host_mean_s"].value == pytest.approx(0.005)
    run.log.add(num_decode=1, host_s=None)
    metric = by_name(summarize(run))["tbt_host_mean_s"]
    assert (metric.value, metric.note) == (None, "no iteration tells apart what is the host's")


def test_what_is_missing_is_counted():
    metrics = by_name(summarize(by_hand(), SLO, num_experts=4))
    assert metrics["e2e_mean_s"].note == "1 of 3 arrived requests are not counted: not finished"
    assert metrics["e2e_mean_s"].num_samples == 2
    assert metrics["ttft_mean_s"].note == ""
    assert metrics["ttft_p99_s"].note == "the maximum: fewer than 100 samples"
    assert metrics["ttft_p90_s"].note == "the maximum: fewer than 10 samples"
    assert metrics["e2e_p99_s"].note.startswith("the maximum: fewer than 100 samples; 1 of 3")


def test_a_p99_of_100_samples_is_no_maximum():
    records = tuple(RequestRecord(arrival_s=float(i), token_times_s=(i + 1.0 + i / 100,)) for i in range(100))
    p99 = by_name(summarize(MadeRun(records=records)))["ttft_p99_s"]
    assert p99.value == pytest.approx(1.9801)
    assert p99.note == ""
    fewer = by_name(summarize(MadeRun(records=records[:99])))["ttft_p99_s"]
    assert fewer.value == pytest.approx(1.98)
    assert fewer.note == "the maximum: fewer than 100 samples"


@settings(max_examples=60)
@given(requests())
def test_loops_over_requests_give_the_same(records):
    metrics = by_name(summarize(MadeRun(records=records, clock="wall"), Slo(ttft_s=1.0, tbt_s=1.0)))
    gaps = [gap for record in records for gap in gaps_of(record)]
    done = [record for record in records if is_finished(record)]
    series = {
        "ttft": [record.token_times_s[0] - record.arrival_s for record in records if record.token_times_s],
        "tbt": gaps,
        "tpot": [sum(gaps_of(record)) / len(gaps_of(record)) for record in done if gaps_of(record)],
        "e2e": [record.token_times_s[-1] - record.arrival_s for record in done],
    }
    for name, values in series.items():
        assert metrics[f"{name}_mean_s"].num_samples == len(values)
        if not values:
            assert metrics[f"{name}_mean_s"].value is None
            continue
        assert metrics[f"{name}_mean_s"].value == pytest.approx(sum(values) / len(values))
        for percent in (50, 90, 99):
            assert metrics[f"{name}_p{percent}_s"].value == pytest.approx(percentile(values, percent))
    deviations = [deviation(gaps_of(record)) for record in records if len(gaps_of(record)) > 1]
    if len(gaps) > 1:
        assert metrics["tbt_std_pooled_s"].value == pytest.approx(deviation(gaps))
    if deviations:
        assert metrics["tbt_std_per_request_s"].value == pytest.approx(sum(deviations) / len(deviations))
    assert metrics["num_finished"].value == len(done)


@settings(max_examples=60)
@given(requests(min_size=0))
def test_every_metric_has_a_value_or_a_reason(records):
    with_slo = summarize(MadeRun(records=records), Slo(ttft_s=1.0, tbt_s=1.0), num_experts=4)
    for one in (*with_slo, *summarize(MadeRun(records=records, ended_s=0.0))):
        assert one.value is not None or one.note
        assert one.definition
        assert "\n" not in one.definition
        if one.interval is not None:
            low, high = one.interval
            assert low <= high
            assert one.value is not None


def test_the_names_are_always_the_same():
    names = [one.name for one in summarize(by_hand(), SLO, num_experts=4)]
    assert names == list(BY_HAND)
    assert [one.name for one in summarize(MadeRun())] == names


def test_the_examples_of_the_document_run():
    outcome = doctest.testfile(str(DOCUMENT), module_relative=False)
    assert outcome.attempted >= 8
    assert outcome.failed == 0


def test_kinds_are_those_of_gated_metrics():
    assert {*get_args(metric.GateKind)} <= {*get_args(result.GateKind)}
    assert get_args(metric.Better) == get_args(result.Better)


def test_counters_are_gated_exactly_on_the_virtual_clock_alone():
    run = by_hand()
    virtual = by_name(summarize(run, SLO, num_experts=4))
    run.clock = "wall"
    wall = by_name(summarize(run, SLO, num_experts=4))
    exact = {name for name, one in virtual.items() if one.kind == "exact"}
    assert exact == {name for name in BY_HAND if "expert" in name}
    assert not any(one.kind == "exact" for one in wall.values())
    assert wall["expert_load_bytes"].kind == "ratio"
    assert wall["expert_coverage"].kind == "difference"
    assert virtual["slo_attainment"].kind == "difference"
    assert virtual["dispatch_lag_mean_s"].kind == "none"


def test_a_ratio_of_0_is_gated_by_nothing():
    run = by_hand()
    assert by_name(summarize(run))["hidden_bytes_max"].kind == "ratio"
    run.log.hidden_bytes = [0] * 6
    assert by_name(summarize(run))["hidden_bytes_max"].kind == "none"


def test_what_nobody_said_is_not_guessed():
    run = by_hand()
    run.log.energy_j[2] = None
    metrics = by_name(summarize(run))
    assert metrics["slo_attainment"].note == "no SLO was given"
    assert metrics["goodput_requests_per_s"].note == "no SLO was given"
    assert metrics["expert_coverage"].note == "the number of experts is not known"
    energy = metrics["energy_mj_per_output_token"]
    assert energy.value is None
    assert energy.note == "no energy counter was read, and 1 of 6 iterations tell none"
    read = by_name(summarize(run, energy_j=14.0, num_experts=1))
    assert read["energy_mj_per_output_token"].value == 2000.0
    assert read["expert_coverage"].note == "a dense decoder: no expert is chosen"


def test_energy_of_prompts_of_unknown_length():
    run = MadeRun(records=(RequestRecord(arrival_s=0.0, token_times_s=(1.0, 2.0)),))
    metrics = by_name(summarize(run, energy_j=3.0))
    assert metrics["energy_mj_per_output_token"].value == 1500.0
    assert "do not say how long" in metrics["energy_mj_per_prompt_and_output_token"].note


def test_the_papers_energy_is_per_prompt_and_output_token():
    """Layered Prefill, Table 8: 56.6 mJ at 1.3 requests/s of 9194 + 231 tokens is the power of two H100s."""
    watts = 693.0
    num = 13
    records = tuple(
        RequestRecord(
            arrival_s=0.0, token_times_s=tuple(float(i) for i in range(231)), prompt_tokens=9194, output_tokens=231
        )
        for _ in range(num)
    )
    metrics = by_name(summarize(MadeRun(records=records, ended_s=num / 1.3), energy_j=watts * num / 1.3))
    assert metrics["energy_mj_per_prompt_and_output_token"].value == pytest.approx(56.6, abs=0.05)


def test_mean_decode_batch_leaves_out_iterations_that_only_prefill():
    run = MadeRun()
    for decode in (0, 4, 0, 8):
        run.log.add(num_decode=decode)
    found = by_name(summarize(run))["mean_decode_batch_size"]
    assert (found.value, found.num_samples, found.kind) == (6.0, 2, "none")


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("kv_bytes", -1, "kv_bytes of iteration 2 is -1.0; want a finite number >= 0"),
        ("expert_activations", math.nan, "expert_activations of iteration 2 is nan"),
        ("end_s", math.inf, "end_s of iteration 2 is inf"),
    ],
)
def test_a_log_that_cannot_be(column, value, message):
    run = by_hand()
    getattr(run.log, column)[2] = value
    with pytest.raises(MeasurementError, match=message):
        summarize(run)


@pytest.mark.parametrize("energy_j", [-1.0, math.nan, math.inf])
def test_an_energy_that_cannot_be(energy_j):
    with pytest.raises(MeasurementError, match="want a finite number of joules"):
        summarize(by_hand(), energy_j=energy_j)


def test_a_value_that_is_not_finite_names_its_metric():
    with pytest.raises(MeasurementError, match="ttft_mean_s is nan; want a finite number in s"):
        ServingMetric(name="ttft_mean_s", unit="s", value=math.nan, definition="mean")
