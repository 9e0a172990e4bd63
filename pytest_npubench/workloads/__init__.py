"""Request length distributions: rebuilt from published statistics, shipped trace samples, and loaders for user files.

`names()`, `workload()` and `register()` import no numpy until a workload is really asked for; the rest of the public
names below are imported on first use.

Worked example: workload("lens-sharegpt").sample(100, seed=7, max_total_tokens=2048).requests holds 100 requests, none
above 2,048 tokens in all.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from pytest_npubench.workloads.registry import names, register, workload

if TYPE_CHECKING:
    from pytest_npubench.workloads.fitting import fit
    from pytest_npubench.workloads.loading import FORMATS, load
    from pytest_npubench.workloads.published import PublishedLengths
    from pytest_npubench.workloads.quantiles import QuantileCurve
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


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
