import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_npubench.core.buckets import SmallestBucket, Spans, bucket_of, check_buckets, steps_per_bucket
from pytest_npubench.errors import ConfigError, LengthError

PAPER = (128, 256, 512, 1024, 2048, 4096, 8192)
bucket_sets = st.lists(st.integers(1, 60), min_size=1, max_size=6, unique=True).map(
    lambda values: tuple(sorted(values))
)


def loop_steps(buckets, input_tokens, num_steps):
    """The definition: assign every step's KV length by Eq. 1 and count."""
    used = [min(b for b in buckets if input_tokens + t + 1 <= b) for t in range(num_steps)]
    return [used.count(bucket) for bucket in buckets]


@pytest.mark.parametrize(("length", "bucket"), [(1, 128), (128, 128), (129, 256), (8192, 8192)])
def test_equation_1(length, bucket):
    assert bucket_of(PAPER, length) == bucket
    assert type(bucket_of(PAPER, length)) is int


def test_equation_1_takes_arrays_of_any_shape():
    lengths = np.array([[1, 128], [129, 8192]], dtype=np.int32)
    assert bucket_of(PAPER, lengths).tolist() == [[128, 128], [256, 8192]]


def test_a_length_above_every_bucket_is_named_never_clamped():
    with pytest.raises(LengthError, match=r"8193 is longer than the largest bucket, 8192 of \(128, .*8192\)"):
        bucket_of(PAPER, 8193)
    with pytest.raises(LengthError, match="9000 at index 2 is longer"):
        bucket_of(PAPER, np.array([1, 8192, 9000, 9001]))


@pytest.mark.parametrize(
    ("length", "message"),
    [
        (0, "0; want at least 1"),
        (-5, "-5; want at least 1"),
        (1.5, "1.5 is not whole"),
        (float("nan"), "nan is not whole"),
        (float("inf"), "inf; want|type float64"),
        (np.array([3, 0]), "0 at index 1"),
        (np.array([[3.0, 4.5]]), r"4.5 at index \(0, 1\)"),
        (np.array([3.0, 4.0]), "type float64"),
        (True, "type bool"),
        ("128", "type <U3"),
        (2**70, "type object"),
        (np.array([2**63], dtype=np.uint64), "too large"),
        ([[1], [1, 2]], "different lengths"),
    ],
)
def test_what_is_no_length(length, message):
    with pytest.raises(LengthError, match=message):
        bucket_of(PAPER, length)


@pytest.mark.parametrize("buckets", [(), (256, 128), (128, 128), (0, 128), (-1, 2), (1.5, 2), ("128",), ([1], [2])])
def test_what_is_no_bucket_set(buckets):
    with pytest.raises(ConfigError, match="want positive integers, each larger than the one before"):
        check_buckets(buckets)


def test_no_bucket_set_names_its_values():
    with pytest.raises(ConfigError, match=r"\(256, 128\)"):
        bucket_of((256, 128), 1)


def test_worked_number():
    assert steps_per_bucket((128, 256), 100, 59).tolist() == [28, 31]


@given(buckets=bucket_sets, data=st.data())
@settings(max_examples=200, deadline=None)
def test_closed_form_is_the_definition(buckets, data):
    input_tokens = data.draw(st.integers(1, buckets[-1]))
    num_steps = data.draw(st.integers(0, buckets[-1] - input_tokens))
    counts = steps_per_bucket(buckets, input_tokens, num_steps)
    assert counts.tolist() == loop_steps(buckets, input_tokens, num_steps)
    assert counts.sum() == num_steps


def test_closed_form_on_every_request_of_a_small_set():
    pairs = [(l_in, steps) for l_in in range(1, 13) for steps in range(13 - l_in)]
    inputs, steps = np.array(pairs).T
    counts = steps_per_bucket((3, 4, 8, 12), inputs, steps)
    assert counts.T.tolist() == [loop_steps((3, 4, 8, 12), *pair) for pair in pairs]


def test_steps_beyond_the_largest_bucket():
    with pytest.raises(LengthError, match="last decode step: 257 is longer than the largest bucket, 256"):
        steps_per_bucket((128, 256), 200, 57)
    with pytest.raises(LengthError, match="at index 1"):
        steps_per_bucket((128, 256), np.array([200, 200]), np.array([56, 57]))
    with pytest.raises(LengthError, match="decode steps: 9223372036854775807"):
        steps_per_bucket((128, 256), 200, 2**63 - 1)


def test_spans_of_equation_1_are_the_bucket_sets():
    keys = SmallestBucket(prefill_buckets=(64, 128), decode_buckets=(100, 300))
    assert (keys.max_input_tokens, keys.max_kv_tokens) == (128, 300)
    assert keys.prefill_key(65) == 128
    assert keys.decode_key(np.array([65, 101]), 4).tolist() == [100, 300]
    prefill, decode = Spans.of(keys.prefill_key, 128), Spans.of(lambda kv: keys.decode_key(kv, 4), 300)
    assert (prefill.edges, prefill.buckets) == ((64, 128), (64, 128))
    assert (decode.edges, decode.buckets) == ((100, 300), (100, 300))


def test_spans_of_a_key_that_returns_to_a_bucket():
    spans = Spans.of(lambda kv: np.where((kv > 3) & (kv <= 5), 16, 8), 9)
    assert (spans.edges, spans.buckets) == ((3, 5, 9), (8, 16, 8))
