import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_npubench.core.measurement import CacheState, CompileRecord, Move, Phase, Run, Segment
from pytest_npubench.errors import ConfigError, ImpureProfileError, MeasurementError
from pytest_npubench.predictors.lens import LensPredictor
from pytest_npubench.predictors.two_point import ProfilePoint, check_pure, count_cost, fit, plan_points

PAPER = (128, 256, 512, 1024, 2048, 4096, 8192)
BUCKETS = (5, 12, 32)
seconds = st.floats(1e-3, 10.0)
columns = st.tuples(seconds, seconds, seconds).map(lambda values: dict(zip(BUCKETS, values, strict=True)))
requests = st.integers(1, 31).flatmap(lambda l_in: st.tuples(st.just(l_in), st.integers(1, 32 - l_in)))


def test_the_first_output_length_may_be_another() -> None:
    points = plan_points((128, 256), output_tokens=65, first_output_tokens=9)
    assert [(one.bucket, one.input_tokens, one.output_tokens) for one in points] == [
        (128, 63, 9),
        (128, 63, 65),
        (256, 191, 9),
        (256, 191, 65),
    ]
    with pytest.raises(ConfigError, match="output_tokens is 9; want at least 10, as the first point of a bucket has 9"):
        plan_points((128,), output_tokens=9, first_output_tokens=9)
    with pytest.raises(ConfigError, match=r"bucket 16: no two points fit .* want buckets at least 22 apart"):
        plan_points((16,), first_output_tokens=20)


def shape(points):
    return [(point.bucket, point.input_tokens, point.output_tokens) for point in points]


def profile_engine(engine, points, **settings):
    samples = {}
    for point in points:
        run = engine.measure(point)
        check_pure(point.bucket, run, point.phases)
        samples[point] = [run.e2e_s]
    return fit(samples, engine.batch_size, engine.prefill_shared, **settings)


def test_the_papers_buckets_cost_14_points():
    points = plan_points(PAPER)
    assert len(points) == 14
    assert shape(points)[:4] == [(128, 95, 1), (128, 95, 33), (256, 223, 1), (256, 223, 33)]


def test_a_narrow_bucket_shrinks_the_second_output_length():
    assert shape(plan_points((5, 8, 40))) == [(5, 1, 1), (5, 1, 4), (8, 6, 1), (8, 6, 2), (40, 9, 1), (40, 9, 31)]


def test_a_bucket_too_narrow_is_named():
    with pytest.raises(ConfigError, match="bucket 130: no two points fit between it and the bucket below, 128"):
        plan_points((128, 130, 512))


def test_points_that_cannot_be_planned():
    with pytest.raises(ConfigError, match="output_tokens is 1"):
        plan_points(PAPER, output_tokens=1)
    with pytest.raises(ConfigError, match=r"bucket 64: no two points fit .* prompts of at most 16 tokens"):
        plan_points((8, 16), decode_buckets=(16, 32, 64))


@given(
    buckets=st.lists(st.integers(3, 40), min_size=1, max_size=5).map(lambda gaps: tuple(np.cumsum(gaps).tolist())),
    output_tokens=st.integers(2, 64),
)
@settings(max_examples=100, deadline=None)
def test_every_planned_point_is_pure_in_either_step_count(fake_table_engine, buckets, output_tokens):
    table = dict.fromkeys(buckets, 1.0)
    points = plan_points(buckets, output_tokens)
    assert len(points) == 2 * len(buckets)
    for extra_step in (0, 1):
        for point in points:
            check_pure(point.bucket, fake_table_engine(table, table, extra_step=extra_step).measure(point))


@given(ttft_s=columns, tbt_s=columns, size=st.integers(1, 4), shared=st.booleans(), request=requests)
@pytest.mark.parametrize("literal", [False, True])
@settings(max_examples=60, deadline=None)
def test_profile_fit_predict_is_exact_on_a_table(fake_table_engine, literal, ttft_s, tbt_s, size, shared, request):
    engine = fake_table_engine(ttft_s, tbt_s, batch_size=size, prefill_shared=shared, extra_step=int(literal))
    profile = profile_engine(engine, plan_points(BUCKETS), literal=literal)
    for bucket in BUCKETS:
        assert profile.buckets[bucket].ttft_s == pytest.approx(ttft_s[bucket], rel=1e-6)
        assert profile.buckets[bucket].tbt_s == pytest.approx(tbt_s[bucket], rel=1e-6)
    batch = [request] * size
    ours = LensPredictor(profile, literal=literal).predict_batch(batch)
    assert ours.e2e_s == pytest.approx(sum(engine.run(batch)), rel=1e-6)


