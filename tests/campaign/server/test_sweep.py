"""A sweep over a made server whose capacity is worked out apart: a queue before slots that each take one request."""

from __future__ import annotations

from dataclasses import replace
from heapq import heapify, heapreplace

import numpy as np
import pytest
from scipy import optimize

from pytest_npubench.campaign.points import Measured
from pytest_npubench.engines.http.answer import HttpAnswer, HttpRequest
from pytest_npubench.engines.http.load_run import HttpRun
from pytest_npubench.errors import MeasurementError
from pytest_npubench.serving.arrivals import poisson
from pytest_npubench.serving.metrics import Slo
from pytest_npubench.serving.request import ServingRequest
from pytest_npubench.suites import case_kind
from pytest_npubench.suites.server import SUITE
from pytest_npubench.suites.server.sweep import NUM_RATES, Sweep, SweptRate, in_words, knee, rates_of, sweep
from pytest_npubench.verdict import VerdictKind

from .conftest import read_back, server_plan

SERVICE_S, LIMIT_S = 2.0, 5.0


class SlotQueue:
    """A fake in the place of a Loader: no request is sent, and times are made up."""

    def __init__(self, slots: int, service_s: float = SERVICE_S, lost: tuple[str, ...] = ()) -> None:
        self.slots, self.service_s, self.lost = slots, service_s, lost
        self.names: list[str] = []

    def requests(self, workload, num_requests, rate_per_s, seed):
        return tuple(
            ServingRequest(id=index, arrival_s=at_s, prompt_tokens=3, output_tokens=2)
            for index, at_s in enumerate(poisson(rate_per_s, num_requests, seed))
        )

    def send(self, requests, name, num_processes=1):
        self.names.append(name)
        starts_s = starts(np.array([request.arrival_s for request in requests]), self.slots, self.service_s)
        answers = tuple(
            HttpAnswer(
                request=HttpRequest(id=request.id, arrival_s=request.arrival_s, prompt=(1,), output_tokens=2),
                dispatched_s=request.arrival_s,
                token_times_s=(start_s, start_s + self.service_s),
            )
            for request, start_s in zip(requests, starts_s, strict=True)
        )
        ended_s = max(starts_s) + self.service_s
        return HttpRun(answers=answers, loop_stalls_s=(0.0,), started_s=0.0, ended_s=ended_s, lost=self.lost)


def starts(arrivals_s, slots: int, service_s: float) -> list[float]:
    """When each is served, first come first served."""
    free_s, started_s = [0.0] * slots, []
    heapify(free_s)
    for at_s in arrivals_s:
        started_s.append(max(at_s, free_s[0]))
        heapreplace(free_s, started_s[-1] + service_s)
    return started_s


def planted(slots: int, num_requests: int, limit_s: float) -> float:
    """The rate at which 90 % of the requests of such blocks start in time, over 100 blocks."""
    gaps_s = np.random.default_rng(0).exponential(size=(100, num_requests)).cumsum(axis=1)

    def too_many(rate: float) -> float:
        waits = [np.array(starts(row / rate, slots, SERVICE_S)) - row / rate for row in gaps_s]
        return float(np.mean(np.concatenate(waits) > limit_s)) - 0.1

    return optimize.brentq(too_many, 0.02 * slots / SERVICE_S, 4 * slots / SERVICE_S, rtol=0.01)


@pytest.mark.parametrize(("slots", "limit_s"), [(1, LIMIT_S), (8, LIMIT_S), (1, 0.2)])
def test_the_planted_capacity_is_found_with_few_rates(slots, limit_s):
    """Also a limit so tight that hardly a request may wait."""
    rows: list[float] = []
    slo = Slo(ttft_s=limit_s, tbt_s=9.0)
    found, capacity = sweep(
        SlotQueue(slots), "any", 150, slo=slo, target=0.9, seen=lambda block: rows.append(block.rate_per_s)
    )
    assert len(found.blocks) == len(rows) == NUM_RATES
    assert capacity.rate_per_s == pytest.approx(planted(slots, 150, limit_s), rel=0.15)
    assert all(
        row.attainment_interval[0] <= row.attainment <= row.attainment_interval[1] for row in rates_of(found.blocks)
    )


def test_no_prompt_comes_twice_and_the_seed_draws_all_else():
    queue, again = SlotQueue(2), SlotQueue(2)
    found, other = (
        sweep(each, "any", 20, slo=Slo(ttft_s=LIMIT_S, tbt_s=9.0), target=0.9, seed=4)[0] for each in (queue, again)
    )
    assert found == other
    assert len({*queue.names}) == len(queue.names)


def test_a_capacity_above_the_range_is_told_by_its_bound():
    """No queue of 20 is too long for 1e6 s: twice the rate of the block at once passes, three times over."""
    found, capacity = sweep(SlotQueue(1), "any", 20, slo=Slo(ttft_s=1e6, tbt_s=9.0), target=0.9)
    assert capacity.rate_per_s is None
    assert capacity.interval == (pytest.approx(2 / SERVICE_S), None)
    assert [block.rate_per_s for block in found.blocks[-3:]] == pytest.approx([2 / SERVICE_S] * 3)


def test_a_sweep_comes_back_from_its_columns():
    found, _ = sweep(SlotQueue(2), "any", 12, slo=Slo(ttft_s=LIMIT_S, tbt_s=9.0), target=0.9)
    (back,) = Sweep.of_columns(found.columns())
    assert back.columns() == found.columns()
    assert [block.rate_per_s for block in back.blocks] == [block.rate_per_s for block in found.blocks]


