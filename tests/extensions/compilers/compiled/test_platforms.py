"""What XLA is told of a GPU, against NVIDIA's own figures of it and against the file's."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from pytest_npubench.core.hardware import HardwareSpec
from pytest_npubench.core.hardware_reader import default_directory
from pytest_npubench.engines import engine
from pytest_npubench.errors import ConfigError
from pytest_npubench.extensions.compilers.compiled.platforms import described
from pytest_npubench.suites.hardware_files import load_all

SPECS = load_all([default_directory()])
GPUS = ("nvidia-a100", "nvidia-h100", "nvidia-h200")


def numbers(spec: HardwareSpec) -> dict[str, float]:
    return {name: float(value) for name, value in re.findall(r"(\w+): ([\d.]+)", described(spec))}


@pytest.mark.parametrize("name", GPUS)
def test_the_peaks_follow_from_what_is_told(name: str) -> None:
    """A lane multiplies and adds once a cycle: its cores, lanes and clock are the peak in fp32."""
    spec, told = SPECS[name], numbers(SPECS[name])
    fp32 = 2 * told["core_count"] * told["fpus_per_core"] * told["clock_rate_ghz"] * 1e9
    assert fp32 == pytest.approx(spec.peak.flops_per_s["fp32"].value, rel=0.01)
    assert spec.peak.memory_bytes is not None
    assert told["device_memory_size"] == spec.peak.memory_bytes.value
    assert (told["major"], told["minor"]) == ((8, 0) if name == "nvidia-a100" else (9, 0))
    kept_back = 1024  # by the system, of what a block could have
    assert told["shared_memory_per_core"] - told["shared_memory_per_block_optin"] == kept_back
    assert "e+" not in described(spec)  # XLA reads no 1e+09 as a whole number


def test_others_are_known_by_their_topology() -> None:
    assert described(SPECS["tpu-v5e"]) == ""


@pytest.mark.parametrize(("what", "said"), [("gpu", "[compiler.gpu]"), ("memory", "[peak] with memory_bytes")])
def test_a_file_that_does_not_describe_its_gpu_has_no_devices(what: str, said: str) -> None:
    spec: Any = SPECS["nvidia-h100"]
    if what == "gpu":
        bare = replace(spec, compiler=replace(spec.compiler, gpu=None))
    else:
        bare = replace(spec, peak=replace(spec.peak, memory_bytes=None))
    with pytest.raises(ConfigError, match=re.escape(said)):
        described(bare)
    probe = engine("compiled").probe(bare)
    assert probe is not None
    assert said in probe.reason
