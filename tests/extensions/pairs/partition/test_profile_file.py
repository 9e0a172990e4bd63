"""Profiles as files: back as they were, and everything that can be wrong with one named with its place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_npubench.errors import FormatVersionError, PartitionError, StoreError
from pytest_npubench.extensions.pairs.partition.matmul import GPU
from pytest_npubench.extensions.pairs.partition.options import SplitOptions
from pytest_npubench.extensions.pairs.partition.profile import SyncLatency
from pytest_npubench.extensions.pairs.partition.profile_file import machine_facts, read_profile, write_profile

from .profiles import latency, profile, random_profile

OPTIONS = SplitOptions(standard_sizes=(1, 64), tile=32)
FACTS = (("processor", "a quick one"), ("torch", "2.13"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    written = tmp_path / "profile.json"
    write_profile(written, random_profile(1, OPTIONS, [1, 30]))
    return written


def edited(path: Path, *keys: str | int, value: object) -> Path:
    """One entry of the file made another; the value None takes it out."""
    data = json.loads(path.read_text())
    place = data
    for key in keys[:-1]:
        place = place[key]
    if value is None:
        del place[keys[-1]]
    else:
        place[keys[-1]] = value
    path.write_text(json.dumps(data))
    return path


def test_what_is_written_is_read(path: Path):
    assert read_profile(path) == random_profile(1, OPTIONS, [1, 30])
    assert [other.name for other in path.parent.iterdir()] == ["profile.json"]
    assert path.read_text().count("\n") > 50, "a line for each record"


def test_a_profile_of_another_machine_is_refused_unless_asked_for(tmp_path: Path):
    path = tmp_path / "profile.json"
    write_profile(path, profile([latency(GPU, 1, 1, 1e-3)], OPTIONS, fingerprint=FACTS))
    assert read_profile(path, facts=dict(FACTS)).fingerprint == FACTS
    assert read_profile(path).fingerprint == FACTS
    wrong = {"processor": "a slow one", "torch": "2.13", "jax": "0.10"}
    words = (
        r"profile\.json: the profile was measured elsewhere: processor a quick one -> a slow one; jax unknown -> 0.10"
    )
    with pytest.raises(PartitionError, match=words):
        read_profile(path, facts=wrong)
    assert read_profile(path, facts=wrong, any_fingerprint=True).fingerprint == FACTS


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", r"profile\.json: line 1 column 1: Expecting value \(the file is empty\)"),
        (b'{"format": "npub', r"profile\.json: line 1 column 12: Unterminated string"),
        (b"\xff\xfe", r"profile\.json: 'utf-8' codec can't decode byte 0xff in position 0"),
        (b"[1, 2]", "no object with format 'npubench-partition-profile'"),
        (b'{"format": "npubench-bucket-profile"}', "no object with format 'npubench-partition-profile'"),
        (b'{"latency": NaN}', "NaN is not a finite number"),
        (b"[" * 100_000, "nested deeper than 32 levels"),
    ],
)
def test_what_is_no_profile(content: bytes, words: str, tmp_path: Path):
    path = tmp_path / "profile.json"
    path.write_bytes(content)
    with pytest.raises(StoreError, match=words):
        read_profile(path)


@pytest.mark.parametrize("version", [0, 2, "1", [1]])
def test_another_version(version: object, path: Path):
    with pytest.raises(FormatVersionError, match=r"profile\.json: version .*; this release reads version 1$"):
        read_profile(edited(path, "version", value=version))


@pytest.mark.parametrize(
    ("keys", "value", "words"),
    [
        (("syncs",), None, "syncs: missing; want a list"),
        (("colour",), "red", "colour: unknown key; allowed: fingerprint, options, latencies"),
        (("fingerprint",), {"torch": 2}, "fingerprint.torch: want a string, found a whole number"),
        (("is_finished",), 1, "is_finished: want true or false, found a whole number"),
        (("gpu_threshold_tokens",), "many", "gpu_threshold_tokens: want a number or null, found a string"),
        (("options", "tile"), 0, "options: tile 0"),
        (("options", "tile"), True, r"options\.tile: want a whole number, found true or false"),
        (("options", "standard_sizes"), [1.5], r"options\.standard_sizes\[0\]: want a whole number, found a number"),
        (("latencies",), {}, "latencies: want a list, found an object"),
        (("latencies", 2), 5, r"latencies\[2\]: want an object, found a whole number"),
        (("latencies", 2, "rows"), None, r"latencies\[2\]\.rows: missing; want a whole number"),
        (("latencies", 2, "rows"), "64", r"latencies\[2\]\.rows: want a whole number, found a string"),
        (("latencies", 2, "samples_s"), [], r"latencies\[2\]\.samples_s: want a list of numbers that is not empty"),
        (("latencies", 2, "samples_s"), [1, "2"], r"latencies\[2\]\.samples_s\[1\]: want a number, found a string"),
        (("latencies", 2, "samples_s"), [-1.0], r"a latency of .* of -1\.0; want a finite number of seconds >= 0"),
        (("slowdowns", 0, "gpu"), [0.0], "a slowdown of .* that is not above 0"),
        (("syncs",), [], "a profile without a synchronisation mechanism"),
    ],
)
def test_a_wrong_entry_is_named_with_its_place(keys, value, words: str, path: Path):
    with pytest.raises(StoreError, match=words) as error:
        read_profile(edited(path, *keys, value=value))
    assert "profile.json" in str(error.value)


def test_a_point_that_stands_twice(path: Path):
    latencies = json.loads(path.read_text())["latencies"]
    with pytest.raises(StoreError, match="a profile with two latencies of"):
        read_profile(edited(path, "latencies", value=[*latencies, latencies[0]]))


def test_a_file_that_is_not_there_and_a_place_that_cannot_be_written(tmp_path: Path):
    with pytest.raises(StoreError, match=r"none\.json: cannot be read: No such file"):
        read_profile(tmp_path / "none.json")
    with pytest.raises(StoreError, match=r"profile\.json: cannot be written: No such file"):
        write_profile(tmp_path / "none" / "profile.json", random_profile(1, OPTIONS, [1]))


def test_a_number_that_is_not_finite_never_becomes_a_profile():
    with pytest.raises(PartitionError, match="sync by flag of inf; want a finite number"):
        profile([], OPTIONS, syncs=(SyncLatency(mechanism="flag", p50_s=1, p99_s=float("inf")),))


def test_the_facts_of_a_machine(tmp_path: Path):
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor\t: 0\nmodel name\t: A Processor @ 2 GHz\nmodel name\t: another\n")
    facts = machine_facts(cpuinfo)
    assert facts["processor"] == "A Processor @ 2 GHz"
    assert {"system", "numpy", "torch", "jax"} <= facts.keys()
    assert machine_facts(tmp_path / "none")["processor"]