def test_a_lost_process_is_no_measurement():
    with pytest.raises(MeasurementError, match="process 1 was lost"):
        sweep(SlotQueue(1, lost=("process 1 was lost",)), "any", 9, slo=Slo(ttft_s=1, tbt_s=9), target=0.9)


def test_the_knee_has_the_most_answers_for_its_latency():
    """1 / 1, 1.8 / 1.2 and 2 / 4: the second."""
    found, _ = sweep(SlotQueue(2), "any", 12, slo=Slo(ttft_s=LIMIT_S, tbt_s=9.0), target=0.9)
    row = SweptRate.of(found.blocks[0])
    rows = [replace(row, answered_per_s=a, e2e_mean_s=b) for a, b in ((1.0, 1.0), (1.8, 1.2), (2.0, 4.0), (9.0, None))]
    assert knee(rows) is rows[1]


def test_a_capacity_that_short_blocks_make_too_large_says_so():
    """Of twelve requests on one slot, which answers 0.5 a second, the 11th waits 20 - 10 / rate s: 8 s at 0.83."""
    made, capacity = sweep(SlotQueue(1), "any", 12, slo=Slo(ttft_s=8.0, tbt_s=9.0), target=0.9)
    assert capacity.rate_per_s > 0.65
    assert "that are answered: with more requests it is less" in in_words(capacity, rates_of(made.blocks))


def test_what_fails_alone_is_tried_at_one_rate():
    """Gaps of 2 s miss a limit of 1 s."""
    found, capacity = sweep(SlotQueue(1), "any", 20, slo=Slo(ttft_s=LIMIT_S, tbt_s=1.0), target=0.9)
    assert (len(found.blocks), capacity.reached) == (1, False)
    assert capacity.interval == (None, found.blocks[0].rate_per_s)


KIND = case_kind("capacity")


def judged(*sweeps: Sweep, attainment: float = 0.9):
    """The kind's one case on rounds that a journal has kept."""
    plan = server_plan(slo=(LIMIT_S, 9.0), attainment=attainment)
    (case,) = (plan.case(KIND.suite, KIND.name, axes) for axes in KIND.axes(plan))
    (point,) = KIND.points(case, plan)
    rows = [{f"{point.name}/{name}": tuple(values) for name, values in each.columns().items()} for each in sweeps]
    return case, KIND.judge(case, plan, Measured(rounds=rows))


def swept(slots: int, seed: int, tbt_s: float = 9.0) -> Sweep:
    slo = Slo(ttft_s=LIMIT_S, tbt_s=tbt_s)
    return sweep(SlotQueue(slots), "any", 60, slo=slo, target=0.9, seed=seed)[0]


def test_a_night_with_fewer_slots_has_a_smaller_capacity():
    """By more than the margin, in every round."""
    wide, narrow = (judged(swept(slots, 0), swept(slots, 1))[1] for slots in (8, 4))
    assert wide.verdict.kind is VerdictKind.PASSED
    (capacity,), (less,) = wide.metrics, narrow.metrics
    assert (capacity.name, capacity.better, capacity.margin) == ("capacity_requests_per_s", "higher", 0.1)
    assert capacity.value == wide.detail.capacity_per_s == pytest.approx(planted(8, 60, LIMIT_S), rel=0.15)
    assert less.value == pytest.approx(planted(4, 60, LIMIT_S), rel=0.15)
    assert max(less.samples) < 0.9 * min(capacity.samples)
    assert len(wide.detail.rates) == 2 * NUM_RATES


def test_limits_that_an_idle_server_misses_fail_the_case_and_a_late_client_makes_it_invalid():
    missed = judged(swept(2, 0, tbt_s=1.0), swept(2, 1, tbt_s=1.0))[1]
    assert missed.verdict.kind is VerdictKind.FAILED
    assert "fewer than 90% attain there in every round" in missed.verdict.reason
    made = swept(2, 0)
    late = replace(made, blocks=(replace(made.blocks[0], stalls_s=(0.0, 0.0, 99.0)), *made.blocks[1:]))
    assert judged(late)[1].verdict.kind is VerdictKind.INVALID


def test_a_quick_run_and_a_file_without_limits_have_no_sweeps():
    assert not server_plan().includes("capacity")
    assert not list(KIND.axes(server_plan(slo=None)))
    assert not list(KIND.axes(server_plan(attainment=1.0)))


def test_the_page_draws_latency_against_throughput():
    """A line a latency, the knee and the capacity as marks, a row a rate."""
    case, judgement = judged(swept(4, 0))
    (curve, attainment, *_), _, (line,) = SUITE.parts(read_back(case, judgement), ())
    names = [series.name for series in curve.figure.series]
    assert names == ["E2E, mean", "TTFT, p99", "TTFT, mean", "TBT, p99", "knee", "90% attain"]
    assert all(len(series.x) == 1 for series in curve.figure.series[-2:])
    assert len(curve.table.rows) == len(attainment.table.rows) == NUM_RATES
    shares, capacity = attainment.figure.series
    assert list(shares.y) == [100 * row.attainment for row in judgement.detail.rates]
    assert all(low <= share <= high for share, (low, high) in zip(shares.y, shares.y_ends, strict=True))
    assert (capacity.x, capacity.y) == ([judgement.detail.capacity_per_s], [90.0])
    assert capacity.x_ends[0] == judgement.detail.capacity_interval
    assert "capacity" in line
