import tracemalloc
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pytest_npubench.errors import ConfigError, LengthError
from pytest_npubench.predictors import request_times
from pytest_npubench.predictors.lens import BucketProfile, BucketTiming, LensPredictor

BUCKETS = (4, 7, 16, 32)
MAXIMUM = BUCKETS[-1]
seconds = st.floats(1e-4, 10.0)
tables = st.tuples(*[st.tuples(seconds, seconds) for _ in BUCKETS]).map(
    lambda rows: dict(zip(BUCKETS, rows, strict=True))
)
requests = st.integers(1, MAXIMUM).flatmap(lambda l_in: st.tuples(st.just(l_in), st.integers(1, MAXIMUM - l_in + 1)))
literal_requests = st.integers(1, MAXIMUM - 1).flatmap(
    lambda l_in: st.tuples(st.just(l_in), st.integers(1, MAXIMUM - l_in))
)
TABLE = {4: (1.0, 0.1), 7: (3.0, 0.5), 16: (2.0, 0.4), 32: (9.0, 0.7)}  # not monotone: real engines are not either


def profile_of(table, **settings):
    timings = {bucket: BucketTiming(ttft_s=ttft, tbt_s=tbt) for bucket, (ttft, tbt) in table.items()}
    return BucketProfile(buckets=timings, **settings)


def engine_of(fake_table_engine, table, **settings):
    ttft_s, tbt_s = ({bucket: row[column] for bucket, row in table.items()} for column in (0, 1))
    return fake_table_engine(ttft_s, tbt_s, **settings)


def parts(prediction):
    return prediction.prefill_s, prediction.decode_s


def test_worked_number():
    profile = profile_of({128: (0.010, 0.002), 256: (0.018, 0.003)})
    ours = LensPredictor(profile).predict(100, 60)
    assert (ours.prefill_s, ours.decode_s, ours.e2e_s) == pytest.approx((0.010, 0.149, 0.159))
    assert LensPredictor(profile, literal=True).predict(100, 60).e2e_s == pytest.approx(0.162)
    assert type(ours.e2e_s) is float


@given(table=tables, request=requests)
@settings(max_examples=150, deadline=None)
def test_one_request_is_the_walk(fake_table_engine, table, request):
    ours = LensPredictor(profile_of(table)).predict(*request)
    assert parts(ours) == pytest.approx(engine_of(fake_table_engine, table).run([request]), rel=1e-12)


@given(table=tables, request=literal_requests)
@settings(max_examples=150, deadline=None)
def test_literal_counts_one_step_more(fake_table_engine, table, request):
    ours = LensPredictor(profile_of(table), literal=True).predict(*request)
    assert parts(ours) == pytest.approx(engine_of(fake_table_engine, table, extra_step=1).run([request]), rel=1e-12)


def test_every_request_at_once_equals_one_by_one(fake_table_engine):
    pairs = np.array([(l_in, out) for l_in in range(1, MAXIMUM + 1) for out in range(1, MAXIMUM - l_in + 2)]).reshape(
        2, -1, 2
    )
    ours = LensPredictor(profile_of(TABLE)).predict(pairs[..., 0], pairs[..., 1])
    walked = [engine_of(fake_table_engine, TABLE).run([tuple(pair)]) for pair in pairs.reshape(-1, 2).tolist()]
    assert ours.prefill_s.shape == ours.decode_s.shape == pairs.shape[:-1]
    assert np.stack(parts(ours), axis=-1).reshape(-1, 2) == pytest.approx(np.array(walked), rel=1e-12)


