"""Blocks: the same requests for every policy of a round, others the next round, and back from the journal unchanged."""

import json
from dataclasses import replace
from itertools import pairwise

import pytest

from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.served_block import Calibration, pooled
from pytest_npubench.campaign.served_load import block, lengths
from pytest_npubench.errors import WorkloadError
from pytest_npubench.serving.log import IterationLog
from pytest_npubench.suites.scheduling.bench import NUM_WARM_UP_REQUESTS, ServingBench, num_calibration_requests
from pytest_npubench.suites.scheduling.figures import blocks
from pytest_npubench.suites.scheduling.plan import serving_plans
from pytest_npubench.suites.scheduling.points import ServedPoint
from pytest_npubench.suites.scheduling.policies import served
from pytest_npubench.suites.scheduling.spec import LoadSpec

from .conftest import SPECS, kept, serving_plan

PLAN = serving_plan()
(LOAD, _) = PLAN.serving.loads
LAYERED, CHUNKED = (served(policy, PLAN, LOAD) for policy in ("layered", "chunked"))


def test_policies_of_a_round_serve_the_same_requests_and_rounds_do_not(make_bench):
    bench, failures = make_bench(PLAN, [LAYERED, CHUNKED])
    assert failures == {}
    rows = [
        {**kept(LAYERED, bench.sample(LAYERED, index)), **kept(CHUNKED, bench.sample(CHUNKED, index))}
        for index in range(2)
    ]
    again = kept(LAYERED, bench.sample(LAYERED, 0))
    for column in ("request.arrival_s", "request.prompt_tokens", "request.output_tokens"):
        assert again[f"{LAYERED.name}/{column}"] == rows[0][f"{LAYERED.name}/{column}"]
        for row in rows:
            assert row[f"{LAYERED.name}/{column}"] == row[f"{CHUNKED.name}/{column}"]
        assert rows[0][f"{LAYERED.name}/{column}"] != rows[1][f"{LAYERED.name}/{column}"]


def test_a_block_comes_back_from_the_journal(make_bench):
    bench, _ = make_bench(PLAN, [LAYERED])
    row = json.loads(json.dumps(kept(LAYERED, bench.sample(LAYERED, 3))))
    (found,) = blocks(Measured(rounds=[row]), LAYERED)
    assert [record.arrival_s for record in found.records] == row[f"{LAYERED.name}/request.arrival_s"]
    assert sum(record.num_tokens for record in found.records) == len(row[f"{LAYERED.name}/request.token_times_s"])
    assert all(record.finished and record.scheduled_s >= record.arrival_s for record in found.records)
    unknown = ("energy_j", "host_s")  # of a device on a virtual clock
    logged = {name: list(values) for name, values in found.log.columns().items() if name not in unknown}
    assert logged == {name: row[f"{LAYERED.name}/iteration.{name}"] for name in logged}
    assert len(logged) == len(IterationLog().columns()) - len(unknown)
    assert found.rate_per_s == 1.3
    assert (found.slo.ttft_s, found.slo.tbt_s) == (10.0, 0.125)  # Layered Prefill, Table 5


def test_pooled_blocks_follow_one_another_and_keep_every_figure(make_bench):
    bench, _ = make_bench(PLAN, [LAYERED])
    found = blocks(Measured(rounds=[kept(LAYERED, bench.sample(LAYERED, index)) for index in range(3)]), LAYERED)
    whole = pooled(found)
    assert [record.ttft_s for record in whole.records] == pytest.approx(
        [record.ttft_s for one in found for record in one.records], abs=1e-9
    )
    assert [record.id for record in whole.records] == list(range(30))
    ends = list(whole.log.end_s)
    assert ends == sorted(ends)
    assert whole.expert_load_bytes == sum(one.expert_load_bytes for one in found)


