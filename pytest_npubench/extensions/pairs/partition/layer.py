"""One decoder layer end to end on a pair: attention and feed-forward, in prefill and in decode.

    x = h + W_o attention(rope(W_q n(h)), rope(W_k n(h)), W_v n(h))      n: RMSNorm
    y = x + W_down (silu(W_gate n(x)) * W_up n(x))                       (Llama: Touvron et al. 2023)

The seven matrix multiplications are split as told (five where q k v and gate up are fused); what lies between them runs
on the dynamic unit. Operators that read the same activation are submitted together, so a layer has four waits: q k v,
output, gate up, down. The steps run in the pair's own process; nothing in a layer waits for the process that asks.

Prefill has context 0 and num_tokens S; decode has num_tokens 1 after `context` tokens in the KV cache. Weight FLOP of
hidden 4096, 32 heads, 8 KV heads of 128, intermediate 14336: 2 * 218.1e6 per token.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pytest_npubench.core.measurement import Phase
from pytest_npubench.errors import PartitionError
from pytest_npubench.extensions.pairs.partition.matmul import GPU, Matmul, Split, alone, check_split
from pytest_npubench.extensions.pairs.partition.number_formats import FP32
from pytest_npubench.extensions.pairs.partition.output_check import exact_product
from pytest_npubench.extensions.pairs.partition.unit import SplitTiming, UnitPair

STAGES = (
    ("attention_q", "attention_k", "attention_v"),
    ("attention_output",),
    ("ffn_gate", "ffn_up"),
    ("ffn_down",),
)
# Operators of one stage as one matrix, as engines run them: a split of that name runs the stage so.
FUSED = {STAGES[0]: "attention_qkv", STAGES[2]: "ffn_gate_up"}
OPERATORS = (*(name for stage in STAGES for name in stage), *FUSED.values())
OUTPUT = "layer.output"


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerShape:
    """A Llama-like layer. num_heads is a multiple of num_kv_heads, head_dim is even."""

    hidden: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate: int
    rope_theta: float = 10000.0
    dtype: str = FP32

    def matmul(self, name: str, tokens: int) -> Matmul:
        """Returns the operator of this name (OPERATORS) at so many tokens; KeyError on another name."""
        query, kv = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        rows, cols = {
            "attention_q": (query, self.hidden),
            "attention_k": (kv, self.hidden),
            "attention_v": (kv, self.hidden),
            "attention_qkv": (query + 2 * kv, self.hidden),
            "attention_output": (self.hidden, query),
            "ffn_gate": (self.intermediate, self.hidden),
            "ffn_up": (self.intermediate, self.hidden),
            "ffn_gate_up": (2 * self.intermediate, self.hidden),
            "ffn_down": (self.hidden, self.intermediate),
        }[name]
        return Matmul(name=f"layer.{name}", rows=rows, cols=cols, tokens=tokens, dtype=self.dtype)


def stages_of(splits: Mapping[str, Split]) -> tuple[tuple[str, ...], ...]:
    """STAGES, those fused that `splits` names fused. Raises PartitionError where it names both."""
    stages: list[tuple[str, ...]] = []
    for stage in STAGES:
        fused = FUSED.get(stage)
        if fused in splits and set(stage) & set(splits):
            raise PartitionError(
                f"splits name {fused} and {', '.join(sorted(set(stage) & set(splits)))}: want one of them"
            )
        stages.append((fused,) if fused is not None and fused in splits else stage)
    return tuple(stages)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTiming:
    """One pass through the layer. stages: by STAGES, each stage's operators as one run. other_s: between them."""

    total_s: float
    stages: tuple[SplitTiming, ...]

    @property
    def other_s(self) -> float:
        return self.total_s - sum(stage.total_s for stage in self.stages)

    @property
    def sync_s(self) -> float:
        return sum(stage.sync_s for stage in self.stages)

    @property
    def gpu_s(self) -> float:
        """Returns the dynamic unit's seconds for its parts of the stages."""
        return sum(stage.gpu_s or 0.0 for stage in self.stages)

    @property
    def npu_s(self) -> float:
        """Returns the static unit's seconds for its parts of the stages."""
        return sum(stage.npu_s or 0.0 for stage in self.stages)


class LayerPair(UnitPair, Protocol):
    """A pair whose process can run a layer: the host's, and two streams of one CUDA device."""

    def call(self, method: str, *arguments: object, **keywords: object) -> Any: ...

    def view(self, name: str) -> NDArray[Any]: ...


