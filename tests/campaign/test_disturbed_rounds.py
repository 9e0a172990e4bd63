"""A campaign on a disturbed device: rounds that do not count are repeated, up to a cap, and never is nothing left.

The telemetry is a FAKE: it tells of a second process on the device in the rounds a test names.
"""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_npubench.backends.telemetry.disturbance import DisturbanceLimits
from pytest_npubench.backends.telemetry.state import DeviceState
from pytest_npubench.campaign.callable_timing import MAX_ATTEMPTS, time_callable
from pytest_npubench.campaign.campaign import CampaignSite
from pytest_npubench.campaign.watch import Watch
from pytest_npubench.errors import DeviceUnavailableError
from pytest_npubench.store.journal import read_journal
from pytest_npubench.suites.buckets import bench as bench_module

from .conftest import seconds, with_size
from .test_campaign import DEVICES, Bench, profile

SHARED = "shared: 1 other process on the device (pid 9 python)"


class FakeTelemetry:
    """Reads two states a round. disturbed_rounds count from 0 over its life; the read lost_at finds no device."""

    def __init__(self, disturbed_rounds=(), lost_at=None, **known):
        self.disturbed_rounds = disturbed_rounds
        self.lost_at = lost_at
        self.known = {"clock_hz": 1.5e9, "temperature_c": 50.0, **known}
        self.num_reads = 0
        self.num_closed = 0

    def read(self):
        index, self.num_reads = self.num_reads, self.num_reads + 1
        if self.lost_at is not None and index >= self.lost_at:
            raise DeviceUnavailableError("fake:0 (Fake accelerator) is lost: fell off the bus")
        shared = index % 2 == 1 and index // 2 in self.disturbed_rounds
        others = {"num_other_processes": int(shared), "other_processes": ("pid 9 python",) * shared}
        return DeviceState.now(energy_j=100.0 * index, **{"throttle_reasons": (), **self.known, **others})

    def close(self):
        self.num_closed += 1


@pytest.fixture(autouse=True)
def no_energy(monkeypatch):
    """The bench reads no states of its own: those of FakeTelemetry are one a side of each round."""
    monkeypatch.setattr(bench_module, "open_telemetry", lambda _: None)


@pytest.fixture
def bench(tmp_path, plan):
    return Bench(tmp_path, plan)


def test_a_quiet_device_is_on_record_and_disturbs_nothing(bench, plan):
    telemetry = FakeTelemetry()
    measured = bench.campaign(profile(plan, 16), telemetry=telemetry).measured()
    assert (len(measured.rounds), measured.disturbed, telemetry.num_closed) == (2, None, 1)
    assert not measured.is_partly_disturbed
    assert measured.energy_j == 200.0  # 100 J in each of two rounds
    for record in bench.records("round"):
        assert "disturbed" not in record
        assert record["state"]["energy_j"] == 100.0
        assert record["state"]["clock_hz"] == 1.5e9
        assert None not in record["state"].values()


def test_without_telemetry_nothing_is_said(bench, plan):
    measured = bench.campaign(profile(plan, 16)).measured()
    assert measured.energy_j is None
    assert all(record.keys().isdisjoint({"state", "disturbed"}) for record in bench.records("round"))


@pytest.mark.parametrize("disturbed", [{0}, {1}, {0, 1}, {1, 2}])
def test_disturbed_rounds_are_journalled_and_repeated(bench, plan, disturbed):
    measured = bench.campaign(profile(plan, 16), telemetry=FakeTelemetry(disturbed)).measured()
    assert (len(measured.rounds), measured.disturbed, measured.is_partly_disturbed) == (2, None, True)
    records = bench.records("round")
    assert [record["round"] for record in records] == list(range(2 + len(disturbed)))
    assert {record["round"]: record["disturbed"] for record in records if "disturbed" in record} == dict.fromkeys(
        disturbed, SHARED
    )
    clean = [record for record in records if "disturbed" not in record]
    assert [{name: list(values) for name, values in row.items()} for row in measured.rounds] == [
        record["points"] for record in clean
    ]
    assert measured.energy_j == 200.0  # of the clean rounds alone
    assert measured.measure_s == pytest.approx(sum(record["duration_s"] for record in records))


def test_at_the_cap_all_rounds_are_kept_and_said_to_be_disturbed(bench, plan):
    measured = bench.campaign(profile(plan, 16), telemetry=FakeTelemetry({0, 2, 3})).measured()
    assert measured.disturbed == f"3 of 4 rounds disturbed: {SHARED}"
    assert not measured.is_partly_disturbed
    assert len(measured.rounds) == 4
    for point in profile(plan, 16):
        assert set(measured.samples(point.name).samples_s) == {seconds(point, plan.buckets)}
    assert [record["complete"] for record in bench.records("round")] == [False, False, False, True]


