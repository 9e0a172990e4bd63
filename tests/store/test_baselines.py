"""Baselines: what is accepted comes back, is kept whole and bounded, and is never taken for empty."""

import json
import math
import statistics
from dataclasses import replace

import numpy as np
import pytest
from accepted_results import anchor_sessions, result
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_npubench.errors import BaselineError, ConfigError
from pytest_npubench.store.acceptance import NUM_KEPT_SAMPLES, kept_samples
from pytest_npubench.store.baselines import Baselines, CaseResult

CASE = "buckets/profile/cpu-tiny-b4-bucket128"
SAMPLES = st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=100).map(tuple)
PROCESSES = st.lists(SAMPLES, min_size=1, max_size=3).map(tuple)


def sessions(directory, key, **about):
    return Baselines.load(directory).sessions(CASE, "tbt_s", key, **{"digest": "d1", **about})


def test_what_is_accepted_comes_back_in_order(baselines, key):
    first, second = result((0.5, 0.25), (0.125,)), result((0.75,))
    (path,) = baselines.accept([first], session="s1", key=key, accepted_at="2026-11-21T13:05:00+00:00")
    assert baselines.accept([second], session="s2", key=key) == (path,)
    assert path.relative_to(baselines.directory).as_posix() == f"cpu/buckets-{key.digest()}.json"
    assert sessions(baselines.directory, key) == [[[0.5, 0.25], [0.125]], [[0.75]]]
    assert baselines.sessions(CASE, "tbt_s", key, digest="d1") == []  # as it was when loaded


@settings(max_examples=30, deadline=None)
@given(st.lists(PROCESSES, min_size=1, max_size=4))
def test_round_trip_keeps_six_digits_and_at_most_31_samples(tmp_path_factory, key, accepted):
    directory = tmp_path_factory.mktemp("baselines")
    for index, processes in enumerate(accepted):
        Baselines.load(directory).accept([result(*processes)], session=f"s{index}", key=key)
    for processes, found in zip(accepted, sessions(directory, key), strict=True):
        for samples, kept in zip(processes, found, strict=True):
            if len(samples) <= NUM_KEPT_SAMPLES:
                np.testing.assert_allclose(kept, samples, rtol=5.1e-6)
            else:
                assert len(kept) == NUM_KEPT_SAMPLES
                assert statistics.median(kept) == pytest.approx(statistics.median_high(samples), rel=5.1e-6)


def test_thinning_worked_example():
    kept = kept_samples((tuple(float(n) for n in range(1, 94)),))
    assert kept.processes == (tuple(float(n) for n in range(2, 93, 3)),)
    assert kept.processes[0][15] == 47
    assert kept.num_measured == (93,)


@settings(max_examples=100)
@given(st.lists(st.floats(1e-3, 1e3), min_size=32, max_size=300))
def test_thinned_samples_are_evenly_spaced_measured_values(samples):
    (kept,) = kept_samples((tuple(samples),)).processes
    assert set(kept) <= set(samples)
    fractions = (np.arange(31) + 0.5) / 31
    ranks = np.floor(fractions * len(samples) + 1e-9).astype(int)
    assert list(kept) == list(np.sort(samples)[ranks])
    (exact,) = kept_samples((tuple(samples),), "exact").processes
    assert exact == (min(samples), *kept[1:-1], max(samples))


def test_the_same_session_twice_changes_nothing(baselines, key):
    (path,) = baselines.accept([result()], session="s1", key=key)
    before = (path.read_bytes(), path.stat().st_mtime_ns)
    assert baselines.accept([result()], session="s1", key=key) == ()
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before


def test_a_session_accepted_in_two_parts_lands_whole(baselines, key):
    baselines.accept([result()], session="s1", key=key)
    other = "buckets/profile/cpu-tiny-b4-bucket256"
    baselines.accept([result(), result(case=other)], session="s1", key=key)
    loaded = Baselines.load(baselines.directory)
    assert len(loaded.sessions(CASE, "tbt_s", key, digest="d1")) == 1
    assert len(loaded.sessions(other, "tbt_s", key, digest="d1")) == 1


def test_the_same_session_with_other_samples_is_refused(baselines, key):
    (path,) = baselines.accept([result()], session="s1", key=key)
    before = path.read_bytes()
    with pytest.raises(BaselineError, match=f"{CASE}: the session s1 is accepted already, with other samples"):
        baselines.accept([result((9.0,))], session="s1", key=key)
    assert path.read_bytes() == before


def test_the_newest_and_the_anchor_of_the_first_are_kept(baselines, key):
    for index in range(40):
        baselines.accept([result((1.0 + index,))], session=f"s{index}", key=key)
        expected = sorted({*range(min(index + 1, 8)), *range(max(index - 23, 0), index + 1)})
        assert sessions(baselines.directory, key) == [[[1.0 + number]] for number in expected]
        anchor = anchor_sessions(Baselines.load(baselines.directory), CASE, "tbt_s", key, digest="d1")
        assert anchor == [[[1.0 + number]] for number in range(min(index + 1, 8))]