@given(
    short_s=st.floats(1e-9, 1e-3), long_s=st.floats(1e-3, 1e3), l_in=st.integers(1, 130_000), out=st.integers(1, 1_000)
)
@example(short_s=1e-9, long_s=1e3, l_in=130_000, out=2)
@settings(max_examples=60, deadline=None)
def test_a_short_decode_keeps_its_digits_behind_a_long_prompt(short_s, long_s, l_in, out):
    """The seconds of all steps before it are up to 1e17 times as many as its own."""
    predictor = LensPredictor(profile_of({128: (1.0, short_s), 100_000: (1.0, long_s), 131_072: (1.0, short_s)}))
    within = Fraction(short_s), Fraction(long_s), Fraction(short_s)
    steps = [
        max(0, min(edge, l_in + out - 1) - max(low, l_in))
        for low, edge in ((0, 128), (128, 100_000), (100_000, 131_072))
    ]
    want = sum(count * step_s for count, step_s in zip(steps, within, strict=True))
    assert predictor.predict(l_in, out).decode_s == pytest.approx(float(want), rel=1e-14)


def test_chunks_join_without_a_seam(monkeypatch):
    rng = np.random.default_rng(0)
    inputs, outputs = rng.integers(1, 17, 100), rng.integers(1, 17, 100)
    whole = LensPredictor(profile_of(TABLE)).predict(inputs, outputs).e2e_s
    monkeypatch.setattr(request_times, "CHUNK_REQUESTS", 7)
    assert LensPredictor(profile_of(TABLE)).predict(inputs, outputs).e2e_s.tolist() == whole.tolist()


def test_a_prompt_at_the_bucket_and_one_above_straddle_the_jump():
    predictor = LensPredictor(profile_of(TABLE))
    at, above = predictor.predict(7, 1), predictor.predict(8, 1)
    assert (at.prefill_s, above.prefill_s) == (3.0, 2.0)
    assert at.decode_s == above.decode_s == 0.0  # the first token is prefill's
    assert predictor.predict(7, 2).decode_s == pytest.approx(0.4, rel=1e-12)  # c_0 = 8 is in the next bucket already


@given(
    table=tables,
    batch=st.lists(requests, min_size=1, max_size=5),
    spare=st.integers(0, 2),
    shared=st.booleans(),
    moves_s=st.sampled_from([None, {7: 0.25, 16: 0.5, 32: 1.0}]),
)
@pytest.mark.parametrize("finished", ["grow", "freeze", "drop"])
@settings(max_examples=150, deadline=None)
def test_padded_batch_is_the_walk(fake_table_engine, finished, table, batch, spare, shared, moves_s):
    """And a move of the cache is charged once a boundary."""
    size = len(batch) + spare
    predictor = LensPredictor(profile_of(table, batch_size=size, prefill_shared=shared, transitions_s=moves_s))
    longest, steps = max(prompt for prompt, _ in batch), max(output for _, output in batch) - 1
    if finished == "grow" and longest + steps > MAXIMUM:
        with pytest.raises(LengthError, match=f"grows to KV length {longest + steps} .* every request alone fits"):
            predictor.predict_batch(batch, finished=finished)
        return
    engine = engine_of(fake_table_engine, table, batch_size=size, prefill_shared=shared, moves_s=moves_s)
    ours = predictor.predict_batch(batch, finished=finished)
    assert parts(ours) == pytest.approx(engine.run(batch, finished=finished), rel=1e-12)
    assert parts(predictor.predict(*batch[0])) == pytest.approx(engine.run(batch[:1]), rel=1e-12)


@given(table=tables, batch=st.lists(literal_requests, min_size=1, max_size=4))
@settings(max_examples=60, deadline=None)
def test_literal_padded_batch_is_the_walk(fake_table_engine, table, batch):
    predictor = LensPredictor(profile_of(table, batch_size=4), literal=True)
    engine = engine_of(fake_table_engine, table, batch_size=4, extra_step=1)
    ours = predictor.predict_batch(batch, finished="freeze")
    assert parts(ours) == pytest.approx(engine.run(batch, finished="freeze"), rel=1e-12)