def test_the_cap_grows_with_the_rounds_that_a_campaign_needs(bench, plan):
    telemetry = FakeTelemetry(set(range(4)))
    measured = bench.campaign(profile(plan, 16), with_size(plan, min_rounds=5), telemetry=telemetry).measured()
    assert (len(measured.rounds), measured.disturbed) == (5, None)


@pytest.mark.parametrize(("num_disturbed", "is_partly_disturbed"), [(2, False), (3, True)])
def test_a_third_of_the_rounds_disturbs_the_night(bench, plan, num_disturbed, is_partly_disturbed):
    size, telemetry = with_size(plan, min_rounds=5), FakeTelemetry(range(num_disturbed))
    measured = bench.campaign(profile(plan, 16), size, telemetry=telemetry).measured()
    assert measured.is_partly_disturbed is is_partly_disturbed


def test_enough_clean_rounds_are_enough_at_the_cap(bench, plan):
    """Rounds go on because nothing is settled; what is disturbed then ends them and spoils nothing."""
    telemetry = FakeTelemetry({3, 4, 5})
    measured = bench.campaign(profile(plan, 16), settled=lambda measured: False, telemetry=telemetry).measured()
    assert (len(measured.rounds), measured.disturbed) == (3, None)
    assert len(measured.disturbed_rounds) == 3


def test_budget_ends_it_but_not_before_min_rounds_that_count(bench, plan):
    poor = with_size(plan, budget_s=1e-9)
    measured = bench.campaign(profile(plan, 16), poor, settled=lambda _: False, telemetry=FakeTelemetry({0})).measured()
    assert (len(measured.rounds), measured.disturbed) == (2, None)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sets(st.integers(0, 9)), st.integers(1, 4), st.booleans())
def test_never_empty_and_clean_unless_it_says_so(tmp_path, plan, disturbed, min_rounds, settle):
    bench = Bench(tmp_path, plan)
    bench.path.unlink(missing_ok=True)
    size = with_size(plan, min_rounds=min_rounds)
    telemetry = FakeTelemetry(disturbed)
    measured = bench.campaign(profile(plan, 16), size, settled=lambda _: settle, telemetry=telemetry).measured()
    records = bench.records("round")
    num_disturbed = sum("disturbed" in record for record in records)
    assert len(measured.rounds) >= min_rounds
    assert num_disturbed <= max(3, min_rounds)
    assert [record["complete"] for record in records] == [False] * (len(records) - 1) + [True]
    if measured.disturbed is None:
        assert len(measured.rounds) == len(records) - num_disturbed
    else:
        assert len(measured.rounds) == len(records)
        assert num_disturbed == max(3, min_rounds)
        assert len(records) - num_disturbed < min_rounds
    again = bench.campaign(profile(plan, 16), size, settled=lambda _: settle, earlier=read_journal(bench.path))
    resumed, complete = again._resumed()
    assert complete == (measured.disturbed is None)
    if complete:
        assert resumed.rounds == measured.rounds
        assert resumed.energy_j == pytest.approx(measured.energy_j)


def test_a_resumed_campaign_leaves_disturbed_rounds_out_too(bench, plan):
    points, ends = profile(plan, 16), iter([False, True])

    def settled(measured):
        if next(ends):
            raise KeyboardInterrupt
        return False

    with pytest.raises(KeyboardInterrupt):
        bench.campaign(points, settled=settled, telemetry=FakeTelemetry({0, 1})).measured()
    assert ["disturbed" in record for record in bench.records("round")] == [True, True, False, False]
    earlier = read_journal(bench.path)
    longer = with_size(plan, min_rounds=4)
    measured = bench.campaign(points, longer, earlier=earlier, telemetry=FakeTelemetry()).measured()
    assert (len(measured.rounds), len(measured.disturbed_rounds)) == (4, 2)
    assert measured.energy_j == 400.0  # two rounds taken over from the journal, two measured
    assert [record["round"] for record in bench.records("round")] == [0, 1, 2, 3, 4, 5]


def test_the_cap_counts_over_an_interruption(bench, plan):
    points = profile(plan, 16)
    with pytest.raises(KeyboardInterrupt):
        bench.campaign(
            points, with_size(plan, max_rounds=2), telemetry=_Interrupting({0, 1}, after=2), settled=lambda _: True
        ).measured()
    assert ["disturbed" in record for record in bench.records("round")] == [True, True]
    telemetry = FakeTelemetry({0})
    measured = bench.campaign(points, earlier=read_journal(bench.path), telemetry=telemetry).measured()
    assert measured.disturbed == f"3 of 3 rounds disturbed: {SHARED}"


