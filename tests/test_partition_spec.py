"""[partition] and [offload] of a hardware file: what is read, and every error with its place and what is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_npubench.errors import HardwareFileError
from pytest_npubench.hardware import default_directory, load_hardware
from pytest_npubench.partition_spec import OFFLOAD_EXPERIMENTS, size_of

CPU = (default_directory() / "cpu.toml").read_text(encoding="utf-8").partition("[serving]")[0]
PARTITION = """
[partition]
pair = "host"
models = ["llama-8b-div4", "llama-3b-div4"]
standard_sizes = [32, 128]
tile = 32
decode_shares = [0.25, 0.5]
prefill_shares = [0.2]

[partition.profile.quick]
models = ["llama-3b-div4"]
experiments = ["solver"]
lengths = [1, 40]
min_rounds = 2
max_rounds = 3
budget_s = 5
"""
OFFLOAD = """
[offload]
pair = "host"

[offload.profile.nightly]
min_rounds = 2
max_rounds = 3
budget_s = 5
"""


def _load(tmp_path: Path, text: str):
    path = tmp_path / "mine.toml"
    path.write_text(CPU + text, encoding="utf-8")
    return load_hardware(path)


def test_what_is_read(tmp_path: Path) -> None:
    spec = _load(tmp_path, PARTITION + OFFLOAD)
    assert spec.partition is not None
    assert (spec.partition.standard_sizes, spec.partition.decode_shares) == ((32, 128), (0.25, 0.5))
    quick = size_of(spec.partition, "quick")
    assert quick is not None
    assert (quick.models, quick.experiments, quick.lengths) == (("llama-3b-div4",), ("solver",), (1, 40))
    assert size_of(spec.partition, "nightly") is None
    assert spec.offload is not None
    nightly = size_of(spec.offload, "nightly")
    assert nightly is not None
    assert nightly.experiments == OFFLOAD_EXPERIMENTS


def test_a_file_without_them_has_none(tmp_path: Path) -> None:
    spec = _load(tmp_path, "")
    assert (spec.partition, spec.offload) == (None, None)


@pytest.mark.parametrize(
    ("old", "new", "where", "what"),
    [
        ('pair = "host"', 'pear = "host"', "partition.pear", "did you mean 'pair'"),
        ("[0.25, 0.5]", "[0.0, 0.5]", "partition.decode_shares", "above 0 and below 1"),
        ("[0.25, 0.5]", "[0.5, 1.0]", "partition.decode_shares", "above 0 and below 1"),
        ("[0.25, 0.5]", "[0.5, 0.25]", "partition.decode_shares", "larger than the one before"),
        ("[0.25, 0.5]", '["1/2"]', "partition.decode_shares", "numbers"),
        ("[32, 128]", "[]", "partition.standard_sizes", "one or more whole numbers"),
        ("tile = 32", "tile = 0", "partition.tile", "at least 1"),
        ('["solver"]', '["solve"]', "partition.profile.quick.experiments", "unknown solve; allowed: gpu_linear"),
        ('models = ["llama-3b-div4"]', 'models = ["other"]', "partition.profile.quick.models", "unknown other"),
        ("lengths = [1, 40]", "lengths = [40, 1]", "partition.profile.quick.lengths", "40 is followed by 1"),
        ("min_rounds = 2", "min_rounds = 1", "partition.profile.quick.min_rounds", "at least 2"),
        ("budget_s = 5", "budget_s = 0", "partition.profile.quick.budget_s", "above 0"),
    ],
)
def test_errors_say_where_and_what_is_allowed(tmp_path: Path, old: str, new: str, where: str, what: str) -> None:
    assert old in PARTITION
    with pytest.raises(HardwareFileError) as caught:
        _load(tmp_path, PARTITION.replace(old, new))
    assert "mine.toml" in str(caught.value)
    assert where in str(caught.value)
    assert what in str(caught.value)


def test_offload_takes_no_lengths(tmp_path: Path) -> None:
    with pytest.raises(HardwareFileError, match=r"offload\.profile\.nightly\.lengths: unknown key"):
        _load(tmp_path, OFFLOAD + "lengths = [1]\n")
