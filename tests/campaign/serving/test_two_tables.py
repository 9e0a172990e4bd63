"""Tables 2 and 10: what their cases say of figures whose answer is known."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest

from pytest_npubench.campaign.points import Measured
from pytest_npubench.suites.scheduling import calibration
from pytest_npubench.suites.scheduling.figures import ratio_bounds
from pytest_npubench.suites.scheduling.kinds import attainment, chunk_rate
from pytest_npubench.verdict import VerdictKind

from .conftest import serving_plan

NUM_ROUNDS = 6  # of two nothing is proven


@pytest.fixture(scope="module")
def kept():
    """By kind what was measured: once for all tests here, each of which gets rounds that it may change."""
    return {}


@pytest.fixture
def table_2(measure, kept):
    return measured_once(measure, kept, serving_plan(num_requests=60), "chunk_rate", 2)


@pytest.fixture
def table_10(measure, kept):
    return measured_once(measure, kept, serving_plan(num_requests=40), "disaggregated", NUM_ROUNDS)


def measured_once(measure, kept, plan, name, num_rounds):
    if name not in kept:
        kept[name] = measure(plan, name, num_rounds)
    kind, (case,), measured = kept[name]
    return kind, case, plan, replace(measured, rounds=list(map(dict, measured.rounds)))


def exchanged(measured, pairs):
    """What was measured under two names, each under the other's."""
    renamed = {first: second for pair in pairs for first, second in (pair, pair[::-1])}
    rounds = []
    for row in measured.rounds:
        parts = (name.rpartition("/") for name in row)
        rounds.append({f"{renamed.get(point, point)}/{column}": row[f"{point}/{column}"] for point, _, column in parts})
    return Measured(rounds=rounds)


def test_larger_chunks_bear_a_higher_rate_at_a_larger_tbt_and_load_less(table_2):
    kind, case, plan, measured = table_2
    judgement = kind.judge(case, plan, measured)
    assert judgement.verdict.kind is VerdictKind.PASSED
    detail = judgement.detail
    assert detail.ttft_limit_s == 2.5  # a quarter of Table 5's 10 s, as in the paper
    assert detail.chunk_size_tokens == (512, 1024, 2048)
    assert {row.mj_per_prompt_and_output_token for row in detail.rows} == {None}  # no energy on a virtual clock
    rates = [row.rate_per_s for row in detail.rows]
    assert rates == sorted(rates)
    for row, printed_rate in zip(detail.rows, (1.3, 1.7, 2.6), strict=True):
        assert row.rate_per_s == pytest.approx(printed_rate, rel=0.4)
        assert row.ttft_mean_s == pytest.approx(2.5, rel=0.6)


def lower_rate(row, name):
    *start, rate, ttft_s, tbt_s = row[f"{name}/run"]
    row[f"{name}/run"] = (*start, 0.2 * rate, ttft_s, tbt_s)


def more_loads(row, name):
    loads = row[f"{name}/iteration.expert_load_bytes"]
    row[f"{name}/iteration.expert_load_bytes"] = tuple(10 * value for value in loads)


def smaller_gaps(row, name):
    times, moved = iter(row[f"{name}/request.token_times_s"]), []
    for number in row[f"{name}/request.output_tokens"]:
        first, *others = (next(times) for _ in range(int(number)))
        moved += [first, *(first + 0.1 * (at_s - first) for at_s in others)]
    row[f"{name}/request.token_times_s"] = tuple(moved)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lower_rate, "rate, smallest / largest chunk, at the least"),
        (more_loads, "expert bytes a request, largest / smallest, at the least"),
        (smaller_gaps, "mean TBT, smallest / largest chunk, at the least"),
    ],
)
def test_what_points_the_other_way_fails_by_name(table_2, change, reason):
    kind, case, plan, measured = table_2
    largest = [point.name for point in kind.points(case, plan) if ("chunk_size_tokens", 2048) in point.settings]
    for row in measured.rounds:
        for name in largest:
            change(row, name)
    judgement = kind.judge(case, plan, measured)
    assert judgement.verdict.kind is VerdictKind.FAILED
    assert judgement.verdict.reason.startswith(reason)
    assert ";" not in judgement.verdict.reason  # the other two still pass


def test_without_a_crossing_nothing_is_said(measure):
    plan = serving_plan(num_requests=10)
    slow = replace(plan, serving=replace(plan.serving, loads=(replace(plan.loads[0], rate_per_s=0.01),)))
    kind, (case,), measured = measure(slow, "chunk_rate")
    judgement = kind.judge(case, slow, measured)
    assert judgement.verdict.kind is VerdictKind.INCONCLUSIVE
    assert "chunk of 512: attainment does not cross 50%" in judgement.verdict.reason
    assert judgement.metrics == ()


@pytest.mark.parametrize("utilisation", [1.3, 2.24, 2.88])
def test_a_block_in_which_a_tenth_misses_the_limit_on_ttft(utilisation):
    """A queue by hand: requests arrive `utilisation` a service, and are served one after the other."""

    def attained(num_requests):
        waits = [done - (done - 1) / utilisation for done in range(1, num_requests + 1)]
        return sum(wait <= 15 for wait in waits) / num_requests

    assert calibration.fewest_requests(utilisation, 0.9) == next(
        number for number in range(1, 200) if attained(number) < 0.9
    )


