"""Baseline files that are damaged, of another version, or out of place: an error with path and place, never fewer
sessions than there were."""

import json
import os
import shutil

import pytest
from accepted_results import CASE, OTHER, accept, anchor_sessions, result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_npubench.errors import BaselineError, FormatVersionError, StoreError
from pytest_npubench.store import baseline_changes as renaming
from pytest_npubench.store import baseline_files
from pytest_npubench.store.baselines import Baselines

NEW = "buckets/profile/cpu-small-b4-bucket256"


def test_a_directory_that_is_not_there(tmp_path):
    with pytest.raises(BaselineError, match="absent: No such file or directory"):
        Baselines.load(tmp_path / "absent")
    assert Baselines.load(tmp_path / "absent", missing_ok=True).files == ()
    (tmp_path / "file").touch()
    with pytest.raises(BaselineError, match="file: Not a directory"):
        Baselines.load(tmp_path / "file", missing_ok=True)


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
        (b"", r"line 1 column 1: Expecting value; the file is damaged: restore it"),
        (b"<<<<<<< HEAD\n{}", r"line 1 column 1: Expecting value"),
        (b"\xff\xfe\x00", "line 1 column 1: not UTF-8 text"),
        (b"[]", "value: want an object, found a list"),
        (b"{}", "format: missing"),
        (b'{"format": "npubench-journal"}', "format: want 'npubench-baseline', found 'npubench-journal'"),
        (b'{"format": "npubench-baseline", "version": "1"}', "version: want a whole number"),
        (b'{"format": "npubench-baseline", "version": 3}', "suite: missing"),
        (
            b'{"format": "npubench-baseline", "version": 3, "x": [1,\n NaN]}',
            "line 2 column 2: NaN is not a finite number",
        ),
        (b"[" * 100_000, "nested deeper than 32 levels"),
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
    with pytest.raises(FormatVersionError, match=f"{accepted.name}: written by format 7; this version reads 3$"):
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
        (lambda c: samples_of(c)["processes"].__setitem__(0, []), rf"{TBT}\.processes\[0\]: want one or more samples"),
        (lambda c: samples_of(c).update(processes=[]), rf"{TBT}\.processes: want a list of samples for each process"),
        (lambda c: samples_of(c).update(num_measured=[1]), rf"{TBT}\.num_measured: want one count a process"),
        (lambda c: samples_of(c).update(num_measured=[2, 2]), rf"{TBT}\.num_measured: want one count a process"),
        (lambda c: session_of(c).update(accepted_at="yesterday"), rf"{PLACE}\.sessions\[0\]\.accepted_at: want a time"),
        (lambda c: session_of(c).update(host="x"), rf"{PLACE}\.sessions\[0\]\.host: unknown key; allowed: session"),
        (lambda c: session_of(c)["metrics"].update(x={}), rf"{PLACE}\.sessions\[0\]\.metrics\.x\.processes: missing"),
        (
            lambda c: c["cases"][CASE]["sessions"].append(session_of(c)),
            rf"{PLACE}\.sessions\[1\]\.session: 's1' stands tw",
        ),
        (lambda c: c["cases"][CASE]["metrics"].clear(), rf"{PLACE}\.sessions\[0\]\.metrics\.tbt_s: has no unit"),
        (
            lambda c: c["cases"][CASE]["metrics"]["tbt_s"].update(better="up"),
            rf"{PLACE}\.metrics\.tbt_s\.better: want one of lo",
        ),
        (lambda c: c["cases"].update({"other/k/i": {}}), r"cases\.other/k/i: not a case of the suite 'buckets'"),
        (lambda c: c["key"].update(kernel="6"), r"key\.kernel: unknown key; allowed: accelerator"),
        (lambda c: c["key"].update(driver="580.12"), "its hardware, suite and key belong in"),
        (lambda c: c.update(hardware="tpu"), "its hardware, suite and key belong in .*tpu"),
        (lambda c: c.update(note="x"), "note: unknown key; allowed: format"),
        (lambda c: samples_of(c)["processes"][0].__setitem__(1, 0.26), rf"{PLACE}\.sessions\[0\]\.check: .* altered"),
        (lambda c: c["cases"][CASE].update(digest="d2"), rf"{PLACE}\.sessions\[0\]\.check: .* altered"),
        (lambda c: session_of(c).update(anchor=False), rf"{PLACE}\.sessions\[0\]\.check: .* altered"),
        (lambda c: session_of(c).pop("anchor"), rf"{PLACE}\.sessions\[0\]\.anchor: missing"),
        (lambda c: session_of(c).update(anchor=1), rf"{PLACE}\.sessions\[0\]\.anchor: want true or false"),
        (lambda c: c["cases"].update({OTHER: c["cases"].pop(CASE)}), r"bucket256\.sessions\[0\]\.check: .* altered"),
        (lambda c: c["cases"][CASE].update(sessions=[]), rf"{PLACE}\.sessions: empty"),
        (lambda c: session_of(c).update(metrics={}), rf"{PLACE}\.sessions\[0\]\.metrics: empty"),
        (lambda c: c.pop("rejected"), "rejected: missing"),
        (lambda c: c["rejected"].update(s9={"reason": ""}), r"rejected\.s9\.rejected_at: missing"),
        (
            lambda c: c["rejected"].update(s1={"reason": "", "rejected_at": "2026-11-21T13:05:00+00:00"}),
            r"rejected\.s1: a case holds this session; want it accepted or rejected, not both",
        ),
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