def test_a_clock_that_goes_back_does_not_displace_the_anchor(baselines, key):
    baselines.accept([result((1.0,))], session="s1", key=key)
    baselines.accept([result((2.0,))], session="s2", key=key, accepted_at="1970-01-01T00:00:00+00:00")
    assert sessions(baselines.directory, key) == [[[1.0]], [[2.0]]]


def test_keys_are_kept_apart_and_may_be_compared_across_a_named_part(baselines, key):
    upgraded = replace(key, driver="580.12")
    baselines.accept([result((2.0,))], session="s2", key=upgraded, accepted_at="2025-02-01T00:00:00+00:00")
    baselines.accept([result((1.0,))], session="s1", key=key, accepted_at="2025-01-01T00:00:00+00:00")
    directory = baselines.directory
    assert sessions(directory, key) == [[[1.0]]]
    assert sessions(directory, upgraded) == [[[2.0]]]
    assert sessions(directory, upgraded, across=["driver"]) == [[[1.0]], [[2.0]]]
    assert sessions(directory, upgraded, across=["runtime"]) == [[[2.0]]]
    assert sessions(directory, replace(upgraded, runtime="jax 1"), across=["driver"]) == []
    with pytest.raises(ConfigError, match="cannot compare across 'weather'"):
        sessions(directory, key, across=["weather"])


def test_mismatches_say_why_nothing_compares(baselines, key):
    baselines.accept([result()], session="s1", key=key)
    loaded = Baselines.load(baselines.directory)
    upgraded = replace(key, driver="580.12")
    assert loaded.mismatches(CASE, key, digest="d1") == ()
    assert loaded.mismatches(CASE, upgraded, digest="d1") == ("driver 570.86 -> 580.12",)
    assert loaded.mismatches(CASE, upgraded, digest="d2") == ("driver 570.86 -> 580.12, case digest d1 -> d2",)
    assert loaded.mismatches("buckets/profile/other", upgraded, digest="d1") == ()


def test_another_digest_starts_anew(baselines, key):
    baselines.accept([result((1.0,))], session="s1", key=key)
    baselines.accept([result((2.0,), digest="d2")], session="s2", key=key)
    assert sessions(baselines.directory, key) == []
    assert sessions(baselines.directory, key, digest="d2") == [[[2.0]]]


def test_metrics_are_kept_apart(baselines, key):
    baselines.accept([result((1.0,))], session="s1", key=key)
    baselines.accept([result((2.0,), name="tokens_per_s", unit="1/s", better="higher")], session="s2", key=key)
    loaded = Baselines.load(baselines.directory)
    assert loaded.sessions(CASE, "tbt_s", key, digest="d1") == [[[1.0]]]
    assert loaded.sessions(CASE, "tokens_per_s", key, digest="d1") == [[[2.0]]]
    assert loaded.sessions(CASE, "joules", key, digest="d1") == []


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (result((0.1, math.nan)), f"{CASE}, metric tbt_s, process 0: sample nan is not a finite number"),
        (result((0.1,), ()), "metric tbt_s, process 1: no samples"),
        (CaseResult(hardware="cpu", case=CASE, digest="d1", metrics=()), "want at least one metric"),
        (result(better="more"), "better is 'more'; want lower or higher"),
        (result(unit="ms"), "accepted in 's', lower is better; now in 'ms', lower"),
        (result(better="higher"), "accepted in 's', lower is better; now in 's', higher"),
        (result(hardware="../cpu"), r"hardware '\.\./cpu' cannot name a folder"),
        (result(hardware="published"), "hardware 'published' cannot name a folder"),
        (result(case="cpu-tiny"), "want SUITE/KIND/ID"),
        (result(case="/k/i"), "want SUITE/KIND/ID"),
    ],
)
def test_what_cannot_be_accepted_is_named_before_anything_is_written(baselines, key, changed, message):
    (path,) = baselines.accept([result()], session="s1", key=key)
    before = path.read_bytes()
    good = result(case="buckets/profile/good")
    with pytest.raises(BaselineError, match=message):
        baselines.accept([good, result(hardware="tpu"), changed], session="s2", key=key)
    assert path.read_bytes() == before
    assert not (baselines.directory / "tpu").exists()


def test_a_time_without_offset_is_refused(baselines, key):
    with pytest.raises(BaselineError, match="accepted_at: want a time like"):
        baselines.accept([result()], session="s1", key=key, accepted_at="2026-11-21T13:05:00")


def test_the_file_is_stable_text_for_review(baselines, key):
    third = 1 / 3
    baselines.accept([result((third, 2.0))], session="s1", key=key, accepted_at="2026-11-21T13:05:00+00:00")
    (path,) = baselines.directory.rglob("*.json")
    text = path.read_text()
    assert text.endswith("}\n")
    assert "[0.3333333333333333, 2.0]\n" in text
    content = json.loads(text)
    assert list(content) == ["cases", "format", "hardware", "key", "rejected", "resets", "suite", "version"]
    assert content["format"] == "npubench-baseline"
    assert content["key"] == key.to_json()
    session = content["cases"][CASE]["sessions"][0]
    assert list(session) == ["accepted_at", "anchor", "check", "git_revision", "metrics", "session"]
    assert session["metrics"]["tbt_s"] == {"num_measured": [2], "processes": [[third, 2.0]]}
