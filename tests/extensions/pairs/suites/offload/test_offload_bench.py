"""The bench of an offload campaign on a pair with made-up figures: what it records, and how it ends."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pytest_npubench.errors import DeviceUnavailableError, MeasurementError
from pytest_npubench.extensions.pairs.offload.chunk_graphs import ChunkVisit
from pytest_npubench.extensions.pairs.offload.factorial import FactorialVisit
from pytest_npubench.extensions.pairs.offload.replay import ReplaySettings, ReplayVisit
from pytest_npubench.extensions.pairs.offload.shadow import ShadowVisit
from pytest_npubench.extensions.pairs.suites.offload import bench as bench_module
from pytest_npubench.extensions.pairs.suites.offload.bench import OffloadBench
from pytest_npubench.suites import case_kind
from pytest_npubench.verdict import VerdictKind

from .conftest import WORDS, FakeOffloadPair, offload_plan, replay_figures

PLAN = offload_plan(ReplaySettings(policies=("in_order", "fifo", "contribution")))
KIND = case_kind("out_of_order")
CASE = PLAN.case("offload", "out_of_order", ())
POINTS = KIND.points(CASE, PLAN)


@pytest.fixture
def campaign(make_campaign, monkeypatch):
    """The pair, and a campaign on it."""

    def made(points=POINTS, earlier=False, plan=PLAN, **known):
        pair, opened = FakeOffloadPair(**known), []
        monkeypatch.setattr(bench_module, "OffloadPair", lambda settings: opened.append(settings) or pair)
        pair.opened = opened
        return pair, make_campaign(plan, points, OffloadBench, earlier=earlier)

    return made


def test_every_point_is_visited_once_a_round_after_warming_up(campaign):
    pair, running = campaign()
    measured = running.measured()
    assert pair.opened == [PLAN.experiment]
    assert measured.failures == {}
    names = {point.name for point in POINTS}
    assert {name: pair.visits.count(name) for name in names} == dict.fromkeys(names, 2 + 2)
    assert [set(row) for row in measured.rounds] == [
        {f"{name}/{figure}" for name in names for figure in REPLAY_COLUMNS}
    ] * 2
    assert (pair.num_loads, pair.num_closed) == (1, 1)
    assert KIND.judge(CASE, PLAN, measured).verdict.kind is VerdictKind.PASSED


@pytest.mark.parametrize("dies_after", [0, 5, 7])
def test_a_unit_that_dies_leaves_its_last_words_with_every_point(campaign, dies_after):
    """While warming up and in the first round."""
    pair, running = campaign(dies_after=dies_after)
    measured = running.measured()
    assert measured.failures.keys() == {point.name for point in POINTS}
    assert all(WORDS in reason for reason in measured.failures.values()), measured.failures
    with pytest.raises(MeasurementError, match="its last words: the unit is on fire"):
        KIND.judge(CASE, PLAN, measured)
    assert pair.num_closed == 1


@pytest.mark.parametrize("fails", [MeasurementError("shared array x takes 9 MiB; 1 MiB are free"), OSError("gone")])
def test_what_cannot_be_loaded_is_every_point_s_reason(campaign, fails):
    pair, running = campaign(fails=fails)
    assert all(str(fails) in reason for reason in running.measured().failures.values())
    assert (len(running.measured().failures), pair.num_closed) == (len(POINTS), 1)


def test_a_pair_without_a_second_core(campaign, monkeypatch):
    _, running = campaign()

    def refuse(settings):
        raise DeviceUnavailableError("a pair of units needs 2 cores; this process may use 1 ([0])")

    monkeypatch.setattr(bench_module, "OffloadPair", refuse)
    assert all("needs 2 cores" in reason for reason in running.measured().failures.values())


def test_another_pair_than_the_host_s_is_refused_by_name():
    with pytest.raises(DeviceUnavailableError, match="runs on the pair 'host', not on 'cuda-host'"):
        OffloadBench(SimpleNamespace(), offload_plan(ReplaySettings(), pair="cuda-host"))


def test_a_resumed_campaign_goes_on_with_what_was_lost(campaign):
    _, running = campaign(dies_after=9)  # six visits of warming up, a round of three, and the first of the next
    assert len(running.measured().failures) == len(POINTS)
    pair, again = campaign(earlier=True)
    measured = again.measured()
    assert measured.failures == {}
    assert measured.num_resumed_rounds == 2
    judgement = KIND.judge(CASE, PLAN, measured)
    assert judgement.verdict.kind is VerdictKind.PASSED
    (contribution,) = [metric for metric in judgement.metrics if metric.name == "contribution_s"]
    assert len(contribution.samples) == 2  # the first session's whole round and this one's
    assert pair.num_closed == 1


def test_a_complete_campaign_is_taken_over_without_a_pair(campaign):
    _, running = campaign()
    first = running.measured()
    pair, again = campaign(earlier=True)
    assert again.measured().rounds == first.rounds
    assert (pair.opened, pair.visits) == ([], [])


def test_an_interrupted_campaign_closes_its_pair(campaign):
    pair, running = campaign()
    measure = pair.measure

    def interrupted(name):
        if len(pair.visits) == 8:
            raise KeyboardInterrupt
        return measure(name)

    pair.measure = interrupted
    with pytest.raises(KeyboardInterrupt):
        running.measured()
    assert pair.num_closed == 1


def test_a_visit_leaves_the_experiment_s_own_record(campaign):
    campaign()  # puts the pair in place
    bench = OffloadBench(SimpleNamespace(), PLAN)
    visit = bench.sample(PLAN.visits[0], 0)
    assert visit == replay_figures(1e-3, 0.25)
    assert tuple(visit.columns()) == REPLAY_COLUMNS
    bench.close()


GRAPHS = ("num_graphs", "weight_bytes", "executable_bytes", "compile_s")
REPLAY_COLUMNS = ("total_s", "bubble_fraction", "predicted_s", "stalled_s", "relative_error")


@pytest.mark.parametrize(
    ("figures", "columns"),
    [
        (ChunkVisit, (*GRAPHS, "run_s", "total_s", "computed_tokens", "relative_error")),
        (
            ShadowVisit,
            ("total_s", "static_s", "dynamic_s", "sync_fraction", "num_outlier_channels", "relative_error"),
        ),
        (ReplayVisit, REPLAY_COLUMNS),
        (FactorialVisit, (*GRAPHS, "total_s", "bubble_fraction", "relative_error")),
    ],
)
def test_columns_of_journals_keep_their_names(figures, columns):
    """A renamed field would make a journal of before unreadable."""
    left = figures(**dict.fromkeys(columns, 0.5))
    assert tuple(left.columns()) == columns
    assert figures.of_columns(left.columns()) == (left,)
