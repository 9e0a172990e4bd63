"""A decoder layer's steps in the process of a pair. Shapes: T tokens, H hidden, C context, D head_dim.

Every split operator reads an activation [T, cols] and leaves [rows, T]; the steps between, in torch on the dynamic
unit, read one and write the next. On a host both are in the arena, on a device that both units share they stay there.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from pytest_npubench.core.clock import perf_counter
from pytest_npubench.errors import PartitionError
from pytest_npubench.extensions.pairs.partition.layer import OUTPUT, STAGES, LayerShape, LayerTiming, stages_of
from pytest_npubench.extensions.pairs.partition.matmul import GPU, Split, alone
from pytest_npubench.extensions.pairs.partition.units.operands import activation_length
from pytest_npubench.extensions.pairs.partition.units.signals import FLAG, check_mechanism
from pytest_npubench.extensions.pairs.partition.units.split_units import Prepared, SplitUnits
from pytest_npubench.extensions.pairs.partition.units.torch_unit import tensor_of

_NORM_EPSILON = 1e-5


class LayerUnits(SplitUnits):
    """Units that run a decoder layer too, one at a time."""

    _layer: LayerRun | None = None

    def open_layer(
        self, shape: LayerShape, num_tokens: int, context: int, splits: Mapping[str, Split]
    ) -> dict[tuple[int, int, int], float]:
        self._layer = LayerRun(self, shape, num_tokens, context, splits)
        return self._layer.compiled

    def run_layer(self, mechanism: str | None = None) -> LayerTiming:
        check_mechanism(mechanism or FLAG, self._mechanisms)
        return self._opened_layer().run(mechanism or FLAG)

    def run_layer_alone(self) -> LayerTiming:
        """Runs the same layer on the dynamic unit alone."""
        return self._opened_layer().run_alone()

    def layer_names(self) -> dict[str, str]:
        return self._opened_layer().names

    def layer_output(self) -> str:
        """Returns the name of the last pass's output, which is in the arena from here on."""
        return self._opened_layer().delivered()

    def tensor(self, name: str) -> Any:
        """Returns the array of this name as the tensor that steps and operators share. Raises PartitionError where the
        units share no memory."""
        if self._gpu.mechanisms:
            raise PartitionError(f"a decoder layer wants units that share memory; {self._gpu.name} and another do not")
        return tensor_of(self.torch, self.store.view(name))

    def steps(self) -> AbstractContextManager[None]:
        """A context for the steps between operators."""
        return nullcontext()

    def finish(self) -> None:
        """Waits for the steps."""

    def unload(self) -> None:
        super().unload()
        self._layer = None

    def _opened_layer(self) -> LayerRun:
        if self._layer is None:
            raise PartitionError("no decoder layer was opened on this pair, or it was unloaded since")
        return self._layer


