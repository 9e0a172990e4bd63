"""The extras of pyproject.toml: those that are named exist, and none brings two CUDA releases side by side."""

from __future__ import annotations

import re
import sys
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
CUDA_OF_TORCH = {"2.6": 12, "2.9.1": 12, "2.10.0": 12, "2.11.0": 13, "2.12.0": 13, "2.13.0": 13}
"""CUDA releases of PyTorch's wheels on PyPI, from their Requires-Dist (nvidia-cudnn-cu12, nvidia-cudnn-cu13)."""


def requirements(extra: str, python: str) -> list[Requirement]:
    environment = {"python_version": python, "extra": extra}
    found = map(Requirement, EXTRAS[extra])
    return [one for one in found if one.marker is None or one.marker.evaluate(environment)]


def cuda_of_jax(extra: str) -> int:
    """The CUDA release of an extra of jax, by the plugin that jax's own metadata names for it."""
    plugins = {
        Requirement(text).name
        for text in metadata.requires("jax") or ()
        if re.search(rf"""extra == ["']{extra}["']""", text)
    }
    (release,) = (match[1] for name in plugins if (match := re.fullmatch(r"jax-cuda(\d+)-plugin", name)))
    return int(release)


@pytest.mark.parametrize("python", PYTHONS)
def test_cuda_brings_one_cuda_release(python: str) -> None:
    found = {one.name: one for one in requirements("cuda", python)}
    (jax_extra,) = found["jax"].extras
    allowed = {release for version, release in CUDA_OF_TORCH.items() if Version(version) in found["torch"].specifier}
    assert allowed == {cuda_of_jax(jax_extra)}


def test_each_package_is_asked_for_once_under_every_python() -> None:
    for extra in EXTRAS:
        for python in PYTHONS:
            names = [one.name for one in requirements(extra, python) if one.name != "pytest-npubench"]
            assert len(names) == len(set(names)), (extra, python)


def test_every_extra_that_is_named_exists() -> None:
    paths = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "pytest_npubench").rglob("*.py")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in paths)
    (others,) = re.findall(r"pip install 'pytest-npubench\[tpu\]' +# or (.+)", text)
    named = {name for names in re.findall(r"pytest-npubench\[([a-z,]+)\]", text) for name in names.split(",")}
    named |= set(re.findall(r"\[([a-z]+)\]", others))
    assert named <= EXTRAS.keys()
    assert {"tpu", "cuda", "cpu", "openvino"} <= named


def test_the_table_of_dependencies_has_each_with_its_smallest_version() -> None:
    lowest: dict[str, Version] = {}
    for one in map(Requirement, [*PROJECT["dependencies"], *(text for extra in EXTRAS.values() for text in extra)]):
        versions = [Version(part.version) for part in one.specifier if part.operator == ">="]
        if one.name != "pytest-npubench":
            lowest[one.name] = min([*versions, lowest.get(one.name, versions[0])])
    rows = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    table = dict(re.findall(r"^\| ([a-z][\w-]+) \| [^|]+ \| ([\d.]+) \|", rows, flags=re.MULTILINE))
    assert {name: Version(text) for name, text in table.items()} == lowest


@pytest.mark.parametrize("path", sorted((ROOT / "locks").glob("*.txt")), ids=lambda path: path.name)
def test_what_is_pinned_is_no_older_than_what_is_asked_for(path: Path) -> None:
    pinned = dict(re.findall(r"^([\w.-]+)==([\w.+!]+)", path.read_text(encoding="utf-8"), flags=re.MULTILINE))
    assert len(pinned) > 20
    for one in map(Requirement, [*PROJECT["dependencies"], *(text for extra in EXTRAS.values() for text in extra)]):
        if one.name in pinned and (one.marker is None or one.marker.evaluate({"python_version": "3.11", "extra": ""})):
            assert one.specifier.contains(pinned[one.name]), one
