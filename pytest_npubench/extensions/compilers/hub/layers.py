"""The parts of a Llama-family decoder layer as ONNX nodes, the reference decoder's arithmetic step for step.

# N = rows, S = new positions, T = key positions, H = query heads, K = key-value heads, G = H/K, D = head_dim
# Activations are [N, S, hidden]; queries [N, K, G*S, D]; keys and values [N, K, T, D].
Norms, rotation and softmax are taken in float32 whatever the graph's dtype, as in engines/jax_dense/layers.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_npubench.engines.rope import rope_frequencies
from pytest_npubench.engines.shapes import DecoderShape
from pytest_npubench.extensions.compilers.hub.onnx_file import TENSOR_TYPES, OnnxFile
from pytest_npubench.extensions.compilers.hub.weights import WeightSource

FLOAT32_MIN = np.finfo(np.float32).min


class DecoderNodes:
    """Builds nodes of one decoder into one file; a weight is stored when it is first used."""

    def __init__(self, file: OnnxFile, shape: DecoderShape, weights: WeightSource, dtype: str) -> None:
        self.file = file
        self.shape = shape
        self.dtype = dtype
        self._weights = weights

    def weight(self, name: str) -> str:
        if not self.file.has_weight(name):
            self.file.weight(name, self._weights(name))
        return name

    def wide(self, value: str) -> str:
        """Returns the value in float32."""
        return value if self.dtype == "fp32" else self.file.node("Cast", value, to=TENSOR_TYPES["fp32"])

    def narrow(self, value: str) -> str:
        """Returns the float32 value in the graph's dtype."""
        return value if self.dtype == "fp32" else self.file.node("Cast", value, to=TENSOR_TYPES[self.dtype])

    def reshape(self, value: str, *dims: int) -> str:
        return self.file.node("Reshape", value, self.file.constant(np.array(dims, np.int64)))

    def rms_norm(self, value: str, weight: str) -> str:
        """x / rms(x) * weight over the last axis."""
        file = self.file
        wide = self.wide(value)
        square = file.node("ReduceMean", file.node("Mul", wide, wide), axes=[-1], keepdims=1)
        root = file.node("Sqrt", file.node("Add", square, file.constant(np.float32(self.shape.rms_eps).reshape(1))))
        return file.node("Mul", self.narrow(file.node("Div", wide, root)), self.weight(weight))

    def heads(self, x: str, prefix: str, name: str, num_heads: int, rows: int, length: int) -> str:
        """x @ w split into heads: [N, S, heads, D]."""
        flat = self.file.node("MatMul", x, self.weight(f"{prefix}.{name}"))
        return self.reshape(flat, rows, length, num_heads, self.shape.head_dim)

    def rotate(self, value: str, cos: str, sin: str) -> str:
        """Rotate the two halves of each head. value [N, S, heads, D], cos and sin broadcast to [N, S, 1, D/2]."""
        file, half = self.file, self.shape.head_dim // 2
        wide = self.wide(value)
        low, high = self._part(wide, 0, half), self._part(wide, half, 2 * half)
        turned_low = file.node("Sub", file.node("Mul", low, cos), file.node("Mul", high, sin))
        turned_high = file.node("Add", file.node("Mul", high, cos), file.node("Mul", low, sin))
        return self.narrow(file.node("Concat", turned_low, turned_high, axis=-1))

    def project(self, x: str, prefix: str, cos: str, sin: str, rows: int, length: int) -> tuple[str, str, str]:
        """Queries [N, S, H, D] and, with their heads in front, keys and values [N, K, S, D]."""
        shape, turn = self.shape, {"perm": [0, 2, 1, 3]}
        q = self.heads(x, prefix, "wq", shape.num_heads, rows, length)
        k = self.heads(x, prefix, "wk", shape.num_kv_heads, rows, length)
        v = self.heads(x, prefix, "wv", shape.num_kv_heads, rows, length)
        if shape.qk_norm:
            q, k = self.rms_norm(q, f"{prefix}.q_norm"), self.rms_norm(k, f"{prefix}.k_norm")
        q, k = self.rotate(q, cos, sin), self.rotate(k, cos, sin)
        return q, self.file.node("Transpose", k, **turn), self.file.node("Transpose", v, **turn)

    def attend(self, q: str, keys: str, values: str, visible: str) -> str:
        """softmax(q k^T / sqrt(D)) v: q [N, K, Q, D], keys and values [N, K, T, D], visible fits [N, K, Q, T]."""
        file = self.file
        turned = file.node("Transpose", keys, perm=[0, 1, 3, 2])
        scale = file.constant(np.float32(1 / math.sqrt(self.shape.head_dim)).reshape(1))
        scores = file.node("Mul", self.wide(file.node("MatMul", q, turned)), scale)
        hidden = file.node("Where", visible, scores, file.constant(np.array([FLOAT32_MIN], np.float32)))
        return file.node("MatMul", self.narrow(file.node("Softmax", hidden, axis=-1)), values)

    def layer(self, x: str, index: int, attention: Callable[[str, str], str]) -> str:
        """One decoder layer; `attention(normed, prefix)` returns [N, S, H*D]."""
        file, prefix = self.file, f"layers.{index}"
        attended = attention(self.rms_norm(x, f"{prefix}.attention_norm"), prefix)
        x = file.node("Add", x, file.node("MatMul", attended, self.weight(f"{prefix}.wo")))
        return file.node("Add", x, self._feed_forward(self.rms_norm(x, f"{prefix}.ffn_norm"), prefix))

    def logits(self, hidden: str) -> str:
        """Logits [N, vocab] in float32 of last hidden states [N, hidden]."""
        table = "embedding" if self.shape.tied_embeddings else "head"
        normed = self.rms_norm(hidden, "final_norm")
        return self.wide(self.file.node("Gemm", normed, self.weight(table), transB=1))

    def slice(self, value: str, start: int, end: int, axis: int) -> str:
        bounds = (self.file.constant(np.array([number], np.int64)) for number in (start, end, axis))
        return self.file.node("Slice", value, *bounds)

    def _part(self, value: str, start: int, end: int) -> str:
        return self.slice(value, start, end, 3)

    def _feed_forward(self, x: str, prefix: str) -> str:
        """SwiGLU: down(silu(gate(x)) * up(x))."""
        file = self.file
        gate = file.node("MatMul", x, self.weight(f"{prefix}.w_gate"))
        silu = file.node("Mul", gate, file.node("Sigmoid", gate))
        raised = file.node("Mul", silu, file.node("MatMul", x, self.weight(f"{prefix}.w_up")))
        return file.node("MatMul", raised, self.weight(f"{prefix}.w_down"))


def rotation_tables(shape: DecoderShape, num_positions: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """cos and sin of every position's angles, float32 [positions, D/2]. Angles are float32 products, as on a device."""
    positions = np.arange(num_positions, dtype=np.float32)[:, None]
    angles = positions * rope_frequencies(shape).astype(np.float32)
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
