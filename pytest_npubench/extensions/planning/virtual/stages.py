"""Seconds of each stage of a pipeline: layers dealt out over groups of devices, and what one group sends to the next.

    host      what an iteration takes without any layer: schedule, launch, send the tokens off
    stage     its layers, as the cost of the whole model has them; the last one projects onto the vocabulary too
    link      the hidden state of each row and the residual beside it, over the slowest link between two groups

Layers are dealt out as vLLM does: evenly, those left over to the stages before the last. Worked example: 62 layers on 4
stages are 15, 16, 16 and 15; 512 rows of 4,096 values in bf16 are 8.4 MB between two groups of one device, 0.2 ms of an
Ethernet link of 50 GB/s at 0.84 of its bandwidth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pytest_npubench.core.hardware import HardwareSpec
from pytest_npubench.engines.kv_capacity import dtype_bytes, stage_layers
from pytest_npubench.engines.shapes import DecoderShape
from pytest_npubench.extensions.planning.virtual.calibrated import CalibratedCost
from pytest_npubench.extensions.planning.virtual.cost import Attainable, link_per_s
from pytest_npubench.extensions.planning.virtual.step_cost import PassWork, StepCost, StepWork

VALUES_SENT = 2  # for each of the hidden values of a row: itself, and the residual
NOTHING = StepWork(passes=(), decode_rows=0, context_tokens=0, window_tokens=0, sampled_rows=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """host: of an iteration without any layer. costs, layers: of each stage, [first, stop). link_row_s: seconds that a
    row takes to the next stage, behind each stage but the last. expert_layers: of the layers before each layer, those
    with experts."""

    host: StepCost
    costs: Sequence[StepCost]
    layers: Sequence[tuple[int, int]]
    link_row_s: Sequence[float]
    expert_layers: Sequence[int]

    @classmethod
    def of(
        cls, cost: StepCost, shape: DecoderShape, spec: HardwareSpec, *, number: int, tensor_parallel: int, dtype: str
    ) -> Stages:
        """Of a cost that was calibrated, each stage reads its layers' part of the weights. Raises ConfigError for more
        stages than layers, and where the hardware file states no link."""
        row_bytes = VALUES_SENT * shape.hidden * dtype_bytes(dtype) / tensor_parallel
        reach = Attainable().interconnect
        layers = stage_layers(shape.num_layers, number)

        def of_layers(part: int) -> StepCost:
            if isinstance(cost, CalibratedCost):
                return replace(cost, weights_s=cost.weights_s * part / shape.num_layers)
            return cost

        return cls(
            host=of_layers(0),
            costs=[of_layers(stop - first) for first, stop in layers],
            layers=layers,
            link_row_s=[
                row_bytes / (reach * _slowest_link_per_s(spec, stage, tensor_parallel)) for stage in range(number - 1)
            ],
            expert_layers=[shape.expert_layers(0, stop)[1] for stop in range(shape.num_layers + 1)],
        )

    def seconds(self, work: StepWork) -> tuple[float, Sequence[tuple[float, float]]]:
        """The host's seconds of an iteration, and of each stage those of its layers and of the link behind it."""
        host_s = self.host.seconds(NOTHING)
        last = len(self.layers) - 1
        stages = []
        for index, (first, stop) in enumerate(self.layers):
            sampled = work.sampled_rows if index == last else 0
            part = work._replace(passes=self._passes(work, first, stop), sampled_rows=sampled)
            link_s = self.link_row_s[index] * _rows_out(work, stop) if index < last else 0.0
            stages.append((self.costs[index].seconds(part) - host_s, link_s))
        return host_s, stages

    def _passes(self, work: StepWork, first: int, stop: int) -> Sequence[PassWork]:
        """What of the passes runs in layers [first, stop): their activations by the layers with experts."""
        passes = []
        for start, end, prefill, activations in work.passes:
            low, high = max(start, first), min(end, stop)
            if low < high:
                whole = self.expert_layers[end] - self.expert_layers[start]
                upto = [
                    activations * (self.expert_layers[layer] - self.expert_layers[start]) // max(1, whole)
                    for layer in (low, high)
                ]
                passes.append(PassWork(low, high, prefill, upto[1] - upto[0]))
        return passes


def _rows_out(work: StepWork, layer: int) -> int:
    """Rows that go from the layer before this one to it."""
    through = [prefill for first, stop, prefill, _ in work.passes if first < layer <= stop]
    return sum(work.decode_rows + sum(row.num_tokens for row in prefill) for prefill in through)


def _slowest_link_per_s(spec: HardwareSpec, stage: int, tensor_parallel: int) -> float:
    """Bytes a second from a device of a stage to its peer of the next one: some peers may be of different nodes."""
    each = spec.network.devices_per_node if spec.network else (stage + 2) * tensor_parallel
    senders = range(stage * tensor_parallel, (stage + 1) * tensor_parallel)
    is_beyond = any(sender // each != (sender + tensor_parallel) // each for sender in senders)
    return link_per_s(spec, is_beyond_node=is_beyond)
