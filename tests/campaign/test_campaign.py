"""A campaign on a scripted engine: measured once, journalled round by round, taken over where a journal holds it."""

from types import SimpleNamespace

import pytest

from pytest_npubench.backends.protocol import Device
from pytest_npubench.campaign.campaign import Campaign, CampaignSite
from pytest_npubench.campaign.protocol import Progress
from pytest_npubench.campaign.rounds import measure_round
from pytest_npubench.core.measurement import CacheState, CompileRecord, Move, Request, Run
from pytest_npubench.engines.protocol import Engine
from pytest_npubench.errors import JournalError
from pytest_npubench.store.fingerprint import collect_host
from pytest_npubench.store.journal import JournalWriter, read_journal
from pytest_npubench.suites.buckets.bench import BucketBench
from pytest_npubench.suites.buckets.points import BucketPoint

from .conftest import seconds, with_size

DEVICES = (Device(family="fake", ordinal=0, name="Fake accelerator"),)


class ScriptedEngine(Engine):
    """Takes the times of conftest.py; `fails` maps a prompt length to the call from which on it raises."""

    def __init__(self, runtime, plan, fails=None):
        self.runtime, self.plan = runtime, plan
        self.fails = fails or {}
        self.calls = {}

    def load(self, buckets):
        for bucket in buckets:
            record = CompileRecord(name=f"prefill-m-{bucket}", compile_s=0.5, cache=CacheState.COLD)
            if record not in self.runtime.compiles:
                self.runtime.compiles.append(record)

    def run(self, requests):
        length = requests[0].input_tokens
        self.calls[length] = self.calls.get(length, 0) + 1
        if self.calls[length] >= self.fails.get(length, 10**9):
            raise OSError("gone")
        self.runtime.num_process_compiles += length == 8  # compiles at each call
        return Run(
            e2e_s=seconds(SimpleNamespace(move=None, requests=requests), self.plan.buckets), segments=(), moves=()
        )

    def time_move(self, small, large):
        return Move(from_bucket=small, to_bucket=large, duration_s=0.001)


class Bench:
    """What campaigns of one test share: a journal, a device, and how often an engine was made."""

    def __init__(self, folder, plan):
        self.path = folder / "journal.jsonl"
        self.plan = plan
        self.engines = []

    def campaign(
        self, points, plan=None, settled=lambda measured: True, fails=None, fingerprint="f", telemetry=None, **changes
    ):
        plan = plan or self.plan
        runtime = SimpleNamespace(compiles=[], num_process_compiles=0)
        if telemetry:
            runtime.telemetry = lambda: telemetry

        def make_engine(runtime, plan):
            self.engines.append(ScriptedEngine(runtime, plan, fails))
            return self.engines[-1]

        journal = JournalWriter.open(self.path, host=collect_host(self.path.parent), settings={})
        known = {
            "site": CampaignSite(devices=DEVICES, runtime=runtime, fingerprint=fingerprint),
            "make_bench": lambda runtime: BucketBench(runtime, plan, make_engine),
            "settled": settled,
            "journal": journal,
            "earlier": None,
            "progress": Progress(),
        }
        return Campaign(plan, points, **{**known, **changes})

    def records(self, kind):
        return [record for record in read_journal(self.path).records if record["record"] == kind]


@pytest.fixture
def bench(tmp_path, plan):
    return Bench(tmp_path, plan)


def profile(plan, *buckets):
    return [plan.profile_point(point) for point in plan.profile_points(buckets)]


def test_points_asked_for_twice_are_measured_once_and_on_demand_only(bench, plan):
    points = profile(plan, 16, 32)
    campaign = bench.campaign([*points, *points])
    assert len(campaign.points) == 4
    assert bench.engines == []
    measured = campaign.measured()
    assert campaign.measured() is measured
    assert len(bench.engines) == 1
    assert [record["points"].keys() for record in bench.records("round")] == [{point.name for point in points}] * 2
    for point in points:
        assert set(measured.samples(point.name).samples_s) == {seconds(point, plan.buckets)}


