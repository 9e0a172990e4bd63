"""The arrays of loaded operators, which both units' tensors share."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pytest_npubench.extensions.pairs.partition.matmul import Matmul
from pytest_npubench.extensions.pairs.partition.units.openvino_requests import memory_for

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenVinoOperands:
    """weight [rows, cols] ~ N(0, 1/cols), tokens [tokens + padding, cols] ~ N(0, 1) and zeros behind them, and the
    result [rows, tokens]. Tokens lie one after the other, so that a part's are one run of memory."""

    weight: Floats
    tokens: Floats
    result: Floats


class OpenVinoOperandStore:
    """Operators of one name and shape share their weight, whatever their tokens."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._weights: dict[tuple[str, int, int], Floats] = {}
        self._operands: dict[Matmul, OpenVinoOperands] = {}

    def __contains__(self, matmul: Matmul) -> bool:
        return matmul in self._operands

    def __getitem__(self, matmul: Matmul) -> OpenVinoOperands:
        return self._operands[matmul]

    def make(self, matmul: Matmul, num_tokens: int) -> bool:
        """Make room for num_tokens with the padding. True where arrays are new: what was bound to older ones is void.

        Raises MeasurementError where memory is short.
        """
        operand = self._operands.get(matmul)
        if operand is not None and len(operand.tokens) >= num_tokens:
            return False
        with memory_for(f"{matmul.name} [{matmul.rows}, {matmul.cols}] x {num_tokens} tokens"):
            tokens = np.zeros((num_tokens, matmul.cols), np.float32)
            tokens[: matmul.tokens] = self._normal(matmul.tokens, matmul.cols)
            result = np.full((matmul.rows, matmul.tokens), np.nan, np.float32)
            self._operands[matmul] = OpenVinoOperands(weight=self._weight(matmul), tokens=tokens, result=result)
        return True

    def clear(self) -> None:
        self._weights.clear()
        self._operands.clear()

    def _weight(self, matmul: Matmul) -> Floats:
        key = matmul.name, matmul.rows, matmul.cols
        if key not in self._weights:
            self._weights[key] = self._normal(matmul.rows, matmul.cols) / np.float32(matmul.cols**0.5)
        return self._weights[key]

    def _normal(self, *dims: int) -> Floats:
        return np.random.default_rng((self._seed, *dims)).standard_normal(dims, np.float32)
