"""Hooks for people who add to the suites without touching this package. Each returns a sequence of its things."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_npubench.backends.protocol import Backend
    from pytest_npubench.engines.shapes import DecoderShape
    from pytest_npubench.workloads import Workload


def pytest_npubench_backends() -> Sequence[Backend]:
    """Backends that replace the shipped backends of their families."""
    return ()


def pytest_npubench_hardware_directories() -> Sequence[Path]:
    """Folders of hardware files beside the shipped one."""
    return ()


def pytest_npubench_shapes() -> Sequence[DecoderShape]:
    """Decoder shapes, dense ones and those with experts, that hardware files may name."""
    return ()


def pytest_npubench_workloads() -> Sequence[Workload]:
    """Workloads that hardware files may name."""
    return ()


def pytest_npubench_partition_strategies() -> Sequence[Any]:
    """Ways to split an operator between two units; a solver chooses from all that are no baselines."""
    return ()
