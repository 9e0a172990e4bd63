"""Hardware files together: folders of them, groups of a file, a file that is like another, and whose a name is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from test_hardware_reader import GOOD, written

from pytest_npubench.core import hardware_reader
from pytest_npubench.core.hardware_reader import default_directory
from pytest_npubench.errors import HardwareFileError
from pytest_npubench.suites.hardware_files import load_all, load_hardware
from pytest_npubench.suites.scheduling.spec import ServingSpec

GROUPS = """
[[group]]
num_devices = 1
models = ["one"]
max_batch_size = { one = 1 }

[[group]]
num_devices = 8

[profile.quick]"""
LARGEST = "batch_sizes = [1, 2]\nmax_batch_size = { two = 1 }"


def test_further_groups_of_a_file_are_hardware_of_their_own(tmp_path: Path) -> None:
    text = GOOD.replace("[profile.quick]", GROUPS).replace('["Thing"]', '["Thing"]\nnum_devices = 4')
    spec = load_hardware(written(tmp_path, text.replace("batch_sizes = [1, 2]", LARGEST, 1)))
    found = hardware_reader.with_groups({"thing": spec})
    assert list(found) == [found[name].name for name in found] == ["thing", "thing-tp1", "thing-tp8"]
    assert found["thing"] is spec
    one, eight = found["thing-tp1"], found["thing-tp8"]
    assert [found[name].tensor_parallel for name in found] == [4, 1, 8]
    assert [found[name].device_memory_bytes for name in found] == [80e9, 80e9, 80e9]
    assert {found[name].file_name for name in found} == {"thing"}
    assert {found[name].markers for name in found} == {("cuda", "gpu")}
    nightly = "nightly"
    batches = {
        (name, model): found[name].batch_sizes_of(model, found[name].profile(nightly))
        for name in found
        for model in found[name].profile(nightly).models
    }
    assert batches == {
        ("thing", "one"): (1, 2),
        ("thing", "two"): (1,),  # the file's own limit is that of its own number of devices
        ("thing-tp1", "one"): (1,),
        ("thing-tp8", "one"): (1, 2),
        ("thing-tp8", "two"): (1, 2),
    }
    assert (one.groups, eight.groups) == ((), ())
    with pytest.raises(HardwareFileError, match=r"1 devices together are called 'thing-tp1', which is a hardware"):
        hardware_reader.with_groups({"thing": spec, "thing-tp1": spec})


def test_a_section_of_a_group_speaks_of_no_other_number_of_devices(tmp_path: Path) -> None:
    shipped = default_directory() / "tpu-v5e.toml"
    text = shipped.read_text(encoding="utf-8")
    specs = hardware_reader.with_groups({"tpu-v5e": load_hardware(written(tmp_path, text, "tpu-v5e.toml"))})
    capacities = {name: serving.kv_capacity_tokens for name in specs if (serving := specs[name].section(ServingSpec))}
    assert capacities == {"tpu-v5e-tp8": 80_000}
    everywhere = load_hardware(written(tmp_path, text.replace('sections = ["serving"]', "")))
    assert everywhere.section(ServingSpec) is not None
    with pytest.raises(HardwareFileError, match=r"group\[1\]\.sections: unknown srving"):
        load_hardware(written(tmp_path, text.replace('["serving"]', '["srving"]')))


def test_directories_are_read_together_and_sorted(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for directory, name in ((first, "zeta"), (first, "beta"), (second, "alpha")):
        directory.mkdir(exist_ok=True)
        written(directory, GOOD, f"{name}.toml")
    assert list(load_all([first, second])) == ["alpha", "beta", "zeta"]


def test_a_name_in_two_directories_names_both_files(tmp_path: Path) -> None:
    paths = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        paths.append(written(tmp_path / name, GOOD))
    with pytest.raises(HardwareFileError) as caught:
        load_all([tmp_path / "first", tmp_path / "second"])
    assert all(str(path) in str(caught.value) for path in paths)


@pytest.mark.parametrize("name", ["", "absent"])
def test_a_directory_without_hardware_files_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(HardwareFileError, match=re.escape(f"{tmp_path / name}: no hardware file there")):
        load_all([tmp_path / name])


def test_the_packaged_files_come_before_the_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "package"
    package.mkdir()
    monkeypatch.setattr(hardware_reader, "__file__", str(package / "core" / "hardware_reader.py"))
    assert default_directory() == tmp_path / "hardware"
    (package / "hardware_files").mkdir()
    assert default_directory() == package / "hardware_files"


LIKE = """
title = "Another device"
like = "thing"
limits = false

