"""Baselines: what is accepted comes back, is kept whole and bounded, and is never taken for empty."""

import json
import math
import statistics
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_npubench.errors import BaselineError, ConfigError, FormatVersionError
from pytest_npubench.store.acceptance import NUM_KEPT_SAMPLES, NUM_WINDOW_SESSIONS, kept_samples
from pytest_npubench.store.baselines import Baselines, CaseResult, MetricResult

CASE = "buckets/profile/cpu-tiny-b4-bucket128"
SAMPLES = st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=100).map(tuple)
PROCESSES = st.lists(SAMPLES, min_size=1, max_size=3).map(tuple)


@pytest.fixture
def baselines(tmp_path):
    return Baselines.load(tmp_path / "baselines", missing_ok=True)


def result(*processes, case=CASE, digest="d1", name="tbt_s", unit="s", better="lower", hardware="cpu"):
    metric = MetricResult(name=name, unit=unit, better=better, processes=processes or ((0.5, 0.25),))
    return CaseResult(hardware=hardware, case=case, digest=digest, metrics=(metric,))


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
    rounded = {float(f"{value:.6g}") for value in samples}
    assert set(kept) <= rounded
    fractions = (np.arange(31) + 0.5) / 31
    ranks = np.floor(fractions * len(samples) + 1e-9).astype(int)
    np.testing.assert_allclose(kept, np.sort(samples)[ranks], rtol=5.1e-6)


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


def test_the_newest_twenty_and_the_anchor_are_kept(baselines, key):
    for index in range(30):
        baselines.accept([result((1.0 + index,))], session=f"s{index}", key=key)
        expected = list(range(index + 1)) if index <= NUM_WINDOW_SESSIONS else [0, *range(index - 19, index + 1)]
        assert sessions(baselines.directory, key) == [[[1.0 + number]] for number in expected]


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
    baselines.accept([result((0.1234567891, 2.0))], session="s1", key=key, accepted_at="2026-11-21T13:05:00+00:00")
    (path,) = baselines.directory.rglob("*.json")
    text = path.read_text()
    assert text.endswith("}\n")
    assert "[0.123457, 2.0]\n" in text
    content = json.loads(text)
    assert list(content) == ["cases", "format", "hardware", "key", "suite", "version"]
    assert content["format"] == "npubench-baseline"
    assert content["key"] == key.to_json()
    session = content["cases"][CASE]["sessions"][0]
    assert session["metrics"]["tbt_s"] == {"num_measured": [2], "processes": [[0.123457, 2.0]]}


# files that must not be taken for an empty baseline


def test_a_directory_that_is_not_there(tmp_path):
    with pytest.raises(BaselineError, match="absent: No such file or directory"):
        Baselines.load(tmp_path / "absent")
    assert Baselines.load(tmp_path / "absent", missing_ok=True).files == ()
    (tmp_path / "file").touch()
    with pytest.raises(BaselineError, match="file: Not a directory"):
        Baselines.load(tmp_path / "file", missing_ok=True)


def test_a_folder_that_cannot_be_read_is_an_error(tmp_path):
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "loop").symlink_to(tmp_path / "cpu" / "loop")
    (tmp_path / "cpu" / "x.json").symlink_to(tmp_path / "nowhere")
    with pytest.raises(BaselineError, match=r"x\.json: No such file"):
        Baselines.load(tmp_path)


def test_published_figures_hidden_folders_and_other_files_are_left_alone(baselines, key):
    baselines.accept([result()], session="s1", key=key)
    for name in ("published/lens.json", ".cache/x.json", "cpu/README.md", "README.md"):
        path = baselines.directory / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("not a baseline")
    assert len(Baselines.load(baselines.directory).files) == 1


@pytest.mark.parametrize("name", ["stray.json", "cpu/deep/buckets.json", "cpu/published/x.json"])
def test_a_json_file_out_of_place_is_an_error(tmp_path, name):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{}")
    with pytest.raises(BaselineError, match=r"out of place; want .*/HARDWARE/SUITE-KEY\.json"):
        Baselines.load(tmp_path)


@pytest.fixture
def accepted(baselines, key):
    (path,) = baselines.accept([result((0.5, 0.25))], session="s1", key=key)
    return path


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"line 1 column 1: Expecting value"),
        (b"<<<<<<< HEAD\n{}", r"line 1 column 1: Expecting value"),
        (b"\xff\xfe\x00", "line 1 column 1: not UTF-8 text"),
        (b"[]", "value: want an object, found a list"),
        (b"{}", "format: missing"),
        (b'{"format": "npubench-journal"}', "format: want 'npubench-baseline', found 'npubench-journal'"),
        (b'{"format": "npubench-baseline", "version": "1"}', "version: want a whole number"),
        (b'{"format": "npubench-baseline", "version": 1}', "suite: missing"),
    ],
)
def test_a_corrupt_file_is_an_error_with_its_place(accepted, baselines, key, content, message):
    accepted.write_bytes(content)
    with pytest.raises(BaselineError, match=rf"{accepted.name}.*: {message}|{accepted.name} {message}"):
        Baselines.load(baselines.directory)
    with pytest.raises(BaselineError, match=message):
        baselines.accept([result((9.0,))], session="s2", key=key)
    assert accepted.read_bytes() == content