@pytest.mark.parametrize(
    ("changes", "settled_after", "expected"),
    [
        ({}, 0, 2),  # never fewer than min_rounds
        ({}, 5, 5),
        ({}, 100, 9),  # never more than max_rounds
        ({"budget_s": 1e-9}, 100, 2),  # the budget ends it, but not before min_rounds
    ],
    ids=["settled at once", "settled later", "never settled", "no budget"],
)
def test_how_many_rounds(bench, plan, changes, settled_after, expected):
    campaign = bench.campaign(
        profile(plan, 16), with_size(plan, **changes), settled=lambda measured: len(measured.rounds) >= settled_after
    )
    assert len(campaign.measured().rounds) == expected
    records = bench.records("round")
    assert [record["round"] for record in records] == list(range(expected))
    assert [record["complete"] for record in records] == [False] * (expected - 1) + [True]


@pytest.mark.parametrize(
    ("passes_after", "expected"),
    [(0, 4), (5, 5), (100, 6)],
    ids=["passes when the budget is spent", "passes a round later", "fails for good: half the budget again"],
)
def test_a_failing_case_gets_more_rounds_than_the_budget(bench, plan, monkeypatch, passes_after, expected):
    def a_second_each(*arguments):
        return *measure_round(*arguments)[:2], 1.0

    monkeypatch.setattr("pytest_npubench.campaign.campaign.measure_round", a_second_each)
    campaign = bench.campaign(
        profile(plan, 16),
        with_size(plan, budget_s=4.0),
        settled=lambda _: False,
        failing=lambda measured: len(measured.rounds) < passes_after,
    )
    assert len(campaign.measured().rounds) == expected
    assert [record["complete"] for record in bench.records("round")] == [False] * (expected - 1) + [True]


def test_a_complete_campaign_is_taken_over_without_its_device(bench, plan):
    points = profile(plan, 16, 32)
    first = bench.campaign(points).measured()
    again = bench.campaign(points[::-1], earlier=read_journal(bench.path)).measured()
    assert len(bench.engines) == 1
    assert again.rounds == first.rounds
    assert again.compiles == first.compiles
    assert (again.num_resumed_rounds, first.num_resumed_rounds) == (2, 0)


def test_an_unfinished_campaign_goes_on_at_the_next_round(bench, plan):
    points = profile(plan, 16)
    longer = with_size(plan, min_rounds=5)
    ends = iter([False, False, True])

    def settled(measured):
        if next(ends):
            raise KeyboardInterrupt
        return False

    with pytest.raises(KeyboardInterrupt):
        bench.campaign(points, settled=settled).measured()
    interrupted = bench.records("round")
    assert [record["round"] for record in interrupted] == [0, 1, 2]
    measured = bench.campaign(points, longer, earlier=read_journal(bench.path)).measured()
    assert [record["round"] for record in bench.records("round")] == [0, 1, 2, 3, 4]
    assert measured.num_resumed_rounds == 3
    assert len(measured.rounds) == 5
    assert measured.measure_s == pytest.approx(sum(record["duration_s"] for record in bench.records("round")))


@pytest.mark.parametrize("difference", ["fingerprint", "points", "draws"])
def test_another_fingerprint_or_other_points_take_nothing_over(bench, plan, difference):
    bench.campaign(profile(plan, 16)).measured()
    points, other, fingerprint = profile(plan, 16), plan, "f"
    if difference == "fingerprint":
        fingerprint = "g"
    elif difference == "points":
        points = profile(plan, 16, 32)
    else:
        other = with_size(plan, num_draws=9)
    campaign = bench.campaign(points, other, fingerprint=fingerprint, earlier=read_journal(bench.path))
    assert campaign.measured().num_resumed_rounds == 0
    assert [record["round"] for record in bench.records("round")] == [0, 1, 0, 1]


def test_compile_times_of_another_fingerprint_are_not_taken_over(bench, plan):
    points = profile(plan, 16)
    bench.campaign(points).measured()
    lines = bench.path.read_text().splitlines(keepends=True)
    compiles = [line for line in lines if '"record":"compile"' in line]
    assert compiles
    foreign = [line.replace('"fingerprint":"f"', '"fingerprint":"g"').replace("0.5", "9.0") for line in compiles]
    bench.path.write_text("".join([*lines, *foreign]))
    again = bench.campaign(points, earlier=read_journal(bench.path)).measured()
    assert {record.compile_s for record in again.compiles} == {0.5}


