"""Search cases: an engine that keeps to its times is ranked rightly, a wrong choice fails, and both run for real."""

from __future__ import annotations

from dataclasses import replace

import pytest
from campaign.conftest import HARDWARE, cases, seconds, with_size
from made_records import judged_record

from pytest_npubench.backends import backend
from pytest_npubench.campaign.memory import memory_room
from pytest_npubench.campaign.points import Measured
from pytest_npubench.core.hardware_reader import default_directory
from pytest_npubench.errors import HardwareFileError, MeasurementError
from pytest_npubench.suites import case_kind, suite
from pytest_npubench.suites.buckets.memory import bucket_need, campaign_need
from pytest_npubench.suites.buckets.plan import SEARCHES, chosen_plans
from pytest_npubench.suites.buckets.points import Variant
from pytest_npubench.suites.hardware_files import load_all, load_hardware
from pytest_npubench.suites.protocol import Choice
from pytest_npubench.verdict import VerdictKind
from pytest_npubench.verdict.case_record import Cases

CHOICE = "bucket_choice"
every_search = pytest.mark.parametrize("name", [name for name in SEARCHES if name != CHOICE])


@pytest.fixture
def search(plan):
    return replace(with_size(plan, batch_sizes=(1, 2), workloads=("long",)), is_search=True)


def own_points(plan, name):
    (case,) = cases(plan, name)
    return case, case_kind(name).points(case, plan)


def measured(points, num_rounds=3):
    """Every point as long as its own engine's buckets make it: moves go straight to the next bucket of the set."""
    row = {point.name: (seconds(point, point.variant.buckets),) for point in points}
    return Measured(rounds=[dict(row) for _ in range(num_rounds)])


@every_search
def test_engines_that_keep_to_their_times_are_ranked_rightly(search, name):
    case, points = own_points(search, name)
    assert len({point.name for point in points}) == len(points)
    judgement = case_kind(name).judge(case, search, measured(points))
    assert judgement.verdict.kind is VerdictKind.PASSED
    detail = judgement.detail
    assert (detail.is_top1, detail.regret) == (True, 0)
    assert detail.kendall_tau == pytest.approx(1)
    assert detail.predicted_tokens_per_s == pytest.approx(detail.measured_tokens_per_s)
    first = [point for point in points if point.variant == points[0].variant and "/batch/" in point.name]
    tokens = sum(one.output_tokens for point in first for one in point.requests)
    took_s = sum(seconds(point, search.buckets) for point in first)
    assert tokens / took_s in [pytest.approx(value) for value in detail.measured_tokens_per_s]
    assert len(detail.choices) == {"batch_search": 2, "bucket_search": 4}[name]


@every_search
def test_a_choice_that_gives_up_throughput_fails(search, name):
    """What is predicted best takes three times as long as its profile says."""
    case, points = own_points(search, name)
    found = measured(points)
    right = case_kind(name).judge(case, search, found).detail
    variants = {
        "batch_search": lambda one: f"batch {one.batch_size}",
        "bucket_search": lambda one: ", ".join(map(str, one.buckets)),
    }
    slow = {point.name for point in points if "/batch/" in point.name and variants[name](point.variant) == right.chosen}
    assert slow
    rounds = [
        {key: tuple(3 * x for x in value) if key in slow else value for key, value in row.items()}
        for row in found.rounds
    ]
    judgement = case_kind(name).judge(case, search, replace(found, rounds=rounds))
    assert judgement.verdict.kind is VerdictKind.FAILED
    assert "regret" in judgement.verdict.reason
    assert not judgement.detail.is_top1


def chosen(plan, bucket=16, *, profile=1.0, batch=1.0):
    """The case of a bucket whose profile, and whose batch where it fits, take so many times what they would."""
    case = next(one for one in cases(plan, CHOICE) if one.axis("bucket") == bucket)
    points = case_kind(CHOICE).points(case, plan)
    factors = {
        point.name: profile if f"/profile/{bucket}/" in point.name else batch if point.name == fits else 1.0
        for fits in [f"b{plan.batch_size}-{bucket}-{plan.buckets[-1]}/choice/{bucket}"]
        for point in points
    }
    assert batch in factors.values()
    row = {point.name: (factors[point.name] * seconds(point, point.variant.buckets),) for point in points}
    return case_kind(CHOICE).judge(case, plan, Measured(rounds=[dict(row)] * 3))


def gain(judgement):
    return next(one.value for one in judgement.metrics if one.name == "gain")


def test_where_latency_grows_with_the_bucket_the_smallest_is_right(search):
    assert [one.axis("bucket") for one in cases(search, CHOICE)] == [16, 32]
    judgement = chosen(search)
    assert judgement.verdict.kind is VerdictKind.PASSED
    assert judgement.detail.choices == ("16", "32", "64")
    assert (judgement.detail.chosen, judgement.detail.is_top1, gain(judgement)) == ("16", True, 0)
    assert judgement.detail.predicted_tokens_per_s == pytest.approx(judgement.detail.measured_tokens_per_s)


def test_a_larger_bucket_that_is_faster_is_chosen_and_what_it_saves_is_measured(search):
    """Bucket 16 takes five times as long; prompts and steps are the same in every bucket but for its times."""
    plain, slow = chosen(search), chosen(search, profile=5.0, batch=5.0)
    took = dict(zip(plain.detail.choices, (1 / one for one in plain.detail.measured_tokens_per_s), strict=True))
    assert took["16"] < took["32"] < 5 * took["16"]
    assert slow.verdict.kind is VerdictKind.PASSED
    assert (slow.detail.chosen, slow.detail.is_top1) == ("32", True)
    assert gain(slow) == pytest.approx(1 - took["32"] / (5 * took["16"]))


