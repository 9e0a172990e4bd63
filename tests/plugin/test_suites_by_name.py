"""Suites that run only by name: the marker in -m asks for them, and so does the path of their folder or a file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BY_NAME = "suites/compiled/"


def collected(*arguments: str) -> list[str]:
    """The node ids of a run in the checkout."""
    command = [sys.executable, "-m", "pytest", *arguments, "--collect-only", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    return [line for line in done.stdout.splitlines() if "::" in line]


@pytest.mark.parametrize("arguments", [("suites",), ("suites", "-m", "tpu"), ("suites", "-k", "bucket128")])
def test_a_run_that_does_not_name_them_has_none_of_their_cases(arguments: tuple[str, ...]) -> None:
    nodes = collected(*arguments)
    assert any(node.startswith("suites/buckets/") for node in nodes)
    assert not any(node.startswith((BY_NAME, "suites/graphs/")) for node in nodes)


@pytest.mark.parametrize(
    "arguments",
    [("suites", "-m", "compiled and tpu"), ("suites/compiled", "-m", "tpu"), ("suites/compiled/test_binaries.py",)],
)
def test_a_run_that_names_them_has_their_cases(arguments: tuple[str, ...]) -> None:
    nodes = collected(*arguments)
    assert f"{BY_NAME}test_binaries.py::test_profile[tpu-v5e-llama-3.2-1b-b8-bucket128]" in nodes
    assert all(node.startswith(BY_NAME) for node in nodes)


def test_a_test_without_a_suite_s_marker_is_of_the_suite_that_needs_no_name() -> None:
    """Three suites have the kind "profile"."""
    from pytest_npubench.suites import case_kind

    assert case_kind("profile").suite == "buckets"
    assert {case_kind("profile", {name}).suite for name in ("compiled", "graphs")} == {"compiled", "graphs"}
