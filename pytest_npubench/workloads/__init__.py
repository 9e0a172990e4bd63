"""Request length distributions: rebuilt from published statistics, shipped trace samples, and loaders for user files.

Shipped names are known without loading anything: `names()`, `workload()` and `register()` import no numpy until a
workload is really asked for; the rest of the public names below are imported on first use.

Worked example: workload("lens-sharegpt").sample(100, seed=7, max_total_tokens=2048).requests holds 100 requests, none
above 2,048 tokens in all.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npubench.errors import RegistryError, WorkloadError, did_you_mean
from pytest_npubench.workloads.published import PUBLISHED

if TYPE_CHECKING:
    from pytest_npubench.workloads.fitting import fit
    from pytest_npubench.workloads.loading import FORMATS, load
    from pytest_npubench.workloads.published import PublishedLengths
    from pytest_npubench.workloads.quantiles import QuantileCurve
    from pytest_npubench.workloads.reading import TimeUnit
    from pytest_npubench.workloads.rebuilt import RebuiltWorkload
    from pytest_npubench.workloads.sampling import LengthSample, Workload
    from pytest_npubench.workloads.trace import TraceWorkload

__all__ = [
    "FORMATS",
    "LengthSample",
    "PublishedLengths",
    "QuantileCurve",
    "RebuiltWorkload",
    "TraceWorkload",
    "Workload",
    "fit",
    "load",
    "names",
    "register",
    "workload",
]
_MODULE_OF = {
    "FORMATS": "loading",
    "LengthSample": "sampling",
    "PublishedLengths": "published",
    "QuantileCurve": "quantiles",
    "RebuiltWorkload": "rebuilt",
    "TraceWorkload": "trace",
    "Workload": "sampling",
    "fit": "fitting",
    "load": "loading",
}
TRACE_SAMPLE_NAMES = ("azure-conv-sample",)
ANY_UNIT: TimeUnit = "s"
"""Of a trace's stamps, where its lengths alone are wanted."""
_registered: dict[str, Workload] = {}


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)


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


def workload(
    name_or_path: str | Path, *, time_unit: TimeUnit | None = None, block_tokens: int | None = None
) -> Workload:
    """Returns the workload of that name, or the trace in the file at that path (format found by itself, see `load`).

    Raises WorkloadError for an unknown name, listing the names and the nearest one, and for a file without a trace.
    """
    name = str(name_or_path)
    if isinstance(name_or_path, str) and name in names():
        return _registered[name] if name in _registered else _shipped(name)
    if isinstance(name_or_path, Path) or _exists(name):
        from pytest_npubench.workloads.loading import load  # csv and json only where a file is read

        return load(name_or_path, time_unit=time_unit, block_tokens=block_tokens)
    raise WorkloadError(_unknown(name))


def _shipped(name: str) -> Workload:
    if name in TRACE_SAMPLE_NAMES:
        from pytest_npubench.workloads.loading import trace_sample

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