class _Interrupting(FakeTelemetry):
    """Someone presses Ctrl-C before the round that follows `after`."""

    def __init__(self, disturbed_rounds, after):
        super().__init__(disturbed_rounds)
        self.after = after

    def read(self):
        if self.num_reads == 2 * self.after:
            raise KeyboardInterrupt
        return super().read()


def test_what_was_given_up_gets_another_try_with_all_its_repeats(bench, plan):
    points = profile(plan, 16)
    first = bench.campaign(points, telemetry=FakeTelemetry({0, 1, 3})).measured()
    assert first.disturbed == f"3 of 4 rounds disturbed: {SHARED}"
    second = bench.campaign(points, earlier=read_journal(bench.path), telemetry=FakeTelemetry({0, 1})).measured()
    assert (len(second.rounds), second.disturbed) == (2, None)  # the clean one of the first run, and one more
    assert [record["round"] for record in bench.records("round")] == list(range(7))
    third = bench.campaign(points, earlier=read_journal(bench.path)).measured()
    assert third.rounds == second.rounds
    assert len(bench.engines) == 2


@pytest.mark.parametrize("lost_at", [2, 3], ids=["between rounds", "within a round"])
def test_a_device_that_vanishes_fails_its_points_and_loses_nothing(bench, plan, lost_at):
    points, telemetry = profile(plan, 16), FakeTelemetry(lost_at=lost_at)
    measured = bench.campaign(points, telemetry=telemetry).measured()
    text = "fake:0 (Fake accelerator) is lost: fell off the bus"
    assert measured.failures == {point.name: text for point in points}
    assert telemetry.num_closed == 1
    (record,) = bench.records("round")
    assert record["points"].keys() == {point.name for point in points}
    again = bench.campaign(points, earlier=read_journal(bench.path), telemetry=FakeTelemetry()).measured()
    assert (again.failures, len(again.rounds), again.num_resumed_rounds) == ({}, 2, 1)


def test_the_limits_come_with_the_site(bench, plan):
    runtime = bench.campaign([])._site.runtime
    runtime.telemetry = FakeTelemetry
    strict = CampaignSite(
        devices=DEVICES,
        runtime=runtime,
        fingerprint="f",
        limits=DisturbanceLimits(wall_jump_s=-1.0),  # any clock jumps by more than that
    )
    measured = bench.campaign(profile(plan, 16), site=strict).measured()
    assert measured.disturbed is not None
    assert measured.disturbed.startswith("3 of 3 rounds disturbed: the wall clock jumped by ")


def timed(telemetry, rounds=4):
    calls = []
    with Watch(_Runtime(telemetry), DisturbanceLimits()) as watch:
        timing = time_callable(
            lambda: calls.append(0),
            (),
            {},
            lambda value: None,
            rounds=rounds,
            max_warmup=2,
            count_compiles=lambda: 0,
            iterations=1,
            watch=watch,
        )
    assert telemetry.num_closed == 1
    assert len(timing.samples_s) == rounds
    return timing, (len(calls) - 2) / rounds


class _Runtime:
    def __init__(self, telemetry):
        self.telemetry = lambda: telemetry


@pytest.mark.parametrize(("disturbed", "attempts"), [((), 1), ((0,), 2), ((0, 1), 3), ((1,), 1)])
def test_a_callable_is_timed_again_on_a_disturbed_device(disturbed, attempts):
    timing, found = timed(FakeTelemetry(disturbed))
    assert (found, timing.disturbed, timing.is_partly_disturbed) == (attempts, None, attempts > 1)
    assert timing.state is not None
    assert timing.state.energy_j == 100.0


def test_a_callable_keeps_its_last_samples_and_says_why_they_do_not_count():
    timing, found = timed(FakeTelemetry(range(9)))
    assert found == MAX_ATTEMPTS
    assert timing.disturbed == f"3 of 3 attempts disturbed: {SHARED}"
    assert not timing.is_partly_disturbed


def test_a_callable_on_a_lost_device():
    with pytest.raises(DeviceUnavailableError, match="fell off the bus"):
        timed(FakeTelemetry(lost_at=1))


class Falling:
    """A device that tells everything until its fourth reading, and nothing from then on."""

    def __init__(self):
        self.num_reads = 0

    def read(self):
        self.num_reads += 1
        return DeviceState.now(**({"throttle_reasons": ()} if self.num_reads < 4 else {}))

    def close(self):
        pass


def test_a_device_that_falls_silent_stays_under_suspicion():
    with Watch(_Runtime(Falling()), DisturbanceLimits()) as watch:
        said = []
        for _ in range(3):
            watch.begin()
            said.append(watch.end().disturbed)
    assert said == [
        None,
        "known before the round and unknown after it: throttle_reasons",
        "known earlier and unknown now: throttle_reasons",
    ]
