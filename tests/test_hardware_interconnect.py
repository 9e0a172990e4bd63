"""The optional interconnect figure of a hardware file: the shipped ones, every unit, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pytest_npubench.cli.hardware import describe
from pytest_npubench.core.hardware_reader import default_directory
from pytest_npubench.errors import HardwareFileError
from pytest_npubench.suites.hardware_files import load_all, load_hardware

SPECS = load_all([default_directory()])
# B/s of one chip in one direction, half of what the makers print for both: 900, 900, 600, 400, 800, 1200 and 1200 GB/s;
# of the v4, six links of 50 GB/s; PCIe has 64 GB/s for both in its fourth generation, and 128 in its fifth
PUBLISHED = {
    "nvidia-h100": 450e9,
    "nvidia-h200": 450e9,
    "nvidia-a100": 300e9,
    "amd-mi300x": 448e9,
    "nvidia-b200": 900e9,
    "nvidia-b300": 900e9,
    "nvidia-gb200": 900e9,
    "nvidia-h100-nvl": 300e9,
    "nvidia-h100-pcie": 300e9,
    "nvidia-h200-nvl": 450e9,
    "nvidia-l4": 32e9,
    "nvidia-l40s": 32e9,
    "nvidia-a10g": 32e9,
    "nvidia-rtx-4090": 32e9,
    "nvidia-rtx-5090": 64e9,
    "nvidia-rtx-pro-6000": 64e9,
    "tpu-v4": 300e9,
    "tpu-v5e": 200e9,
    "tpu-v6e": 400e9,
    "tpu-v5p": 600e9,
    "tpu-v7x": 600e9,
}


def written(directory: Path, *edits: tuple[str, str]) -> Path:
    """A copy of the H100's file with each first text replaced by the second."""
    text = (default_directory() / "nvidia-h100.toml").read_text(encoding="utf-8")
    for old, new in edits:
        assert old in text
        text = text.replace(old, new, 1)
    path = directory / "thing.toml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("name", SPECS)
def test_the_shipped_figures_are_the_published_ones_in_one_direction(name: str) -> None:
    figure = SPECS[name].peak.interconnect_bandwidth_bytes_per_s
    assert (figure.value if figure else None) == PUBLISHED.get(name)
    if figure:
        assert figure.unit == "B/s"
        assert "one direction" in figure.source
        assert re.search(r"; https://\S+$", figure.source)


@pytest.mark.parametrize(("unit", "factor"), [("B/s", 1.0), ("GB/s", 1e9), ("TB/s", 1e12)])
def test_each_unit_becomes_bytes_per_second(unit: str, factor: float, tmp_path: Path) -> None:
    spec = load_hardware(written(tmp_path, ('value = 450, unit = "GB/s"', f'value = 450, unit = "{unit}"')))
    figure = spec.peak.interconnect_bandwidth_bytes_per_s
    assert figure is not None
    assert figure.value == 450 * factor


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (("value = 450,", "value = 0,"), "interconnect_bandwidth_bytes_per_s.value: want a finite number above 0"),
        (
            ('450, unit = "GB/s"', '450, unit = "Gb/s"'),
            "interconnect_bandwidth_bytes_per_s.unit: want one of B/s, GB/s",
        ),
        (("value = 450, ", ""), "interconnect_bandwidth_bytes_per_s.value: missing"),
        (
            ("interconnect_bandwidth_bytes_per_s =", "interconnect ="),
            "peak.interconnect: unknown key; allowed: source, flops_per_s, memory_bandwidth_bytes_per_s",
        ),
    ],
)
def test_a_wrong_figure_is_named_with_its_key(edit: tuple[str, str], words: str, tmp_path: Path) -> None:
    with pytest.raises(HardwareFileError, match=re.escape(words)):
        load_hardware(written(tmp_path, edit))


def test_the_command_line_shows_it_with_its_source() -> None:
    lines = describe(SPECS["nvidia-a100"])
    place = next(index for index, line in enumerate(lines) if "interconnect" in line)
    assert "300 GB/s" in lines[place]
    assert "600 GB/s in both" in lines[place + 1]
