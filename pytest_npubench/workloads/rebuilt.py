"""Workloads rebuilt from published statistics: two quantile curves, one for inputs and one for outputs.

The lengths are not the authors' data. Their correlation is not published either, so inputs and outputs are drawn
independently of each other. The knots were fitted once (see `fitting`) and are shipped; to fit them again:

    python benchmarks/workload_table.py refit > knots.json     (then move it to workloads/data/rebuilt_knots.json)

Worked example: rebuilt_workload("lens-sharegpt") draws an input of 23 tokens at uniform 0.5 and 403 at 0.9, as
published.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import resources

import numpy as np
import numpy.typing as npt

from pytest_npubench.workloads.published import PUBLISHED, PublishedWorkload
from pytest_npubench.workloads.quantiles import QuantileCurve
from pytest_npubench.workloads.sampling import Workload

INDEPENDENT = "rebuilt from published statistics; input and output lengths are drawn independently"


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuiltWorkload(Workload):
    """Input and output lengths from two curves, independent of each other."""

    input: QuantileCurve
    output: QuantileCurve

    def draw(self, uniforms: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        return self.input.lengths(uniforms[:, 0]), self.output.lengths(uniforms[:, 1])


def rebuilt_workload(name: str) -> RebuiltWorkload:
    """Returns the shipped workload of one name in PUBLISHED."""
    published = next(row for row in PUBLISHED if row.name == name)
    text = resources.files("pytest_npubench.workloads").joinpath("data/rebuilt_knots.json").read_text(encoding="utf-8")
    knots = json.loads(text)["workloads"][name]
    return from_curves(
        published, QuantileCurve(knots=tuple(knots["input"])), QuantileCurve(knots=tuple(knots["output"]))
    )


def from_curves(published: PublishedWorkload, inputs: QuantileCurve, outputs: QuantileCurve) -> RebuiltWorkload:
    """Returns a workload with what the published row says about itself and these two curves."""
    return RebuiltWorkload(
        name=published.name,
        kind="rebuilt",
        source=published.source,
        note=f"{published.note}; {INDEPENDENT}",
        max_total_tokens=published.max_total_tokens,
        input=inputs,
        output=outputs,
    )
