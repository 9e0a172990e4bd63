"""Hooks by which a conftest adds what belongs to its own project. Each returns a sequence of its things.

What a distribution adds for every project comes in by entry points (core/registry.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_npubench.backends.protocol import Backend
    from pytest_npubench.engines.shapes import DecoderShape
    from pytest_npubench.workloads import Workload


def pytest_npubench_backends() -> Sequence[Backend]:
    """Backends that replace the shipped backends of their families, such as a stand-in for a device that is elsewhere.
    A distribution cannot do this: to an entry point a name of ours is taken."""
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
