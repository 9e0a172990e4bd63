"""Seconds of an iteration of a decoder whose layers differ: each kind of layer costs what cost.py says of it.

Worked example: of DeepSeek-V3's 61 layers the first 3 are dense and the others have experts; a pass through layers 0 to
10 is one through 3 of the first kind and 7 of the second.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, ClassVar, NamedTuple

from pytest_npubench.core.hardware import HardwareSpec
from pytest_npubench.engines.shapes import DecoderShape
from pytest_npubench.extensions.planning.virtual.cost import CostModel, cost_model
from pytest_npubench.extensions.planning.virtual.step_cost import StepWork


class LayerKind(NamedTuple):
    """What a layer of this kind costs, and how many of them are before each layer."""

    cost: CostModel
    before: Sequence[int]

    @property
    def number(self) -> int:
        return self.before[-1]


def layer_kinds(shape: DecoderShape, spec: HardwareSpec, **how: Any) -> list[LayerKind]:
    """The kinds of a shape's layers; how: as cost_model has it. Raises as cost_model."""
    layers = shape.all_layers
    if not shape.layers:
        return [LayerKind(cost_model(shape, spec, **how), range(len(layers) + 1))]
    return [
        LayerKind(cost_model(shape, spec, **how, layer=kind), [0, *accumulate(int(layer == kind) for layer in layers)])
        for kind in dict.fromkeys(layers)
    ]


class MixedCost:
    """A step_cost.StepCost. Activated experts are shared out over the layers that have some."""

    is_affine: ClassVar[bool] = True

    def __init__(self, kinds: Sequence[LayerKind]) -> None:
        self._kinds = kinds

    def seconds(self, work: StepWork) -> float:
        _, rows, context, window, num_sampled, expert_rows, _, _ = work
        whole = self._kinds[0].cost
        seconds = whole.iteration_s + whole.sampling_s(num_sampled)
        for first, stop, prefill, activations in work.passes:
            numbers = [kind.before[stop] - kind.before[first] for kind in self._kinds]
            pairs = list(zip(self._kinds, numbers, strict=True))
            with_experts = sum(number for kind, number in pairs if kind.cost.expert_read_s)
            for kind, number in pairs:
                if number:
                    cost, windowed = kind.cost, 0 if kind.cost.window is None else number
                    activated = activations * number / with_experts if cost.expert_read_s else 0
                    layer_rows = rows, context, window, prefill, activated, expert_rows
                    seconds += sum(cost.layers_s(number, windowed, *layer_rows))
        return seconds


def step_cost(shape: DecoderShape, spec: HardwareSpec, **how: Any) -> CostModel | MixedCost:
    """What an iteration of a model costs at the peaks; how: as cost_model has it. Raises as cost_model."""
    kinds = layer_kinds(shape, spec, **how)
    return MixedCost(kinds) if shape.layers else kinds[0].cost