def test_a_choice_that_is_slower_than_the_smallest_fit_fails(search):
    """Its profile says that bucket 16 is slow, and it is not."""
    judgement = chosen(search, profile=5.0)
    assert (judgement.detail.chosen, judgement.detail.best) == ("32", "16")
    assert judgement.verdict.kind is VerdictKind.FAILED
    assert gain(judgement) < 0


@every_search
def test_a_point_that_failed_is_the_reason(search, name):
    case, points = own_points(search, name)
    for point in points:
        found = measured(points)
        found.failures[point.name] = f"{point.name}: the reason"
        with pytest.raises(MeasurementError, match=f"^{point.name}: the reason$"):
            case_kind(name).judge(case, search, found)


def test_all_engines_run_the_same_requests(search):
    asked = [
        [item for batch in search.searched_batches("long", variant) for item in batch.requests]
        for variant in search.variants
    ]
    assert all(requests == asked[0] for requests in asked)
    assert (
        len(search.variants) == len(set(search.variants)) == 5
    )  # (16, 32, 64) at 1 and 2; (64), (16, 64), (32, 64) at 2


def test_a_file_says_what_is_compared(tmp_path):
    path = tmp_path / "device.toml"
    text = HARDWARE.replace(
        "[profile.nightly]", "[profile.nightly]\nsearch_batch_sizes = [2]\nsearch_buckets = [16, 64]"
    )
    path.write_text(text)
    spec = load_hardware(path)
    quick, nightly = (tuple(chosen_plans(spec, Choice(profile=name))) for name in ("quick", "nightly"))
    assert not any(plan.is_search for plan in quick)
    plain, search = nightly
    assert (search.key, search.buckets) == ("device-tiny-llama-b2-search", (16, 64))
    assert [name for name in suite("buckets").kinds if search.includes(name)] == list(SEARCHES)
    assert not any(plain.includes(name) for name in SEARCHES)
    assert not any(plan.is_search for plan in chosen_plans(spec, Choice(profile="nightly", engine="vllm")))
    path.write_text(text.replace("search_buckets = [16, 64]", "search_buckets = [48]"))
    with pytest.raises(HardwareFileError, match=r"profile\.nightly.search_buckets"):
        load_hardware(path)


def test_engines_beside_each_other_need_memory_each_and_the_weights_once_where_they_share_them(search):
    alone = [bucket_need(search.of(variant), variant.buckets) for variant in search.variants]
    whole = bucket_need(search, search.buckets)
    assert whole.total_bytes == pytest.approx(
        sum(need.total_bytes for need in alone) - (len(alone) - 1) * alone[0].weight_bytes
    )
    separate = replace(search, engine="nxd")
    assert campaign_need(separate).weight_bytes == len(alone) * alone[0].weight_bytes
    assert campaign_need(replace(separate, is_search=False)) is None


SHIPPED = load_all([default_directory()])
SEARCHED = [
    name for name, spec in SHIPPED.items() if spec.models and spec.family in ("tpu", "cuda", "neuron", "openvino")
]


@pytest.mark.parametrize("name", SEARCHED)
def test_shipped_devices_search_each_night_what_their_memory_holds(name):
    spec = SHIPPED[name]
    choice = Choice(profile="nightly", engine="nxd" if spec.family == "neuron" else "reference")
    searches = [plan for plan in chosen_plans(spec, choice) if plan.is_search]
    assert {plan.model for plan in searches} == {
        model for model in spec.models if spec.family != "neuron" or model == "llama-3.2-1b"
    }
    for plan in searches:
        assert bool(cases(plan, "batch_search")) == (len(plan.size.batch_sizes) > 1)
        assert cases(plan, "bucket_search")
        room = memory_room(plan)
        assert room is None or campaign_need(plan).total_bytes <= room.usable_bytes
    assert room is not None or spec.family == "openvino"


@every_search
def test_the_reference_decoder_is_measured(search, tmp_path, name):
    pytest.importorskip("jax")
    cpu = backend("cpu")
    bench = search.service.bench(cpu.open(cpu.probe(timeout_s=60).devices, None), search, tmp_path)
    _, points = own_points(search, name)
    assert bench.load(points, (), lambda _: None) == {}
    rows = [{point.name: (bench.sample(point, index).seconds,) for point in points} for index in range(2)]
    bench.close()
    assert all(value > 0 for row in rows for (value,) in row.values())
    weights = [each._engine.weights for each in bench._benches.values()]
    assert len(weights) > 1
    assert all(tree is weights[0] for tree in weights)
    assert {point.variant for point in points} <= set(search.variants)
    assert Variant(batch_size=2, buckets=search.buckets) in {point.variant for point in points}


@every_search
def test_the_end_of_a_run_says_what_was_chosen(search, name):
    case, points = own_points(search, name)
    judgement = case_kind(name).judge(case, search, measured(points))
    records = Cases.read([judged_record(case, judgement)])
    (line,) = (line for line in suite("buckets").lines(records) if line.startswith("LENS chooses"))
    assert "for long, the measured best (regret 0.0%, Kendall's tau 1.00)" in line
    _, tables, remarks = suite("buckets").parts(records, [])
    ranked, outcome = tables
    assert ranked.header == ("choices", "predicted, tokens/s", "measured, tokens/s")
    assert [row[1] for row in ranked.rows] == [row[2] for row in ranked.rows]
    chosen = judgement.detail.chosen
    assert chosen in [row[0] for row in ranked.rows]
    assert [dict(outcome.rows)[name] for name in ("chosen", "best", "is top1")] == [chosen, chosen, "yes"]
    assert remarks == (f"{line}.",)
