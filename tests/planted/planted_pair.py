"""The partition suite on a pair of units whose times are worked out; $PLANTED names the fault of one of them."""

from __future__ import annotations

import os
import random

import fake_device
from extensions.pairs.partition.fake_pair import gpu_time_s, npu_time_s
from extensions.pairs.suites.partition.conftest import MODEL, SHAPES
from extensions.pairs.suites.partition.fake_units import FakeUnits

from pytest_npubench.extensions.pairs.partition import model_shapes
from pytest_npubench.extensions.pairs.partition.model_shapes import OperatorShape
from pytest_npubench.extensions.pairs.suites.partition import bench

SLOWER = {"static_unit_slower": (1.0, 1.05), "dynamic_unit_slower": (1.05, 1.0)}


def open_pair(*_: object, **__: object) -> FakeUnits:
    drawn = random.Random(f"{fake_device._count_engine()}/pair")
    of_gpu, of_npu = (
        factor * (1 + 0.003 * drawn.gauss(0.0, 1.0)) for factor in SLOWER.get(os.environ.get("PLANTED", ""), (1, 1))
    )
    return FakeUnits(
        gpu_s=lambda *size: of_gpu * gpu_time_s(*size),
        npu_s=lambda *size: of_npu * npu_time_s(*size),
        noise=0.002,
        wrong="npu_only" if os.environ.get("PLANTED") == "static_unit_wrong" else None,
    )


def install() -> None:
    shapes = (OperatorShape(name=name, rows=rows, cols=cols) for name, (rows, cols) in SHAPES.items())
    model_shapes.OPERATOR_SHAPES[MODEL] = tuple(shapes)
    bench.open_pair = open_pair