def test_a_block_that_is_too_short_for_its_limit_says_how_many_requests_are_wanted(measure):
    short = serving_plan(num_requests=8)
    load = replace(short.loads[0], rate_per_s=None, utilisation=0.7)
    stated = replace(short, serving=replace(short.serving, loads=(load,)))
    kind, (case,), measured = measure(stated, "attainment")
    of_rule = replace(stated, spec=replace(stated.spec, slos=()))
    ends = [kind.judge(case, plan, measured).verdict.reason.partition("; ")[2] for plan in (stated, of_rule)]
    assert ends == ["", "a block of 8 requests is too short to miss the TTFT limit: num_requests wants 29"]


def test_the_smallest_chunk_s_blocks_are_attainment_s():
    plan = serving_plan()
    kinds = attainment.KIND, chunk_rate.KIND
    cases = [next(plan.case(kind.suite, kind.name, axes) for axes in kind.axes(plan)) for kind in kinds]
    both = [set(kind.points(case, plan)) for kind, case in zip(kinds, cases, strict=True)]
    assert len(both[0] & both[1]) == len(attainment.FACTORS)


def test_figures_between_two_rates():
    """Halfway in the log of the rate is halfway in the figure, for each round by itself."""
    served_at = [
        tuple(SimpleNamespace(rate_per_s=rate, figure=figure) for figure in figures)
        for rate, figures in ((1.0, (10.0, 20.0)), (4.0, (30.0, 60.0)), (8.0, (90.0, 60.0)))
    ]
    for rate, expected in ((2.0, (20.0, 40.0)), (4.0, (30.0, 60.0)), (4 * math.sqrt(2), (60.0, 60.0))):
        at_rate = chunk_rate._at_rate(served_at, SimpleNamespace(rate_per_s=rate), lambda block: block.figure)
        assert at_rate == pytest.approx(expected)


def test_energy_is_that_of_the_counter(table_2):
    kind, case, plan, measured = table_2
    for row in measured.rounds:
        for point in kind.points(case, plan):
            tokens = sum(row[f"{point.name}/request.prompt_tokens"]) + sum(row[f"{point.name}/request.output_tokens"])
            row[f"{point.name}/energy_j"] = (0.05 * tokens,)
    rows = kind.judge(case, plan, measured).detail.rows
    assert [row.mj_per_prompt_and_output_token for row in rows] == pytest.approx([50.0] * 3)


def test_decode_on_a_device_of_its_own_is_smoother(table_10):
    kind, case, plan, measured = table_10
    judgement = kind.judge(case, plan, measured)
    assert judgement.verdict.kind is VerdictKind.PASSED
    found = judgement.detail.policies
    for column in ("tbt_mean_s", "tbt_p99_s"):
        disaggregated, layered, chunked = (
            getattr(found[name], column) for name in ("disaggregated", "layered", "chunked")
        )
        assert disaggregated < layered < chunked
    moved = judgement.detail.handover
    assert moved.num_requests == NUM_ROUNDS * 40
    prompts = [
        row[f"{point.name}/request.prompt_tokens"] for row in measured.rounds for point in kind.points(case, plan)
    ]
    assert moved.bytes == 98_304 * sum(map(sum, prompts)) / 4  # all four policies serve the same prompts


def test_a_pair_that_is_slower_fails_and_so_does_layered_prefill_without_its_lead(table_10):
    kind, case, plan, measured = table_10
    names = {point.policy: point.name for point in kind.points(case, plan)}
    slower = kind.judge(case, plan, exchanged(measured, [(names["layered"], names["disaggregated"])]))
    assert slower.verdict.kind is VerdictKind.FAILED
    assert slower.verdict.reason.startswith("mean TBT, pair / layered")
    behind = kind.judge(case, plan, exchanged(measured, [(names["layered"], names["chunked"])]))
    assert behind.verdict.kind is VerdictKind.FAILED
    assert behind.verdict.reason.startswith("mean TTFT, layered / chunked")


def test_a_hardware_file_may_name_it_among_its_policies(measure):
    plan = serving_plan(policies=("disaggregated",))
    kind, (case,), measured = measure(plan, "policy")
    judgement = kind.judge(case, plan, measured)
    assert judgement.verdict.kind is VerdictKind.PASSED
    assert judgement.detail.settings == {"max_prefill_tokens": 8192}


def test_bounds_of_a_ratio():
    assert ratio_bounds((2.0, 2.0, 2.0)) == pytest.approx((2.0, 2.0))
    low, high = ratio_bounds((math.exp(-1), math.e))  # a standard error of 1, and t of one degree of freedom is 12.706
    assert (math.log(low), math.log(high)) == pytest.approx((-12.7062, 12.7062), rel=1e-4)
    assert ratio_bounds((0.5,)) == (0.0, math.inf)
