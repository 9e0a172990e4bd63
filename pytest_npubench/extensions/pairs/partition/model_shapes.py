"""The weight shapes of the models that HeteroInfer runs, operator by operator of one decoder layer.

A weight is [rows, cols]: output features, input features (partition.matmul). Gate and up are one operator, as in
HeteroInfer, Table 3 ([28672, 4096] is twice 14336). An engine runs either attention_qkv or the three it is made of.
A name that ends in -divN has rows and columns divided by N, for machines without an accelerator: a 16th of the bytes
for div4.

Worked number: llama-8b, ffn_gate_up [2 * 14336, 4096]; llama-8b-div4: [7168, 1024], 29 MB in fp32.
"""

from __future__ import annotations

from dataclasses import dataclass

from pytest_npubench.errors import RegistryError, did_you_mean
from pytest_npubench.extensions.pairs.partition.matmul import Matmul
from pytest_npubench.extensions.pairs.partition.number_formats import FP32

DIVISORS = (4, 8)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorShape:
    """One weight: [rows, cols], in numbers of a dtype of partition.number_formats."""

    name: str
    rows: int
    cols: int
    dtype: str = FP32

    def matmul(self, tokens: int) -> Matmul:
        return Matmul(name=self.name, rows=self.rows, cols=self.cols, tokens=tokens, dtype=self.dtype)


@dataclass(frozen=True, slots=True)
class LayerWidths:
    """The widths of a Llama-family layer: model, feed-forward, and all key (or value) heads together."""

    hidden: int
    intermediate: int
    kv_width: int
    num_layers: int
    source: str


# hidden, intermediate, kv_width, num_layers, source
WIDTHS = {
    "llama-8b": LayerWidths(4096, 14_336, 8 * 128, 32, "config.json of meta-llama/Meta-Llama-3-8B"),
    "llama-3b": LayerWidths(3072, 8192, 8 * 128, 28, "config.json of meta-llama/Llama-3.2-3B"),
    "internlm-1.8b": LayerWidths(2048, 8192, 8 * 128, 24, "config.json of internlm/internlm2-1_8b"),
}


def _operators(widths: LayerWidths, divisor: int) -> tuple[OperatorShape, ...]:
    hidden, intermediate, kv_width = (
        width // divisor for width in (widths.hidden, widths.intermediate, widths.kv_width)
    )
    shapes = {
        "attention_q": (hidden, hidden),
        "attention_k": (kv_width, hidden),
        "attention_v": (kv_width, hidden),
        "attention_qkv": (hidden + 2 * kv_width, hidden),
        "attention_output": (hidden, hidden),
        "ffn_gate_up": (2 * intermediate, hidden),
        "ffn_down": (hidden, intermediate),
    }
    return tuple(OperatorShape(name=name, rows=rows, cols=cols) for name, (rows, cols) in shapes.items())


OPERATOR_SHAPES: dict[str, tuple[OperatorShape, ...]] = {
    f"{name}-div{divisor}" if divisor > 1 else name: _operators(widths, divisor)
    for name, widths in WIDTHS.items()
    for divisor in (1, *DIVISORS)
}


def operators(model: str) -> tuple[OperatorShape, ...]:
    """Raises RegistryError with the names that are there."""
    if model not in OPERATOR_SHAPES:
        raise RegistryError(
            f"no weight shapes of {model!r}; known: {', '.join(OPERATOR_SHAPES)}{did_you_mean(model, OPERATOR_SHAPES)}"
        )
    return OPERATOR_SHAPES[model]


def distinct(shapes: tuple[OperatorShape, ...]) -> tuple[OperatorShape, ...]:
    """Each [rows, cols] once, under its first name."""
    first: dict[tuple[int, int], OperatorShape] = {}
    for shape in shapes:
        first.setdefault((shape.rows, shape.cols), shape)
    return tuple(first.values())