# what is no file, or not one of ours


def test_a_folder_a_pipe_or_a_giant_in_the_place_of_a_file(accepted, baselines, monkeypatch):
    accepted.unlink()
    accepted.mkdir()
    with pytest.raises(BaselineError, match=f"{accepted.name}: is a folder; want a file"):
        Baselines.load(baselines.directory)
    accepted.rmdir()
    os.mkfifo(accepted)
    with pytest.raises(BaselineError, match=f"{accepted.name}: is a pipe; want a file"):
        Baselines.load(baselines.directory)
    accepted.unlink()
    monkeypatch.setattr(baseline_files, "MAX_BYTES", 1000)
    accepted.write_bytes(b"{" + b" " * 1000)
    with pytest.raises(BaselineError, match=f"{accepted.name}: has 1001 bytes; at most 1000 are read"):
        Baselines.load(baselines.directory)


def test_a_file_too_large_to_be_read_again_is_not_written(accepted, baselines, key, monkeypatch):
    before = accepted.read_bytes()
    monkeypatch.setattr(baseline_files, "MAX_BYTES", len(before) + 100)
    with pytest.raises(BaselineError, match=f"{accepted.name}: .* bytes to write"):
        accept(baselines.directory, key, result((1.0,)), session="s2")
    assert accepted.read_bytes() == before


# two files that claim one thing


def test_a_copy_under_another_key_is_an_error(accepted, baselines):
    shutil.copy(accepted, accepted.with_name("buckets-00000000.json"))
    with pytest.raises(BaselineError, match=r"buckets-00000000\.json: its hardware, suite and key belong in"):
        Baselines.load(baselines.directory)


def test_a_case_under_two_hardware_names_and_one_key_is_an_error(accepted, baselines, key):
    text = accepted.read_text().replace('"hardware": "cpu"', '"hardware": "lab"')
    copy = baselines.directory / "lab" / accepted.name
    copy.parent.mkdir()
    copy.write_text(text)
    with pytest.raises(BaselineError, match=rf"{copy}: cases\.{CASE}: {accepted} holds this case under the same key"):
        Baselines.load(baselines.directory)


def test_one_key_under_two_hardware_names_with_cases_of_their_own_is_none(accepted, baselines, key):
    accept(baselines.directory, key, result(case="buckets/profile/lab-tiny", hardware="lab"), session="s1")
    assert len(Baselines.load(baselines.directory).files) == 2


def test_a_sample_larger_than_any_float_is_named(accepted, baselines):
    edited(accepted, lambda c: samples_of(c)["processes"][0].__setitem__(1, 10**400))
    with pytest.raises(BaselineError, match=rf"{TBT}\.processes\[0\]\[1\]: want .*larger than any float"):
        Baselines.load(baselines.directory)


# damage at random


@st.composite
def damages(draw):
    """A function that cuts, alters, drops or doubles a piece of some bytes."""
    where, length = draw(st.floats(0, 1)), draw(st.integers(1, 200))
    put = draw(st.sampled_from(["cut", "drop", "double"]) | st.binary(min_size=1, max_size=1))

    def damage(raw):
        start = int(where * (len(raw) - 1))
        if put == "cut":
            return raw[:start]
        if put == "drop":
            return raw[:start] + raw[start + length :]
        if put == "double":
            return raw[: start + length] + raw[start:]
        return raw[:start] + put + raw[start + 1 :]

    return damage


@pytest.fixture(scope="module")
def sound(tmp_path_factory, key):
    """A directory of three sessions of two cases, one of them renamed, with what is found in it."""
    directory = tmp_path_factory.mktemp("sound") / "baselines"
    for number in range(3):
        both = (result((1.0 + number,)), result((2.0 + number, 3.0), case=OTHER))
        accept(directory, key, *both, session=f"s{number}", day=number)
    renaming.rename(directory, OTHER, NEW)
    accept(directory, key, result((9.0,), case=NEW, digest="d9"), session="s9", day=9)
    return directory, found_in(directory, key)


def found_in(directory, key):
    loaded = Baselines.load(directory)
    return [
        find(loaded, case, "tbt_s", key, digest=digest)
        for case, digest in ((CASE, "d1"), (OTHER, "d1"), (NEW, "d9"))
        for find in (Baselines.sessions, anchor_sessions)
    ]


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(damage=damages(), name=st.sampled_from(["aliases.json", "cpu/*.json"]))
def test_damage_is_an_error_or_changes_nothing(sound, tmp_path_factory, key, damage, name):
    directory, expected = sound
    copy = tmp_path_factory.mktemp("damaged") / "baselines"
    shutil.copytree(directory, copy)
    (path,) = copy.glob(name)
    path.write_bytes(damage(path.read_bytes()))
    assert _answer(copy, key) in (expected, "an error with the path")


def _answer(directory, key):
    try:
        return found_in(directory, key)
    except StoreError as error:
        return "an error with the path" if str(directory) in str(error) else f"an error without it: {error}"