class DecoderLayer:
    """A seeded layer, loaded on a pair. `splits` by operator name; operators it does not name run on the
    dynamic unit alone. One layer at a time is loaded on a pair; `unload` of the pair forgets it.

    Raises PartitionError on an operator, split or shape that cannot be, and on a pair that runs no layers.
    """

    def __init__(
        self,
        pair: object,
        shape: LayerShape,
        *,
        splits: Mapping[str, Split],
        num_tokens: int,
        context: int = 0,
    ) -> None:
        _check_shape(shape, num_tokens, context)
        self.shape, self.num_tokens, self.context = shape, num_tokens, context
        self._check_splits(splits)
        self._splits = dict(splits)
        self._pair = _runs_layers(pair)
        self.compile_s: Mapping[tuple[int, int, int], float] = self._pair.call(
            "open_layer", shape, num_tokens, context, dict(splits)
        )

    @property
    def phase(self) -> Phase:
        return Phase.DECODE if self.context else Phase.PREFILL

    def run(self, *, mechanism: str | None = None) -> LayerTiming:
        """One pass with the splits; mechanism None: the fastest."""
        timing: LayerTiming = self._pair.call("run_layer", mechanism)
        return timing

    def run_alone(self) -> LayerTiming:
        """One pass on the dynamic unit alone, whose output is the reference."""
        timing: LayerTiming = self._pair.call("run_layer_alone")
        return timing

    def check(self) -> None:
        """Checks a pass with the splits and one on the dynamic unit alone, as check_run."""
        self.check_run()
        self._check_pass(self.run_alone, {})

    def check_run(self, mechanism: str | None = None) -> None:
        """A pass with the splits: each operator's output is held against what the activation that it read makes in
        float64. Raises MeasurementError where it is something else."""
        self._check_pass(partial(self.run, mechanism=mechanism), self._splits)

    def _check_pass(self, run: Callable[[], LayerTiming], splits: Mapping[str, Split]) -> None:
        names = [name for stage in stages_of(self._splits) for name in stage]
        matmuls = {name: self.shape.matmul(name, self.num_tokens) for name in names}
        for matmul in matmuls.values():
            self._pair.spoil_output(matmul)
        run()
        for name, matmul in matmuls.items():
            split = splits.get(name, alone(matmul, GPU))
            exact_product(self._pair, matmul).check(split, self._pair.output(matmul))

    def output(self) -> NDArray[np.float32]:
        """[num_tokens, hidden] of the last pass."""
        return self._pair.view(self._pair.call("layer_output"))

    def operands(self) -> dict[str, NDArray[np.float32]]:
        """Copies of what the layer is made of: hidden [num_tokens, H]; norms [2, H], less 1; cache [2 (key, value), KV
        heads, context + num_tokens, head_dim], filled up to the context; each operator's weight [rows, cols]."""
        arrays = {name: self._pair.view(array) for name, array in self._pair.call("layer_names").items()}
        for stage in stages_of(self._splits):
            for name in stage:
                weight, *_ = self._pair.call("operand_names", self.shape.matmul(name, self.num_tokens))
                arrays[name] = self._pair.view(weight)
        return arrays

    def _check_splits(self, splits: Mapping[str, Split]) -> None:
        unknown = sorted(set(splits) - set(OPERATORS))
        if unknown:
            raise PartitionError(f"a decoder layer has no operator {', '.join(unknown)}; it has {', '.join(OPERATORS)}")
        stages_of(splits)
        for name, split in splits.items():
            check_split(self.shape.matmul(name, self.num_tokens), split)


def _check_shape(shape: LayerShape, num_tokens: int, context: int) -> None:
    sizes = (shape.hidden, shape.num_heads, shape.num_kv_heads, shape.head_dim, shape.intermediate, num_tokens)
    if min(sizes) < 1 or context < 0 or shape.num_heads % shape.num_kv_heads or shape.head_dim % 2:
        raise PartitionError(
            f"{shape} with {num_tokens} tokens after {context}: want sizes of at least 1, num_heads a multiple of"
            f" num_kv_heads, an even head_dim"
        )


def _runs_layers(pair: Any) -> LayerPair:
    if not (hasattr(pair, "call") and hasattr(pair, "view")):
        raise PartitionError(f"{type(pair).__name__} runs single operators only; a decoder layer runs on the host pair")
    runner: LayerPair = pair
    return runner