def test_every_cut_of_a_file_is_an_error(accepted, baselines):
    raw = accepted.read_bytes()
    for size in range(len(raw) - 1):  # without the last newline it is whole
        accepted.write_bytes(raw[:size])
        with pytest.raises(BaselineError, match=accepted.name):
            Baselines.load(baselines.directory)


def test_a_later_version_is_told_by_its_number(accepted, baselines, key):
    accepted.write_text('{"format": "npubench-baseline", "version": 7, "shards": []}')
    with pytest.raises(FormatVersionError, match=f"{accepted.name}: written by format 7; this version reads 1"):
        Baselines.load(baselines.directory)
    with pytest.raises(FormatVersionError, match="written by format 7"):
        baselines.accept([result()], session="s2", key=key)


def edited(accepted, edit):
    content = json.loads(accepted.read_text())
    edit(content)
    accepted.write_text(json.dumps(content))


def session_of(content):
    return content["cases"][CASE]["sessions"][0]


def samples_of(content):
    return session_of(content)["metrics"]["tbt_s"]


PLACE = rf"cases\.{CASE}"
TBT = rf"{PLACE}\.sessions\[0\]\.metrics\.tbt_s"


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (
            lambda c: samples_of(c)["processes"][0].__setitem__(1, "fast"),
            rf"{TBT}\.processes\[0\]\[1\]: want .*a string",
        ),
        (lambda c: samples_of(c)["processes"][0].__setitem__(1, None), rf"{TBT}\.processes\[0\]\[1\]: want .*null"),
        (lambda c: samples_of(c)["processes"].__setitem__(0, []), rf"{TBT}\.processes\[0\]: no samples"),
        (lambda c: samples_of(c).update(processes=[]), rf"{TBT}\.processes: empty"),
        (lambda c: samples_of(c).update(num_measured=[1]), rf"{TBT}\.num_measured: want one count a process"),
        (lambda c: samples_of(c).update(num_measured=[2, 2]), rf"{TBT}\.num_measured: want one count a process"),
        (lambda c: session_of(c).update(accepted_at="yesterday"), rf"{PLACE}\.sessions\[0\]\.accepted_at: want a time"),
        (lambda c: session_of(c).update(host="x"), rf"{PLACE}\.sessions\[0\]\.host: unknown; allowed are session"),
        (lambda c: session_of(c)["metrics"].update(x={}), rf"{PLACE}\.sessions\[0\]\.metrics\.x\.processes: missing"),
        (
            lambda c: c["cases"][CASE]["sessions"].append(session_of(c)),
            rf"{PLACE}\.sessions\[1\]\.session: 's1' stands tw",
        ),
        (lambda c: c["cases"][CASE]["metrics"].clear(), rf"{PLACE}\.sessions\[0\]\.metrics\.tbt_s: has no unit"),
        (
            lambda c: c["cases"][CASE]["metrics"]["tbt_s"].update(better="up"),
            rf"{PLACE}\.metrics\.tbt_s\.better: want lo",
        ),
        (lambda c: c["cases"].update({"other/k/i": {}}), r"cases\.other/k/i: not a case of the suite 'buckets'"),
        (lambda c: c["key"].update(kernel="6"), r"key\.kernel: unknown; allowed are accelerator"),
        (lambda c: c["key"].update(driver="580.12"), "its hardware, suite and key belong in"),
        (lambda c: c.update(hardware="tpu"), "its hardware, suite and key belong in .*tpu"),
        (lambda c: c.update(note="x"), "note: unknown; allowed are format"),
    ],
)
def test_a_wrong_entry_is_an_error_with_its_place(accepted, baselines, edit, message):
    edited(accepted, edit)
    with pytest.raises(BaselineError, match=message):
        Baselines.load(baselines.directory)


def test_a_case_that_a_merge_left_twice_is_an_error(accepted, baselines):
    text = accepted.read_text()
    entry = json.dumps(json.loads(text)["cases"][CASE])
    accepted.write_text(text.replace('"cases": {', f'"cases": {{"{CASE}": {entry},', 1))
    with pytest.raises(BaselineError, match=f"the name '{CASE}' stands twice"):
        Baselines.load(baselines.directory)