def test_a_utilisation_is_a_rate_of_what_was_measured_and_resumed_at_the_same(make_bench):
    load = LoadSpec(model=PLAN.model, workload="layered-arxiv", utilisation=0.5)
    point = served("chunked", PLAN, load)
    bench, _ = make_bench(PLAN, [point])
    row = kept(point, bench.sample(point, 0))
    full_rate = row[f"{point.name}/calibration"][0]
    assert row[f"{point.name}/run"][3] == pytest.approx(0.5 * full_rate)
    earlier = {f"{point.name}/calibration": (4.0, 0.01)}
    resumed, _ = make_bench(PLAN, [point], [earlier])
    assert resumed.sample(point, 0).rate_per_s == 2.0


@pytest.mark.parametrize("is_frozen", [False, True])
def test_what_a_calibration_has_served_is_warm(make_bench, monkeypatch, is_frozen):
    load = LoadSpec(model=PLAN.model, workload="layered-arxiv", utilisation=0.5)
    points = [served(policy, PLAN, load) for policy in ("chunked", "layered")]
    frozen = {load.workload: Calibration(full_rate_per_s=4.0, decode_step_s=0.01)} if is_frozen else None
    bench, failures = make_bench(PLAN, points, frozen=frozen)
    assert failures == {}
    warmed = []
    monkeypatch.setattr(ServingBench, "_serve", lambda bench, point, requests: warmed.append((point, len(requests))))
    assert all(bench.warm_up(point)[1] for point in points)
    assert warmed == [(point, NUM_WARM_UP_REQUESTS) for point in points[0 if is_frozen else 1 :]]


@pytest.mark.parametrize(
    ("hardware", "profile", "number"),
    [("cpu", "quick", 8), ("cpu", "nightly", 32), ("nvidia-h100", "quick", 20), ("nvidia-h100", "nightly", 32)],
)
def test_the_full_rate_is_of_a_decode_batch_as_far_as_a_block_has_one(hardware, profile, number):
    plan = next(serving_plans(SPECS[hardware], profile))
    assert num_calibration_requests(plan) == number
    assert num_calibration_requests(replace(plan, serving=replace(plan.serving, max_batch_size=4))) == 4


def test_a_load_that_cannot_be_had_takes_its_own_points_along(make_bench):
    absent = ServedPoint(policy="chunked", load=LoadSpec(model=PLAN.model, workload="nobody-knows-it", rate_per_s=1.0))
    bench, failures = make_bench(PLAN, [CHUNKED, absent])
    assert list(failures) == [absent.name]
    assert "nobody-knows-it" in failures[absent.name]
    bench.sample(CHUNKED, 0)


def test_lengths_divided():
    whole, part = lengths("layered-arxiv", 50, 1, 32_768), lengths("layered-arxiv-div32", 50, 1, 1024)
    assert part == tuple((max(1, round(prompt / 32)), max(1, round(output / 32))) for prompt, output in whole)
    whole, part = lengths("layered-arxiv", 50, 1, 4096), lengths("layered-arxiv-div32x4", 50, 1, 1024)
    assert part == tuple((max(1, round(prompt / 32)), max(1, round(output / 4))) for prompt, output in whole)
    for wrong in ("layered-arxiv-div0", "layered-arxiv-div8x0"):
        with pytest.raises(WorkloadError, match=wrong):
            lengths(wrong, 5, 1, 1024)


def test_a_block_has_its_rate_and_burstiness():
    times = [request.arrival_s for request in block("layered-arxiv", 4000, 2.0, round_index=0, max_total_tokens=32_768)]
    assert len(times) / times[-1] == pytest.approx(2.0, rel=0.1)
    bursty = block("layered-arxiv", 4000, 2.0, round_index=0, max_total_tokens=32_768, cv=1.83)
    gaps = [after.arrival_s - before.arrival_s for before, after in pairwise(bursty)]
    mean = sum(gaps) / len(gaps)
    cv = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5 / mean
    assert cv == pytest.approx(1.83, rel=0.12)