[probe]
match = ["Thing 2"]

[models]
default = ["one"]

[profile]
quick = { workloads = ["mail"], num_draws = 1, min_rounds = 2, max_rounds = 3, budget_s = 10 }
"""


def test_a_file_takes_what_it_lacks_from_the_one_that_it_is_like(tmp_path: Path) -> None:
    thing, other = load_hardware(written(tmp_path, GOOD)), load_hardware(written(tmp_path, LIKE, "thing-2.toml"))
    assert (other.family, other.classes, other.buckets, other.batch_sizes) == (
        "cuda",
        ("gpu",),
        (128, 256, 512),
        (1, 2),
    )
    assert (other.title, other.match, other.models, other.like) == ("Another device", ("Thing 2",), ("one",), "thing")
    assert [size.workloads for size in other.profiles] == [("mail",), ("chat",), ("chat",)]  # a key at a time
    assert other.profile("full").profile_output_tokens == 65
    assert (thing.case_error, other.case_error) == (0.2, 0.10)  # left out by false
    assert (other.peak.flops_per_s, other.peak.memory_bytes, other.slos) == ({}, None, ())  # of each device alone


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (LIKE.replace('"thing"', '"thong"'), "like: no other hardware file is named 'thong'; known: amd-mi300x, cpu, "),
        (
            LIKE.replace('"thing"', '"thing-2"'),
            "like: no other hardware file is named 'thing-2'; known: amd-mi300x, cpu, ",
        ),
        (LIKE.replace('"thing"', '"nvidia-a100"'), "like: 'nvidia-a100' is itself like 'nvidia-h100'; want that one"),
        (LIKE.replace('"thing"', "2"), "like: no other hardware file is named '2'; known: amd-mi300x, cpu, "),
        (LIKE.replace("[models]", "[modles]"), "modles: unknown key, did you mean 'models'?"),
    ],
)
def test_a_file_that_is_like_none_is_named(text: str, words: str, tmp_path: Path) -> None:
    written(tmp_path, GOOD)
    with pytest.raises(HardwareFileError, match=re.escape(f"thing-2.toml: {words}")):
        load_hardware(written(tmp_path, text, "thing-2.toml"))


@pytest.mark.parametrize(
    ("device_name", "files"),
    [
        ("Thing", ["any", "thing"]),  # as much of the name
        ("Thing NVL", ["thing-nvl"]),
        ("Thing NVL 94GB", ["thing-nvl"]),
        ("Thing 94GB", ["copy", "thing"]),
        ("Think", ["wild"]),
        ("Thing MIG", ["wild"]),
    ],
)
def test_the_file_that_spells_out_most_of_a_name_describes_the_device(
    device_name: str, files: list[str], tmp_path: Path
) -> None:
    patterns = {
        "any": "Thing$",
        "copy": r"Thing(?= \d)",
        "thing": r"\bThing\b(?!.*MIG)",
        "thing-nvl": r"thing.+NVL",
        "wild": ".*",
    }
    for name, pattern in patterns.items():
        written(tmp_path, GOOD.replace('["Thing"]', f"['{pattern}']"), f"{name}.toml")
    specs = load_all([tmp_path])
    assert [name for name, spec in specs.items() if spec.matches(device_name)] == files
    assert specs["wild"].files_of(device_name) == tuple(files)