@given(table=tables, batch=st.lists(requests, min_size=1, max_size=5), spare=st.integers(0, 2))
@settings(max_examples=100, deadline=None)
def test_ragged_batch_is_the_walk(fake_table_engine, table, batch, spare):
    size = len(batch) + spare
    ours = LensPredictor(profile_of(table, batch_size=size)).predict_batch(batch, attention="ragged")
    engine = engine_of(fake_table_engine, table, batch_size=size)
    assert parts(ours) == pytest.approx(engine.run(batch, attention="ragged"), rel=1e-12)


def test_moves_worked_number():
    table = {128: (0.0, 0.0), 256: (0.0, 0.0), 512: (0.0, 0.0)}
    profile = profile_of(table, batch_size=2, transitions_s={256: 0.001, 512: 0.002})
    batch = [(100, 101), (200, 101)]
    assert parts(LensPredictor(profile).predict_batch(batch)) == pytest.approx((0.001, 0.002))
    assert parts(LensPredictor(profile).predict_batch(batch, attention="ragged")) == (0.0, 0.0)
    assert parts(LensPredictor(profile, literal=True).predict_batch(batch)) == (0.0, 0.0)
    shared = profile_of(table, batch_size=2, prefill_shared=True, transitions_s={256: 0.001, 512: 0.002})
    assert parts(LensPredictor(shared).predict_batch(batch)) == pytest.approx((0.0, 0.002))


def test_a_phase_with_buckets_of_its_own(fake_table_engine):
    """Neuron: context encoding in {8, 16}, token generation in {12, 32}."""
    ttft_s, tbt_s = {8: 1.0, 16: 2.0}, {12: 0.1, 32: 0.3}
    timings = {b: BucketTiming(ttft_s=ttft_s.get(b), tbt_s=tbt_s.get(b)) for b in (*ttft_s, *tbt_s)}
    predictor = LensPredictor(BucketProfile(buckets=timings))
    engine = fake_table_engine(ttft_s, tbt_s)
    for prompt in range(1, 17):
        for output in range(1, 34 - prompt):
            assert parts(predictor.predict(prompt, output)) == pytest.approx(engine.run([(prompt, output)]), rel=1e-12)
    with pytest.raises(LengthError, match=r"input_tokens: 17 is longer than the largest bucket, 16 of \(8, 16\)"):
        predictor.predict(17, 1)


def test_a_prompt_that_decodes_nothing_needs_no_decode_bucket():
    timings = {8: BucketTiming(tbt_s=0.1), 16: BucketTiming(ttft_s=2.0)}
    assert parts(LensPredictor(BucketProfile(buckets=timings)).predict(16, 1)) == (2.0, 0.0)
    with pytest.raises(LengthError, match="input_tokens: 16 is longer than the largest bucket, 8"):
        LensPredictor(BucketProfile(buckets=timings)).predict(16, 2)


class RequestCountKeys:
    """vLLM on TPU: prompts pad to a bucket of tokens, a decode step to the batch size, whatever the KV length."""

    max_input_tokens = 64
    max_kv_tokens = 64

    def prefill_key(self, input_tokens):
        return np.where(np.asarray(input_tokens) <= 16, 16, 64)

    def decode_key(self, kv_tokens, batch_size):
        return np.full_like(kv_tokens, 4 if batch_size <= 4 else 8)


def test_keys_of_another_engine():
    timings = {4: BucketTiming(tbt_s=0.1), 16: BucketTiming(ttft_s=1.0), 64: BucketTiming(ttft_s=3.0)}
    predictor = LensPredictor(BucketProfile(buckets=timings, batch_size=3), keys=RequestCountKeys())
    ours = predictor.predict(np.array([16, 17]), np.array([11, 48]))
    assert ours.prefill_s.tolist() == [1.0, 3.0]
    assert ours.decode_s.tolist() == pytest.approx([1.0, 4.7])
    with pytest.raises(ConfigError, match="lengths up to 64 run in bucket 8, for which the profile has no tbt_s"):
        LensPredictor(BucketProfile(buckets=timings, batch_size=5), keys=RequestCountKeys())


