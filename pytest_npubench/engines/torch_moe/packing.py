"""Weight matrices in the layout that products on a CPU read fastest: oneDNN's blocks, made once, when a model is built.

A product with a plain matrix brings it into that layout first, in every call. Nobody notices beside a thousand rows;
for the rows of a chunk, or of one expert, it is a large part of the time, and would be counted as a price of chunks.
Worked numbers: the products of small-dense's layers on two cores of an AMD EPYC take 17.7 ms with 64 rows, packed
12.1 ms; with 8 rows 7.3 and 3.8 ms, with 1,024 rows 200 and 169 ms.

Packed are matrices in fp32 on a CPU whose torch has oneDNN; all others stay as they are.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_npubench.engines.torch_moe.weights import LayerWeights, ModelWeights

EXACT_ROWS = 16
ROWS_A_FILLING = 8  # at least so many rows for each one that is beside them
LARGEST_STEP = 16
ROWS_HINT = 64  # what oneDNN chooses blocks by: blocks for 1 row are slow for all others, those for 64 to 512 are alike


def product(rows: Tensor, matrix: Tensor, bias: Tensor | None = None) -> Tensor:
    """rows [T, in] by a matrix [out, in], packed or not, plus bias [out]: [T, out]."""
    if not matrix.is_mkldnn:
        return F.linear(rows, matrix, bias)
    ops: Any = torch.ops.mkldnn
    multiplied: Tensor = ops._linear_pointwise(rows, matrix, bias, "none", [], "")
    return multiplied


def kernel_rows(num_rows: int, matrix: Tensor) -> int:
    """How many rows to multiply where so many are wanted: with a packed matrix 17 become 18, and 130 become 144.

    oneDNN generates a kernel for each number of rows that it meets. That takes a millisecond, as much as the product of
    100 rows, and the experts of a prompt have a hundred different numbers.
    """
    if not matrix.is_mkldnn or num_rows <= EXACT_ROWS:
        return num_rows
    step = min(LARGEST_STEP, (1 << num_rows.bit_length() - 1) // ROWS_A_FILLING)
    return -(-num_rows // step) * step


def packed(weights: ModelWeights) -> ModelWeights:
    """Returns the weights with all matrices of the layers packed; router, embedding and head, which is one with it, are
    not."""
    return replace(weights, layers=tuple(map(packed_layer, weights.layers)))


def packed_layer(layer: LayerWeights) -> LayerWeights:
    """Returns the layer's matrices packed, where they can be."""
    if not _packs(layer.qkv):
        return layer
    return replace(
        layer,
        qkv=_pack(layer.qkv),
        out=_pack(layer.out),
        gate_up=tuple(map(_pack, layer.gate_up)),
        down=tuple(map(_pack, layer.down)),
    )


def _pack(matrix: Tensor) -> Tensor:
    ops: Any = torch.ops.mkldnn
    block: Tensor = ops._reorder_linear_weight(matrix, ROWS_HINT)
    return block


def _packs(matrix: Tensor) -> bool:
    """Whether a matrix can be packed: fp32 on a CPU, and not packed before. mkldnn's operators have no public name."""
    return (
        matrix.device.type == "cpu"
        and matrix.dtype == torch.float32
        and not matrix.is_mkldnn
        and torch.backends.mkldnn.is_available()
        and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    )
