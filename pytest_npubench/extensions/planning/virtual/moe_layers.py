"""Seconds of an iteration with measured MoE layers in the roofline's place; the rest of it is cost.py's.

A pass takes, for each of its layers, what a MoE layer took on the device for as many rows as run through it, prefill
and decode together, linear between the numbers of rows that were measured and in proportion beyond the most. Which
experts the rows chose was the measurement's matter: balanced, or a few preferred (power-law). The table is
moe_layers.toml, whose head says where it is from.

Worked number: one layer of qwen3-30b-a3b on one H100 takes 420 us for 16 rows, 480 us for 512 and 1,489 us for 8,192:
once all experts are read, more rows cost little, which is what layered prefill lives by.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any

from pytest_npubench.core.documents import toml_table
from pytest_npubench.core.hardware import HardwareSpec
from pytest_npubench.engines.kv_capacity import dtype_bytes
from pytest_npubench.engines.shapes import DecoderShape
from pytest_npubench.errors import ConfigError, did_you_mean
from pytest_npubench.extensions.planning.virtual.cost import (
    Attainable,
    CostModel,
    cost_model,
    moved_expert_values_per_row,
)
from pytest_npubench.extensions.planning.virtual.step_cost import StepWork

DTYPE = "bf16"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredMoeCost:
    """A StepCost. rest: the roofline of all but the experts; seconds of a layer by its rows, ascending from 1."""

    rest: CostModel
    rows: Sequence[int]
    layer_seconds: Sequence[float]

    def seconds(self, work: StepWork) -> float:
        return self.rest.seconds(work) + sum(
            (one.stop - one.first) * self.layer_s(work.decode_rows + sum(row.num_tokens for row in one.prefill))
            for one in work.passes
        )

    def layer_s(self, num_rows: int) -> float:
        """Of one layer through which so many rows run."""
        if num_rows <= 0:
            return 0.0
        index = bisect_left(self.rows, num_rows)
        if index == len(self.rows):
            return self.layer_seconds[-1] * num_rows / self.rows[-1]
        if self.rows[index] == num_rows:
            return self.layer_seconds[index]
        part = (num_rows - self.rows[index - 1]) / (self.rows[index] - self.rows[index - 1])
        return (1 - part) * self.layer_seconds[index - 1] + part * self.layer_seconds[index]


def measured_moe_cost(
    shape: DecoderShape,
    spec: HardwareSpec,
    *,
    tensor_parallel: int,
    dtype: str,
    routing: str,
    kv_dtype: str | None = None,
) -> MeasuredMoeCost:
    """Raises ConfigError for a device, a model, devices or a type that the table does not have, with those it has, and
    as cost_model."""
    if dtype != DTYPE:
        raise ConfigError(f"measured MoE layers are in {DTYPE}, not {dtype}")
    layer = _measured_layer(shape.name, spec.name, tensor_parallel, routing)
    whole = cost_model(
        shape,
        spec,
        tensor_parallel=tensor_parallel,
        dtype=dtype,
        kv_dtype=kv_dtype,
        attainable=replace(Attainable(), expert_layer_s=0.0),
    )
    moved = moved_expert_values_per_row(shape, tensor_parallel)
    memory = spec.peak.memory_bandwidth_bytes_per_s
    assert memory is not None  # cost_model has asked for it
    moved_s = moved * dtype_bytes(dtype) / (memory.value / spec.devices_per_chip * Attainable().memory)
    rest = replace(
        whole, expert_read_s=0.0, expert_row_s=0.0, expert_tile_s=0.0, moved_row_s=whole.moved_row_s - moved_s
    )
    return MeasuredMoeCost(rest=rest, rows=layer["tokens"], layer_seconds=[us * 1e-6 for us in layer["us"]])


def _measured_layer(model: str, device: str, tensor_parallel: int, routing: str) -> dict[str, Any]:
    layers = table()
    wanted = {"model": model, "device": device, "tensor_parallel": tensor_parallel, "routing": routing}
    for key, value in wanted.items():
        values = list(dict.fromkeys(str(layer[key]) for layer in layers))
        layers = [layer for layer in layers if layer[key] == value]
        if not layers:
            words = key.replace("_", " ")
            there = f"{', '.join(values)}{did_you_mean(str(value), values)}"
            raise ConfigError(f"no measured MoE layers of {words} {value}; there are {there}")
    (layer,) = layers
    return layer


def table() -> list[dict[str, Any]]:
    """An entry for each device, model, number of tensor-parallel devices and routing: `tokens`, and `us` of a layer."""
    text = resources.files(__package__).joinpath("moe_layers.toml").read_text(encoding="utf-8")
    layers: list[dict[str, Any]] = toml_table(text)["layers"]
    return layers
