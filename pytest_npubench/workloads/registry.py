"""Workloads by name: the shipped ones, those registered by the user, and files by path.

Shipped names are known without loading anything; a workload is built when it is asked for.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npubench.errors import RegistryError, WorkloadError, did_you_mean
from pytest_npubench.workloads.published import PUBLISHED

if TYPE_CHECKING:
    from pytest_npubench.workloads.sampling import Workload

TRACE_SAMPLE_NAMES = ("azure-conv-sample",)

_registered: dict[str, Workload] = {}


def names() -> tuple[str, ...]:
    """Every name that `workload` knows: the shipped ones first, then the registered ones."""
    return (*(published.name for published in PUBLISHED), *TRACE_SAMPLE_NAMES, *_registered)


def register(workload: Workload) -> None:
    """Make a workload known by its name. Raises RegistryError for a name that is empty or already taken."""
    if not workload.name:
        raise RegistryError("a workload needs a name")
    if workload.name in names():
        raise RegistryError(f"a workload named {workload.name!r} already exists; names taken: {', '.join(names())}")
    _registered[workload.name] = workload


def workload(name_or_path: str | Path) -> Workload:
    """The workload of that name, or the trace in the file at that path (format found by itself, see `load`).

    Raises WorkloadError for an unknown name, listing the names and the nearest one, and for a file without a trace.
    """
    name = str(name_or_path)
    if isinstance(name_or_path, str) and name in names():
        return _registered[name] if name in _registered else _shipped(name)
    if isinstance(name_or_path, Path) or _exists(name):
        from pytest_npubench.workloads.loading import load  # csv and json only where a file is read

        return load(name_or_path)
    raise WorkloadError(_unknown(name))


def _shipped(name: str) -> Workload:
    if name in TRACE_SAMPLE_NAMES:
        from pytest_npubench.workloads.trace_samples import trace_sample

        return trace_sample(name)
    from pytest_npubench.workloads.rebuilt import rebuilt_workload  # numpy comes with it

    return rebuilt_workload(name)


def _exists(name: str) -> bool:
    try:
        return Path(name).exists()
    except (OSError, ValueError):  # a name too long for a file, or with a NUL in it
        return False


def _unknown(name: str) -> str:
    shown = name if len(name) <= 200 else name[:200] + "..."
    hint = did_you_mean(shown, names())
    return f"no workload is named {shown!r} and no such file exists; names: {', '.join(names())}{hint}"
