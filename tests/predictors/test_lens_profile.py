import copy
import json
import math

import pytest

from pytest_npubench.errors import ConfigError, FormatVersionError, MeasurementError, StoreError
from pytest_npubench.predictors.lens import BucketProfile, BucketTiming, LensPredictor
from pytest_npubench.predictors.profile import PointError

ERROR = PointError(variance_s2=1e-6, num_samples=8, ttft_weight=1.0, tbt_weight=-1 / 32)
FULL = BucketProfile(
    buckets={
        256: BucketTiming(ttft_s=0.02, tbt_s=0.003),
        128: BucketTiming(ttft_s=0.01, tbt_s=0.1 + 0.2, errors=(ERROR,)),
    },
    batch_size=4,
    prefill_shared=True,
    fitted_literal=False,
    transitions_s={256: 0.001},
)
SPLIT = BucketProfile(buckets={64: BucketTiming(ttft_s=0.5), 128: BucketTiming(tbt_s=1)})


@pytest.mark.parametrize("profile", [FULL, SPLIT])
def test_json_round_trip_is_exact(profile):
    assert BucketProfile.from_json(json.loads(json.dumps(profile.to_json(), allow_nan=False))) == profile


def test_buckets_are_kept_in_ascending_order():
    assert tuple(FULL.buckets) == (128, 256)
    assert (SPLIT.prefill_buckets, SPLIT.decode_buckets) == ((64,), (128,))


def changed(path, value):
    data = copy.deepcopy(json.loads(json.dumps(FULL.to_json())))
    *outer, last = path
    place = data
    for key in outer:
        place = place[key]
    if value is KeyError:
        del place[last]
    else:
        place[last] = value
    return data


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (["format"], "other", "no object with format 'npubench-bucket-profile'"),
        (["batch_size"], KeyError, "batch_size: missing; want a whole number"),
        (["extra"], 1, "extra: unknown key; allowed: buckets, batch_size"),
        (["batch_size"], "4", "batch_size: want a whole number, found a string"),
        (["batch_size"], True, "batch_size: want a whole number, found true or false"),
        (["batch_size"], 0, "batch_size is 0"),
        (["prefill_shared"], None, "prefill_shared: want true or false, found null"),
        (["buckets"], [], "buckets: want an object, found a list"),
        (["buckets"], {}, r"buckets: \(\)"),
        (
            ["buckets", "12.5"],
            {"ttft_s": 1.0, "tbt_s": 1.0, "errors": []},
            "buckets.12.5: want a whole number for",
        ),
        (["buckets", "128"], None, "buckets.128: want an object, found null"),
        (["buckets", "128", "ttft_s"], math.nan, "buckets.128: ttft_s is nan"),
        (["buckets", "128", "tbt_s"], -1, "buckets.128: tbt_s is -1"),
        (["buckets", "128", "tbt_s"], "fast", "buckets.128.tbt_s: want a number or null, found a string"),
        (["buckets", "128", "tbt_s"], KeyError, "buckets.128.tbt_s: missing"),
        (["buckets", "128", "errors", 0, "num_samples"], KeyError, r"buckets.128.errors\[0\].num_samples: missing"),
        (["buckets", "128", "errors", 0, "variance_s2"], math.inf, r"errors\[0\].variance_s2 is inf"),
        (["buckets", "128", "errors", 0, "num_samples"], 1, "at least 2 samples"),
        (["buckets", "128", "errors", 0, "tbt_weight"], math.nan, "tbt_weight is nan"),
        (["transitions_s"], {"256": math.nan}, r"transitions_s\[256\] is nan"),
        (["transitions_s"], {"x": 1.0}, "transitions_s.x: want a whole number for a name"),
        (["transitions_s"], {"256": "slow"}, "transitions_s.256: want a number, found a string"),
    ],
)
def test_a_corrupt_entry_is_named(path, value, message):
    with pytest.raises(StoreError, match=message):
        BucketProfile.from_json(changed(path, value))


def test_what_is_no_profile_and_what_a_later_release_wrote():
    with pytest.raises(StoreError, match="no object with format"):
        BucketProfile.from_json([1, 2])
    with pytest.raises(FormatVersionError, match="version 2; this release reads version 1"):
        BucketProfile.from_json(changed(["version"], 2) | {"new": 1})


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"buckets": {}}, ConfigError, r"buckets: \(\)"),
        ({"buckets": {0: BucketTiming(ttft_s=1.0, tbt_s=1.0)}}, ConfigError, r"buckets: \(0,\)"),
        ({"buckets": {8: BucketTiming(ttft_s=1.0)}}, ConfigError, r"none of the buckets \(8,\) has a tbt_s"),
        ({"buckets": {8: BucketTiming(tbt_s=1.0)}}, ConfigError, r"none of the buckets \(8,\) has a ttft_s"),
        ({"batch_size": 0}, ConfigError, "batch_size is 0"),
        ({"batch_size": 2.0}, ConfigError, "batch_size is 2.0"),
        ({"transitions_s": {}}, ConfigError, r"transitions_s has no entry for bucket 256; want \(256,\)"),
        ({"transitions_s": {256: 0.1, 128: 0.1}}, ConfigError, "entry for 128, into which no cache grows"),
        ({"transitions_s": {256: -0.1}}, MeasurementError, r"transitions_s\[256\] is -0.1"),
        ({"buckets": dict(SPLIT.buckets), "transitions_s": {128: 0.1}}, ConfigError, "one bucket set for both phases"),
    ],
)
def test_profiles_that_cannot_be(settings, error, message):
    with pytest.raises(error, match=message):
        BucketProfile(**{"buckets": dict(FULL.buckets), **settings})


@pytest.mark.parametrize("value", [math.nan, math.inf, -0.1, True, "1"])
def test_seconds_that_cannot_be(value):
    with pytest.raises(MeasurementError, match="want a finite number of seconds"):
        BucketTiming(ttft_s=1.0, tbt_s=value)


def test_a_timing_without_times():
    with pytest.raises(MeasurementError, match="neither ttft_s nor tbt_s"):
        BucketTiming()


def test_a_profile_predicts_in_the_mode_it_was_fitted_in():
    with pytest.raises(ConfigError, match="literal is True, but the profile was fitted with literal=False"):
        LensPredictor(FULL, literal=True)