def test_a_point_that_fails_in_any_call_is_left_out_from_then_on(bench, plan):
    points = profile(plan, 16, 32, 64)
    by_length = {bucket: bucket - 9 for bucket in plan.buckets}  # the prompt of a bucket's two points
    fails = {by_length[32]: 1, by_length[64]: 9}  # while warming up; in the first round
    measured = bench.campaign(points, fails=fails).measured()
    assert measured.failures.keys() == {"profile/32/1", "profile/32/9", "profile/64/1", "profile/64/9"}
    assert set(measured.failures.values()) == {f"{name}: OSError: gone" for name in measured.failures}
    assert measured.rounds[1].keys() == {"profile/16/1", "profile/16/9"}
    resumed = bench.campaign(points, earlier=read_journal(bench.path)).measured()
    assert resumed.failures == {}  # a later session tries again what failed in this one
    assert resumed.rounds[-1].keys() == {point.name for point in points}


def test_all_points_failing_ends_without_a_round(bench, plan):
    measured = bench.campaign(profile(plan, 16), fails={7: 1}).measured()
    assert measured.rounds == []
    assert len(measured.failures) == 2


def test_compiles_after_warm_up_are_counted_and_taken_over(bench, plan):
    request = Request(input_tokens=8, output_tokens=1)  # the length that the scripted engine compiles anew
    points = [BucketPoint(name="p", requests=(request, request))]
    measured = bench.campaign(points).measured()
    num_samples = len(measured.samples("p").samples_s)
    assert measured.num_late_compiles == num_samples
    complete = bench.campaign(points, earlier=read_journal(bench.path)).measured()
    assert complete.num_late_compiles == num_samples
    bench.path.write_text(bench.path.read_text().replace('"complete":true', '"complete":false'))
    longer = bench.campaign(points, with_size(plan, min_rounds=4), earlier=read_journal(bench.path)).measured()
    assert longer.num_late_compiles == len(longer.samples("p").samples_s) == 2 * num_samples


def test_a_journal_that_cannot_be_written_ends_the_campaign(bench, plan):
    campaign = bench.campaign(profile(plan, 16))
    journal = JournalWriter.open(bench.path, host=collect_host(bench.path.parent), settings={})
    journal.close()
    campaign._journal = journal
    with pytest.raises(JournalError):
        campaign.measured()


def test_a_point_that_never_settles_is_named_in_its_rounds(bench, plan, monkeypatch):
    monkeypatch.setattr("pytest_npubench.suites.buckets.bench.warm_up", lambda sample: (sample(), False))
    bench.campaign(profile(plan, 16)).measured()
    rounds = [record for record in read_journal(bench.path).records if record["record"] == "round"]
    assert rounds
    assert all(record["unsteady"] == ["profile/16/1", "profile/16/9"] for record in rounds)


@pytest.mark.parametrize("where", ["nowhere", "load", "sample", "journal"])
def test_a_bench_is_closed_however_its_campaign_ends(bench, plan, monkeypatch, where):
    ended = []

    class Closing(BucketBench):
        def load(self, *arguments):
            if where == "load":
                raise OSError("gone")
            return super().load(*arguments)

        def close(self):
            ended.append(where)

    points = profile(plan, 16)
    fails = {16: 1} if where == "sample" else None
    make_engine = lambda runtime, plan: ScriptedEngine(runtime, plan, fails)  # noqa: E731
    campaign = bench.campaign(points, make_bench=lambda runtime: Closing(runtime, plan, make_engine))
    if where == "journal":
        monkeypatch.setattr(campaign._journal, "append", _full_disk)
        with pytest.raises(JournalError):
            campaign.measured()
    else:
        campaign.measured()
    assert ended == [where]


def _full_disk(record):
    raise JournalError("no space left")
