"""A whole decoder layer on the pair: as the solver splits it, and on each unit alone, all in one visit."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from pytest_npubench.errors import MeasurementError
from pytest_npubench.partition.layer import DecoderLayer, LayerShape
from pytest_npubench.partition.matmul import Matmul, Split
from pytest_npubench.partition.model_shapes import operators
from pytest_npubench.partition.options import SplitOptions
from pytest_npubench.partition.regret import MAX_RELATIVE_ERROR
from pytest_npubench.partition.strategies import strategy
from pytest_npubench.partition.unit import UnitPair
from pytest_npubench.suites.partition.points import LayerPoint

OPERATORS = ("attention_qkv", "attention_output", "ffn_gate_up", "ffn_down")
NUM_KV_HEADS = 8  # of every model that there are weight shapes of
NUM_RUNS = 5


def layer_shape(model: str) -> LayerShape:
    """Raises RegistryError on an unknown model."""
    shapes = {shape.name: shape for shape in operators(model)}
    hidden, head_dim = shapes["attention_q"].cols, shapes["attention_k"].rows // NUM_KV_HEADS
    return LayerShape(
        hidden=hidden,
        num_heads=hidden // head_dim,
        num_kv_heads=NUM_KV_HEADS,
        head_dim=head_dim,
        intermediate=shapes["ffn_down"].cols,
    )


def layer_matmuls(model: str, tokens: int) -> tuple[Matmul, ...]:
    """What a solver has to decide for a layer."""
    return tuple(layer_shape(model).matmul(name, tokens) for name in OPERATORS)


def measure_layer(
    pair: UnitPair, model: str, point: LayerPoint, decide: Callable[[Matmul], Split], options: SplitOptions
) -> Mapping[str, Sequence[float]]:
    """Seconds of a pass by arm, the median of a few. Raises MeasurementError where an output differs from the dynamic
    unit's alone."""
    shape = layer_shape(model)
    matmuls = {name: shape.matmul(name, point.tokens) for name in OPERATORS}
    arms = {
        "decided": {name: decide(matmul) for name, matmul in matmuls.items()},
        "npu": {name: next(iter(strategy("npu_only").splits(matmul, options))) for name, matmul in matmuls.items()},
    }
    found: dict[str, Sequence[float]] = {}
    for arm, splits in arms.items():
        layer = DecoderLayer(pair, shape, splits=splits, num_tokens=point.tokens, context=point.context)
        gpu_s = [layer.run_alone().total_s for _ in range(NUM_RUNS)]
        reference = layer.output().copy()
        runs = [layer.run() for _ in range(NUM_RUNS)]
        error = float(np.abs(layer.output() - reference).max() / np.abs(reference).max())
        if not error <= MAX_RELATIVE_ERROR:
            raise MeasurementError(
                f"{point.name}, {arm}: output off by {error:.2g}; want at most {MAX_RELATIVE_ERROR:g}"
            )
        found[f"{point.name}/{arm}_s"] = (statistics.median(run.total_s for run in runs),)
        found[f"{point.name}/{arm}_sync_s"] = (statistics.median(run.sync_s for run in runs),)
        found[f"{point.name}/gpu_beside_{arm}_s"] = (statistics.median(gpu_s),)
    return found
