"""The online case: predictions are held against what was served, and its bench serves on the reference decoder."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from campaign.conftest import HARDWARE, MOVE_S, TBT_S, TTFT_S, cases, measured, with_size
from made_records import judged_record
from scipy import stats

from pytest_npubench.backends import backend
from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.served_block import ServedBlock
from pytest_npubench.campaign.served_load import block
from pytest_npubench.errors import HardwareFileError, MeasurementError
from pytest_npubench.extensions.planning.joining_pairs import PairVisit, pause_s
from pytest_npubench.extensions.planning.kinds.online import KIND, predicted
from pytest_npubench.extensions.planning.latency_errors import latency_errors
from pytest_npubench.extensions.planning.virtual.buckets import BucketCost
from pytest_npubench.predictors.lens import BucketProfile, BucketTiming
from pytest_npubench.serving.arrivals import load_of
from pytest_npubench.serving.metrics import RequestRecord
from pytest_npubench.suites import case_kind, suite
from pytest_npubench.suites.buckets.plan import ONLINE, chosen_plans
from pytest_npubench.suites.hardware_files import load_hardware
from pytest_npubench.suites.protocol import Choice
from pytest_npubench.verdict import VerdictKind
from pytest_npubench.verdict.case_record import Cases

PROFILE = BucketProfile(
    buckets={bucket: BucketTiming(ttft_s=TTFT_S[bucket], tbt_s=TBT_S[bucket]) for bucket in TTFT_S},
    batch_size=2,
    transitions_s=MOVE_S,
)


@pytest.fixture
def online(plan):
    return replace(with_size(plan, workloads=("short",)), is_online=True)


def served(plan, profile: BucketProfile, num_rounds: int = 3, *, paired=PROFILE, waking_s=(), told_s=None) -> Measured:
    """Rounds of an engine that has exactly these times, and of profile points that have those of the tests, and pairs
    that have those of `paired`. told_s: what the pairs say of waking, if not the same."""
    (case,) = cases(plan, ONLINE)
    *points, served_point, pair = KIND.points(case, plan)
    found = measured(points, plan, num_rounds=num_rounds)
    told_s = waking_s if told_s is None else told_s
    for index, row in enumerate(found.rounds):
        asked = block("short", plan.num_requests, 60.0, round_index=index, max_total_tokens=plan.buckets[-1])
        records = records_of(plan, profile, asked, waking_s)
        visit = ServedBlock(records=records, ended_s=records[-1].token_times_s[-1], rate_per_s=60.0, slo=None)
        asked = load_of((0.5, 0.5305), [(one.input_tokens, one.output_tokens) for one in pair.requests])
        both = [(one.arrival_s, *one.token_times_s) for one in records_of(plan, paired, asked, told_s)]
        for name, one in ((served_point.name, visit), (pair.name, PairVisit(first_s=both[0], second_s=both[1]))):
            row.update({f"{name}/{column}": tuple(values) for column, values in one.columns().items()})
    return found


def records_of(plan, profile: BucketProfile, requests, waking_s):
    asked = [
        RequestRecord(
            id=one.id,
            arrival_s=one.arrival_s,
            token_times_s=(),
            prompt_tokens=one.prompt_tokens,
            output_tokens=one.output_tokens,
        )
        for one in requests
    ]
    return predicted(plan, BucketCost({plan.batch_size: profile}, waking_s=waking_s), asked)


def test_an_engine_that_keeps_to_its_profile_passes(online):
    (case,) = cases(online, ONLINE)
    judgement = KIND.judge(case, online, served(online, PROFILE))
    assert judgement.verdict.kind is VerdictKind.PASSED
    detail = judgement.detail
    assert (detail.num_requests, detail.num_rounds, detail.cost.points) == (16, 3, 6)
    for figure in detail.figures.values():
        assert figure.mean_error == pytest.approx(0, abs=1e-4)  # a journal rounds to microseconds
        assert figure.p99_error == pytest.approx(0, abs=1e-4)


def test_an_engine_that_wakes_slowly_passes_by_its_pairs(online):
    (case,) = cases(online, ONLINE)
    judgement = KIND.judge(case, online, served(online, PROFILE, waking_s=(0.008, 0.003, 0.001)))
    assert judgement.verdict.kind is VerdictKind.PASSED
    assert judgement.detail.num_pairs == 3
    for figure in judgement.detail.figures.values():
        assert (figure.mean_error, figure.p99_error) == pytest.approx((0, 0), abs=1e-3)  # of microseconds
    untold = served(online, PROFILE, waking_s=(0.008, 0.003, 0.001), told_s=())
    assert "ttft mean error" in KIND.judge(case, online, untold).verdict.reason


@pytest.mark.parametrize(("slower", "metric"), [("tbt_s", "tpot mean error"), ("ttft_s", "ttft mean error")])
def test_a_slower_step_fails(online, slower, metric):
    (case,) = cases(online, ONLINE)
    times = {name: 1.2 * getattr(PROFILE.buckets[16], name) for name in (slower,)}
    slow = replace(PROFILE, buckets={**PROFILE.buckets, 16: replace(PROFILE.buckets[16], **times)})
    verdict = KIND.judge(case, online, served(online, slow)).verdict
    assert verdict.kind is VerdictKind.FAILED
    assert metric in verdict.reason


def test_the_median_round_tells_a_wrong_model_from_one_slow_round(online):
    """In which others took the machine while requests were served, and not while points were: it fails all the same."""
    (case,) = cases(online, ONLINE)
    slow = BucketProfile(
        buckets={bucket: BucketTiming(ttft_s=2 * TTFT_S[bucket], tbt_s=2 * TBT_S[bucket]) for bucket in TTFT_S},
        batch_size=2,
        transitions_s=MOVE_S,
    )
    found, slower = served(online, PROFILE), served(online, slow)
    found.rounds[1] |= {name: values for name, values in slower.rounds[1].items() if name.startswith("served/")}
    judgement = KIND.judge(case, online, found)
    assert judgement.verdict.failing
    e2e = judgement.detail.figures["e2e"]
    assert e2e.round_mean_error == pytest.approx(0, abs=1e-4)
    assert e2e.mean_error < -0.1


def test_the_limits_are_those_of_the_file(online):
    (case,) = cases(online, ONLINE)
    slow = replace(
        PROFILE, buckets={bucket: replace(one, tbt_s=1.03 * one.tbt_s) for bucket, one in PROFILE.buckets.items()}
    )
    found = served(online, slow)
    assert not KIND.judge(case, online, found).verdict.failing
    assert KIND.judge(case, replace(online, mean_error=0.005), found).verdict.failing


def test_a_point_that_failed_is_the_reason(online):
    (case,) = cases(online, ONLINE)
    for point in KIND.points(case, online):
        found = served(online, PROFILE)
        found.failures[point.name] = f"{point.name}: the reason"
        with pytest.raises(MeasurementError, match=f"^{point.name}: the reason$"):
            KIND.judge(case, online, found)


def test_requests_of_one_token_have_no_tpot():
    record = RequestRecord(arrival_s=0.0, token_times_s=(1.0,), output_tokens=1)
    with pytest.raises(MeasurementError, match="no request of 1 has a tpot"):
        latency_errors([([record], [[record]])])


def test_a_file_says_at_which_batch_sizes(tmp_path):
    path = tmp_path / "device.toml"
    path.write_text(
        HARDWARE.replace("[profile.nightly]", "[profile.nightly]\nonline_batch_sizes = [2]\nonline_buckets = [16, 32]")
    )
    spec = load_hardware(path)
    quick, nightly = (tuple(chosen_plans(spec, Choice(profile=name))) for name in ("quick", "nightly"))
    assert not any(plan.is_online for plan in quick)
    plain, online = nightly
    assert (online.key, online.buckets, online.batch_size) == ("device-tiny-llama-b2-online", (16, 32), 2)
    kinds = [name for name in suite("buckets").kinds if online.includes(name)]
    assert kinds == [ONLINE]
    assert not plain.includes(ONLINE)
    on_vllm = chosen_plans(spec, Choice(profile="nightly", engine="vllm"))
    assert not any(plan.is_online for plan in on_vllm)


def test_the_reference_decoder_serves(online, tmp_path):
    pytest.importorskip("jax")
    cpu = backend("cpu")
    bench = online.service.bench(cpu.open(cpu.probe(timeout_s=60).devices, None), online, tmp_path)
    (case,) = cases(online, ONLINE)
    points = case_kind(ONLINE).points(case, online)
    assert bench.load(points, (), lambda _: None) == {}
    *profiled, served_point, pair = points
    assert pair.visits(0.1) == 8
    assert bench.warm_up(served_point)[1]
    assert bench.warm_up(pair)[1]
    (times,) = PairVisit.of_columns(bench.sample(pair, 0).columns())
    assert [len(times.first_s), len(times.second_s)] == [1 + one.output_tokens for one in pair.requests]
    for point in profiled:
        assert bench.sample(point, 0).seconds > 0
    (again,) = ServedBlock.of_columns(bench.sample(served_point, 0).columns())
    assert len(again.records) == online.num_requests
    assert all(record.finished for record in again.records)
    assert again.rate_per_s > 0


def test_the_end_of_a_run_has_its_errors_and_what_the_profile_took(online):
    (case,) = cases(online, ONLINE)
    records = Cases.read([judged_record(case, KIND.judge(case, online, served(online, PROFILE)))])
    (line,) = (line for line in suite("buckets").lines(records) if line.startswith("LENS online"))
    assert re.search(r"short at 60 req/s on 2 slots: TTFT [+-]0\.00% \(p99 ", line)
    assert line.endswith("profile: 6 points, 6 binaries, 3.0 s compiling, 2.1 s measuring; 3 pairs in 1.6 s")


def test_pauses_before_pairs_are_those_of_poisson_arrivals():
    """Each of the eight lies in another eighth of the distribution, round after round."""
    rate_per_s = 4.0
    pauses_s = [pause_s(visit, rate_per_s) for visit in range(16)]
    assert pauses_s[:8] == pauses_s[8:]
    eighths = stats.expon.cdf(pauses_s[:8], scale=1 / rate_per_s) * 8
    assert sorted(eighths.astype(int)) == list(range(8))
    assert sum(pauses_s[:8]) / 8 == pytest.approx(1 / rate_per_s, rel=0.05)


def test_pairs_of_a_round_come_back():
    visits = [PairVisit(first_s=(0.1 * n, 1.0, 2.0), second_s=(0.5, 1.0 + n)) for n in (1, 2)]
    columns = {name: [value for one in visits for value in one.columns()[name]] for name in visits[0].columns()}
    assert list(PairVisit.of_columns(columns)) == visits
    with pytest.raises(MeasurementError, match="5 times of 2 visits; want as many of each"):
        PairVisit.of_columns({**columns, "first_s": columns["first_s"][:-1]})


def test_a_round_becomes_a_trace_of_points_and_of_what_was_served(online):
    lanes = [lane.title for lane in suite("buckets").lanes(served(online, PROFILE).rounds[0])]
    assert lanes[0] == "points"
    assert any("short" in title for title in lanes[1:])


@pytest.mark.parametrize("wrong", ["online_buckets = [48]", "online_batch_sizes = [4]", "online_batch_sizes = [0]"])
def test_a_file_names_what_it_has(tmp_path, wrong):
    path = tmp_path / "device.toml"
    path.write_text(HARDWARE.replace("[profile.nightly]", f"[profile.nightly]\n{wrong}"))
    with pytest.raises(HardwareFileError, match=f"profile.nightly.{wrong.split()[0]}"):
        load_hardware(path)


def test_a_slow_round_is_predicted_from_its_own_points(online):
    (case,) = cases(online, ONLINE)
    slow = BucketProfile(
        buckets={bucket: BucketTiming(ttft_s=2 * TTFT_S[bucket], tbt_s=2 * TBT_S[bucket]) for bucket in TTFT_S},
        batch_size=2,
        transitions_s={bucket: 2 * seconds for bucket, seconds in MOVE_S.items()},
    )
    found, slower = served(online, PROFILE), served(online, slow, paired=slow)
    points = {name for name in found.rounds[1] if not name.startswith(("served/", "pair/"))}
    found.rounds[1] = {
        name: tuple(2 * value for value in values) if name in points else values
        for name, values in slower.rounds[1].items()
    }
    for figure in KIND.judge(case, online, found).detail.figures.values():
        assert (figure.mean_error, figure.p99_error) == pytest.approx((0, 0), abs=1e-4)