@pytest.mark.parametrize(
    ("inputs", "outputs", "message"),
    [
        (33, 1, r"input_tokens: 33 is longer than the largest bucket, 32 of \(4, 7, 16, 32\)"),
        (30, 4, r"last decode step: 33 is longer than the largest bucket, 32"),
        (1, 2**63 - 1, "longer than the largest bucket, 32"),
        (np.array([1, 2, 40, 50]), np.ones(4, int), "40 at index 2"),
        (np.array([[1], [31]]), np.array([[1], [3]]), r"33 at index \(1, 0\)"),
        (1, 0, "output_tokens: 0; want at least 1"),
        (-1, 1, "input_tokens: -1; want at least 1"),
        (1.5, 1, "input_tokens: 1.5 is not whole"),
        (1, float("nan"), "output_tokens: nan is not whole"),
        (np.array([1.0, np.nan]), np.array([1, 1]), "input_tokens: nan at index 1"),
        (np.array([1, 2]), np.array([1, 2, 3]), r"input_tokens has shape \(2,\), output_tokens \(3,\)"),
        (1, np.array([1]), r"input_tokens has shape \(\), output_tokens \(1,\)"),
    ],
)
def test_requests_that_cannot_be(inputs, outputs, message):
    for ask in (LensPredictor(profile_of(TABLE)).predict, LensPredictor(profile_of(TABLE)).band):
        with pytest.raises(LengthError, match=message):
            ask(inputs, outputs)


def test_the_last_token_that_fits():
    assert LensPredictor(profile_of(TABLE)).predict(30, 3).decode_s == pytest.approx(1.4)
    with pytest.raises(LengthError, match="33 is longer"):
        LensPredictor(profile_of(TABLE), literal=True).predict(30, 3)


def test_no_requests_at_all():
    assert LensPredictor(profile_of(TABLE)).predict(np.array([], int), np.array([], int)).e2e_s.shape == (0,)


@pytest.mark.parametrize(
    ("batch", "words", "error", "message"),
    [
        ([], {}, ConfigError, "the batch has 0 requests; the profile is compiled for 1 to 2"),
        ([(1, 1)] * 3, {}, ConfigError, "the batch has 3 requests; the profile is compiled for 1 to 2"),
        ([(1, 1), (1, 1, 1)], {}, LengthError, r"request 1 is \(1, 1, 1\)"),
        ([(1, 1), (1, 0)], {}, LengthError, "output_tokens: 0 at index 1"),
        ([(1, 1), (32, 2)], {"attention": "ragged"}, LengthError, "33 at index 1"),
        ([(1, 1)], {"attention": "paged"}, ConfigError, "attention is 'paged'; want one of padded, ragged"),
        ([(1, 1)], {"finished": "stop"}, ConfigError, "finished is 'stop'; want one of grow, freeze, drop"),
    ],
)
def test_batches_that_cannot_be(batch, words, error, message):
    with pytest.raises(error, match=message):
        LensPredictor(profile_of(TABLE, batch_size=2)).predict_batch(batch, **words)


def test_small_integer_types_do_not_wrap_around():
    predictor = LensPredictor(profile_of({128: (1.0, 0.1), 512: (2.0, 0.2)}))
    small = predictor.predict(np.array([120], np.uint8), np.array([200], np.uint8))
    assert small.decode_s.tolist() == predictor.predict(np.array([120]), np.array([200])).decode_s.tolist()


def test_memory_grows_by_what_it_returns():
    rng = np.random.default_rng(1)
    inputs, outputs = rng.integers(1, 17, 400_000), rng.integers(1, 17, 400_000)
    predictor = LensPredictor(profile_of(TABLE))
    tracemalloc.start()
    predictor.predict(inputs, outputs)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 6 * inputs.nbytes + 16e6  # two results, steps, checks; chunks add a constant