def test_literal_points_on_an_engine_whose_decode_follows_the_padded_prompt():
    ttft_s, tbt_s = {8: 1.0, 16: 2.0}, {8: 0.1, 16: 0.3}
    points = [point(bucket, bucket, length) for bucket in ttft_s for length in (1, 2)]
    samples = {p: [ttft_s[p.bucket] + p.output_tokens * tbt_s[p.bucket]] for p in points}
    profile = fit(samples, literal=True)
    assert [timing.ttft_s for timing in profile.buckets.values()] == pytest.approx([1.0, 2.0])
    assert [timing.tbt_s for timing in profile.buckets.values()] == pytest.approx([0.1, 0.3])


@given(ttft_s=columns, tbt_s=columns, request=requests)
@settings(max_examples=100, deadline=None)
def test_the_choice_of_steps_matters_by_at_most_one_jump(fake_table_engine, ttft_s, tbt_s, request):
    """Fitted and predicted with l_out steps, the engine does l_out - 1: off by one jump of TBT."""
    engine = fake_table_engine({bucket: value + 10.0 for bucket, value in ttft_s.items()}, tbt_s)
    profile = profile_engine(engine, plan_points(BUCKETS), literal=True)
    residual = LensPredictor(profile, literal=True).predict(*request).e2e_s - sum(engine.run([request]))
    first, last = (engine.bucket(tbt_s, length) for length in (request[0], sum(request)))
    assert residual == pytest.approx(tbt_s[last] - tbt_s[first], abs=1e-7)


def test_worked_number():
    points = plan_points((128,))
    profile = fit({points[0]: [0.040], points[1]: [0.104]}, batch_size=4)
    assert profile.buckets[128].ttft_s == pytest.approx(0.010)
    assert profile.buckets[128].tbt_s == pytest.approx(0.002)
    assert profile.buckets[128].tbt_error_s is None
    assert fit({points[0]: [0.040], points[1]: [0.104]}, 4, prefill_shared=True).buckets[128].ttft_s == 0.040


def test_separate_sets_profile_each_phase(fake_table_engine):
    ttft_s, tbt_s = {8: 1.0, 16: 2.0}, {12: 0.1, 16: 0.2, 32: 0.3}
    points = plan_points(tuple(ttft_s), decode_buckets=tuple(tbt_s))
    assert shape(points) == [(8, 8, 1), (12, 1, 1), (12, 1, 11), (16, 13, 1), (16, 13, 3), (32, 16, 1), (32, 16, 15)]
    profile = profile_engine(fake_table_engine(ttft_s, tbt_s, batch_size=2), points)
    assert {b: t.ttft_s for b, t in profile.buckets.items() if t.ttft_s is not None} == pytest.approx(ttft_s)
    assert {b: t.tbt_s for b, t in profile.buckets.items() if t.tbt_s is not None} == pytest.approx(tbt_s)


def test_a_time_is_the_mean_of_its_samples():
    points = plan_points((128,))
    samples = {points[0]: [1.0, 2.0, 6.0], points[1]: [11.0, 12.0, 16.0]}
    assert fit(samples).buckets[128].ttft_s == pytest.approx(3.0)


def test_standard_errors_are_those_of_the_formula():
    points = plan_points((128,))
    first, second = [0.040, 0.042, 0.041, 0.045], [0.104, 0.101, 0.108, 0.105]
    timing = fit({points[0]: first, points[1]: second}, batch_size=4).buckets[128]
    s1, s2 = np.std(first, ddof=1), np.std(second, ddof=1)
    assert timing.tbt_error_s == pytest.approx(math.sqrt((s1**2 + s2**2) / 4) / 32)
    assert timing.ttft_error_s == pytest.approx(s1 / math.sqrt(4) / 4)


@pytest.mark.parametrize("literal", [False, True])
def test_error_weights_are_the_derivatives(literal):
    points = plan_points((16,))
    samples = dict(zip(points, ([5.0, 6.0], [9.0, 9.5]), strict=True))
    timing = fit(samples, batch_size=3, literal=literal).buckets[16]
    for moved, error in zip(points, timing.errors, strict=True):
        ahead = fit(samples | {moved: [value + 0.125 for value in samples[moved]]}, 3, literal=literal).buckets[16]
        assert (ahead.ttft_s - timing.ttft_s) / 0.125 == pytest.approx(error.ttft_weight)
        assert (ahead.tbt_s - timing.tbt_s) / 0.125 == pytest.approx(error.tbt_weight)