class LayerRun:
    def __init__(
        self, units: LayerUnits, shape: LayerShape, num_tokens: int, context: int, splits: Mapping[str, Split]
    ) -> None:
        self._units, self._torch = units, units.torch
        self._shape, self._tokens, self._context = shape, num_tokens, context
        self.compiled: dict[tuple[int, int, int], float] = {}
        self._stages = stages_of(splits)
        self._matmuls = {name: shape.matmul(name, num_tokens) for stage in self._stages for name in stage}
        whole = {name: alone(matmul, GPU) for name, matmul in self._matmuls.items()}
        chosen = {name: splits.get(name, whole[name]) for name in self._matmuls}
        self._load(whole, chosen)
        self._split_work = tuple(self._stage_work(stage, chosen) for stage in self._stages)
        self._alone_work = tuple(self._stage_work(stage, whole) for stage in self._stages)
        self._inputs = tuple(self._input(stage[0]) for stage in self._stages)
        self._outputs = self._read_outputs()
        self._fill()

    def run(self, mechanism: str) -> LayerTiming:
        return self._pass(self._split_work, mechanism)

    def run_alone(self) -> LayerTiming:
        return self._pass(self._alone_work, FLAG)

    def _pass(self, works: tuple[Prepared, ...], mechanism: str) -> LayerTiming:
        began_s = perf_counter()
        with self._units.steps():
            self._norm(self._hidden, self._norm_weights[0], self._inputs[0])
        stages = [self._units.run_prepared(works[0], mechanism)]
        with self._units.steps():
            self._attention(self._inputs[1])
        stages.append(self._units.run_prepared(works[1], mechanism))
        with self._units.steps():
            hidden = self._hidden + self._outputs["attention_output"].T
            self._norm(hidden, self._norm_weights[1], self._inputs[2])
        stages.append(self._units.run_prepared(works[2], mechanism))
        with self._units.steps():
            gate = self._torch.nn.functional.silu(self._outputs["ffn_gate"])
            self._inputs[3].copy_((gate * self._outputs["ffn_up"]).T)
        stages.append(self._units.run_prepared(works[3], mechanism))
        with self._units.steps():
            self._torch.add(hidden, self._outputs["ffn_down"].T, out=self._output)
        self._units.finish()
        return LayerTiming(total_s=perf_counter() - began_s, stages=tuple(stages))

    def _norm(self, hidden: Any, weight: Any, into: Any) -> None:
        """hidden [T, H] -> into [T, H]"""
        scale = self._torch.rsqrt(hidden.pow(2).mean(dim=1, keepdim=True) + _NORM_EPSILON)
        self._torch.mul(hidden * scale, weight, out=into)

    def _attention(self, into: Any) -> None:
        """Outputs of q, k, v -> into [T, heads * D]; the new keys and values go behind the context."""
        query = self._rotated(self._heads("attention_q"))
        self._keys[:, self._context :] = self._rotated(self._heads("attention_k"))
        self._values[:, self._context :] = self._heads("attention_v")
        attended = self._torch.nn.functional.scaled_dot_product_attention(
            query[None], self._keys[None], self._values[None], attn_mask=self._mask, enable_gqa=True
        )
        into.view(self._tokens, -1, self._shape.head_dim).copy_(attended[0].transpose(0, 1))

    def _heads(self, name: str) -> Any:
        """Output [heads * D, T] as [heads, T, D]"""
        return self._outputs[name].view(-1, self._shape.head_dim, self._tokens).transpose(1, 2)

    def _rotated(self, heads: Any) -> Any:
        """Rotary position embedding in halves: [heads, T, D] -> [heads, T, D]"""
        first, second = heads.chunk(2, dim=-1)
        cos, sin = self._rope
        return self._torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)

    def _load(self, whole: Mapping[str, Split], chosen: Mapping[str, Split]) -> None:
        for stage in self._stages:
            length = max(activation_length(self._matmuls[name], (chosen[name],)) for name in stage)
            for name in stage:
                operands = self._units.store.make(self._matmuls[name], length, source=f"layer.{stage[0]}")
                for array in (operands.activation, operands.output):
                    self._units.tensor(array)  # before the operators that are to read and write it
                compiled = self._units.load(
                    self._matmuls[name], (whole[name], chosen[name]), source=f"layer.{stage[0]}", length=length
                )
                self.compiled.update(compiled)

    def _stage_work(self, stage: tuple[str, ...], splits: Mapping[str, Split]) -> Prepared:
        work = Prepared()
        for name in stage:
            work = work.with_(self._units.prepared(self._matmuls[name], splits[name]))
        return work

    def _fill(self) -> None:
        """Hidden state, norm weights and the cache's context are seeded; rope and mask follow from the positions."""
        torch, shape, num_positions = self._torch, self._shape, self._context + self._tokens
        fill = self._units.store.fill
        of_shape = f"{shape.hidden}.{shape.num_kv_heads}x{shape.head_dim}.{num_positions}"
        self.names = {
            "hidden": f"layer.hidden.{of_shape}.{self._tokens}",
            "norms": f"layer.norms.{shape.hidden}",
            "cache": f"layer.cache.{of_shape}",
        }
        like = self._inputs[0]  # device and number format
        self._hidden = torch.from_numpy(fill(self.names["hidden"], (self._tokens, shape.hidden))).to(like)
        self._norm_weights = (1 + torch.from_numpy(fill(self.names["norms"], (2, shape.hidden), 0.1))).to(like)
        cache = fill(self.names["cache"], (2, shape.num_kv_heads, num_positions, shape.head_dim))
        self._keys, self._values = torch.from_numpy(cache).to(like)
        self._output = torch.empty_like(self._hidden)
        positions = torch.arange(self._context, num_positions)
        frequencies = shape.rope_theta ** (-torch.arange(0, shape.head_dim, 2) / shape.head_dim)
        angles = positions[:, None] * frequencies
        self._rope = angles.cos().to(like), angles.sin().to(like)
        self._mask = (torch.arange(num_positions) <= positions[:, None]).to(like.device)

    def delivered(self) -> str:
        name = self._units.store.make_output(OUTPUT, (self._tokens, self._shape.hidden))
        self._torch.from_numpy(self._units.store.view(name)).copy_(self._output)
        return name

    def _read_outputs(self) -> dict[str, Any]:
        """Returns the outputs [rows, T] by operator; a fused operator's are its rows in the stage's order."""
        query, kv = (heads * self._shape.head_dim for heads in (self._shape.num_heads, self._shape.num_kv_heads))
        outputs = {name: self._units.tensor(self._units.output_name(each)) for name, each in self._matmuls.items()}
        if "attention_qkv" in outputs:
            heads = outputs["attention_qkv"].split((query, kv, kv))
            outputs.update(zip(STAGES[0], heads, strict=True))
        if "ffn_gate_up" in outputs:
            outputs.update(zip(STAGES[2], outputs["ffn_gate_up"].chunk(2), strict=True))
        return outputs

    def _input(self, name: str) -> Any:
        """Returns the true tokens of the activation that a stage's operators read: [T, cols]"""
        activation = self._units.operand_names(self._matmuls[name])[1]
        return self._units.tensor(activation)[: self._tokens]
