"""Which bucket of NxD Inference a length runs in, against a loop over its rule."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_npubench.errors import ConfigError, LengthError
from pytest_npubench.extensions.adapters.nxd.buckets import FirstFit, declared_buckets, generated_buckets
from pytest_npubench.predictors.lens import LensPredictor
from pytest_npubench.predictors.profile import BucketProfile, BucketTiming

from .stand_in import NeuronConfig


def _first_fit(mask_tokens: int, buckets: tuple[int, ...]) -> int:
    """The wrapper's rule as a loop: the first bucket above the mask, the largest for a mask of its length."""
    for bucket in buckets:
        if mask_tokens < bucket:
            return bucket
    assert mask_tokens == buckets[-1]
    return buckets[-1]


SETS = st.sets(st.integers(2, 60), min_size=1, max_size=5).map(lambda values: tuple(sorted(values)))


@given(SETS)
def test_lengths_run_where_the_wrapper_puts_them(buckets):
    keys = FirstFit(prefill_buckets=buckets, decode_buckets=buckets)
    lengths = np.arange(1, buckets[-1] + 1)
    assert keys.prefill_key(lengths).tolist() == [_first_fit(length, buckets) for length in lengths]
    # the mask of a step covers the cache before it
    assert keys.decode_key(lengths, 4).tolist() == [_first_fit(length - 1, buckets) for length in lengths]
    assert [keys.prefill_key(int(length)) for length in lengths] == keys.prefill_key(lengths).tolist()


@pytest.mark.parametrize("prompt", [0, 129])
def test_a_length_that_no_bucket_is_for_is_named(prompt):
    keys = FirstFit(prefill_buckets=(128,), decode_buckets=(128, 256))
    with pytest.raises(LengthError):
        keys.prefill_key(prompt)
    with pytest.raises(LengthError):
        keys.decode_key(257, 1)


@pytest.mark.parametrize(
    ("longest", "expected"),
    [
        (128, (128,)),
        (64, (64,)),
        (256, (128, 256)),
        (1000, (128, 256, 512, 1000)),
        (1024, (128, 256, 512, 1024)),
        (1500, (128, 256, 512, 1024, 1500)),
        (1400, (128, 256, 512, 1400)),  # nearer to 1024 than to 2048 on a scale of logarithms, so 1024 is left out
    ],
)
def test_the_set_where_none_is_given(longest, expected):
    assert generated_buckets(longest) == expected


def test_the_sets_of_a_configuration():
    off = declared_buckets(NeuronConfig(seq_len=512, max_context_length=256))
    assert (off.prefill_buckets, off.decode_buckets) == ((256,), (512,))
    made = declared_buckets(NeuronConfig(seq_len=512, max_context_length=256, enable_bucketing=True))
    assert (made.prefill_buckets, made.decode_buckets) == ((128, 256), (128, 256, 512))
    given_sets = {"context_encoding_buckets": [64, 256], "token_generation_buckets": [256, 512]}
    own = declared_buckets(NeuronConfig(seq_len=512, max_context_length=256, enable_bucketing=True, **given_sets))
    assert (own.prefill_buckets, own.decode_buckets) == ((64, 256), (256, 512))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"is_prefix_caching": True}, "is_prefix_caching has buckets of two dimensions"),
        ({"context_encoding_buckets": [64, 64]}, "context_encoding_buckets"),
        ({"token_generation_buckets": [0, 64]}, "token_generation_buckets"),
    ],
)
def test_sets_that_cannot_be_are_named(settings, words):
    with pytest.raises(ConfigError, match=words):
        declared_buckets(NeuronConfig(seq_len=128, enable_bucketing=True, **settings))


def test_lens_predicts_with_these_keys():
    """A prompt that fills its bucket costs the next one's prefill: LENS's Eq. 1 would take the first."""
    timings = {bucket: BucketTiming(ttft_s=bucket / 1000, tbt_s=0.001) for bucket in (128, 256)}
    profile = BucketProfile(buckets=timings, batch_size=1)
    keys = FirstFit(prefill_buckets=(128, 256), decode_buckets=(128, 256))
    assert LensPredictor(profile).predict(128, 1).e2e_s == pytest.approx(0.128)
    assert LensPredictor(profile, keys=keys).predict(128, 1).e2e_s == pytest.approx(0.256)
    assert LensPredictor(profile, keys=keys).predict(127, 1).e2e_s == pytest.approx(0.128)