@pytest.mark.parametrize("literal", [False, True])
def test_standard_errors_are_those_of_a_simulation(literal):
    rng = np.random.default_rng(2)
    points = plan_points((128,), output_tokens=5)
    draws = [
        fit(dict(zip(points, rng.normal([[10.0], [14.0]], [[0.2], [0.3]], (2, 6)), strict=True)), 2, literal=literal)
        for _ in range(2000)
    ]
    timings = [draw.buckets[128] for draw in draws]
    for value, error in (("ttft_s", "ttft_error_s"), ("tbt_s", "tbt_error_s")):
        seen = np.std([getattr(timing, value) for timing in timings])
        stated = math.sqrt(np.mean([getattr(timing, error) ** 2 for timing in timings]))
        assert stated == pytest.approx(seen, rel=0.06)


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ([0.2], [0.1], r"bucket 128: TBT is -0.003125 s, from E2E 0.2 s with 0 .* 0.1 s with 32;.*measure more rounds"),
        ([0.2], [0.2], "bucket 128: TBT is 0 s"),
        ([0.0], [0.2], "bucket 128: TTFT is 0 s"),
        ([math.nan], [0.2], "bucket 128, prompt of 95, output of 1 tokens: sample 0 of 1 is nan"),
        ([0.1], [], "output of 33 tokens: no samples"),
        ([0.1], [0.2, math.inf], "sample 1 of 2 is inf"),
    ],
)
def test_samples_that_give_no_timing(first, second, message):
    points = plan_points((128,))
    with pytest.raises(MeasurementError, match=message):
        fit({points[0]: first, points[1]: second})


def test_a_literal_ttft_below_zero():
    points = point(128, 128, 1), point(128, 128, 2)
    with pytest.raises(
        MeasurementError, match="bucket 128: TTFT is -8 s, from E2E 1 s with 1 decode steps and 10 s with 2"
    ):
        fit({points[0]: [1.0], points[1]: [10.0]}, literal=True)


def point(bucket, input_tokens, output_tokens, phases=(Phase.PREFILL, Phase.DECODE)):
    return ProfilePoint(bucket=bucket, input_tokens=input_tokens, output_tokens=output_tokens, phases=phases)


@pytest.mark.parametrize(
    ("points", "message"),
    [
        ([], r"buckets: \(\)"),
        ([point(8, 4, 1)], r"bucket 8: points with outputs of \[1\] tokens"),
        ([point(8, 4, 1), point(8, 4, 2), point(8, 4, 3)], r"outputs of \[1, 2, 3\]"),
        ([point(8, 4, 2), point(8, 5, 2)], r"outputs of \[2, 2\]"),
        ([point(8, 4, 1), point(8, 5, 2)], "different prompts"),
        ([point(8, 4, 2, (Phase.PREFILL,))], "bucket 8: a bucket of prefill alone wants one point"),
    ],
)
def test_points_that_make_no_profile(points, message):
    with pytest.raises(ConfigError, match=message):
        fit({point: [float(point.output_tokens)] for point in points})


def test_a_batch_of_none():
    with pytest.raises(ConfigError, match="batch_size is 0"):
        fit({point(8, 4, 1): [1.0], point(8, 4, 2): [2.0]}, batch_size=0)


def segment(phase, bucket):
    return Segment(phase=phase, bucket=bucket, num_steps=3, duration_s=0.1)


def test_purity():
    pure = (segment(Phase.PREFILL, 128), segment(Phase.DECODE, 128))
    check_pure(128, Run(e2e_s=1.0, segments=pure, moves=()))
    mixed = Run(e2e_s=1.0, segments=(*pure, segment(Phase.DECODE, 256)), moves=())
    with pytest.raises(ImpureProfileError, match="point of bucket 128: 3 of decode ran in bucket 256"):
        check_pure(128, mixed)
    check_pure(128, mixed, phases=(Phase.PREFILL,))
    move = Move(from_bucket=128, to_bucket=256, duration_s=0.1)
    with pytest.raises(ImpureProfileError, match="the cache moved from 128 to 256"):
        check_pure(128, Run(e2e_s=1.0, segments=pure, moves=(move,)))


def test_cost():
    compiles = [CompileRecord(name=name, compile_s=2.0, cache=CacheState.COLD) for name in ("prefill", "decode")]
    samples = {point(8, 4, 1): [1.0, 1.0], point(8, 4, 2): [2.0, 2.0, 2.0]}
    cost = count_cost(compiles, samples, sessions=1)
    assert (cost.sessions, cost.binaries, cost.points, cost.repeats) == (1, 2, 2, 3)
    assert (cost.compile_s, cost.measure_s, cost.total_s) == (4.0, 8.0, 12.0)
