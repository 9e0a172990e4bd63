"""Weights, activations and outputs of the operators a pair has loaded, as named arrays in the arena.

Seeded and fp32: weight [rows, cols] ~ N(0, 1/cols), activation [tokens, cols] ~ N(0, 1), so that outputs
[rows, tokens] are of order 1 whatever the shape. An activation is stored by token, since the parts of
activation-centric splits are then runs of memory, and is as long as its longest padded part reaches; the rows behind
its tokens are zero. Operators of one name and shape share their weight whatever their tokens.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pytest_npubench.extensions.pairs.partition.matmul import Matmul, Part, Split
from pytest_npubench.extensions.pairs.partition.units.arena import SharedArena

Array = NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operands:
    """Names in the arena of what one operator reads and writes."""

    weight: str
    activation: str
    output: str


class OperandStore:
    def __init__(self, arena: SharedArena, seed: int) -> None:
        self._arena = arena
        self._seed = seed
        self._names: set[str] = set()

    def make(self, matmul: Matmul, length: int, *, source: str | None = None) -> Operands:
        """Make what is not there yet. `source` names the activation, [length, cols]: operators of one source read the
        same one. Raises MeasurementError where memory is short."""
        shape = f"{matmul.rows}x{matmul.cols}"
        origin = source or f"{matmul.name}.{shape}"
        names = Operands(
            weight=weight_name(matmul),
            activation=f"activation.{origin}.{matmul.tokens}.{length}",
            output=f"output.{matmul.name}.{shape}.{matmul.tokens}",
        )
        self._make_weight(names.weight, matmul)
        self._make_activation(names.activation, f"{origin}.{matmul.tokens}", (matmul.tokens, matmul.cols), length)
        self._allocated(names.output, (matmul.rows, matmul.tokens))
        return names

    def view(self, name: str) -> Array:
        return self._arena.view(name)

    def fill(self, name: str, shape: tuple[int, ...], scale: float = 1.0) -> Array:
        """A named array of seeded normal numbers, made once."""
        if name in self._names:
            return self.view(name)
        array = self._allocated(name, shape)
        self._generator(name).standard_normal(out=array, dtype=np.float32)
        array *= np.float32(scale)
        return array

    def repeat(self, name: str, shape: tuple[int, ...]) -> None:
        """A named array of few numbers again and again, for what is read for its bytes alone: 1 GB is drawn in 4 s."""
        if name not in self._names:
            array = self._allocated(name, shape)
            array[...] = self._generator(name).standard_normal(shape[-1], dtype=np.float32)

    def make_output(self, name: str, shape: tuple[int, ...]) -> str:
        """An array to write into, made anew where it is there in another shape."""
        if name in self._names and self.view(name).shape != shape:
            self._arena.free(name)
            self._names.remove(name)
        self._allocated(name, shape)
        return name

    def free(self) -> None:
        for name in self._names:
            self._arena.free(name)
        self._names.clear()

    def _make_weight(self, name: str, matmul: Matmul) -> None:
        self.fill(name, (matmul.rows, matmul.cols), matmul.cols**-0.5)

    def _make_activation(self, name: str, values: str, shape: tuple[int, int], length: int) -> None:
        """Activations of one operator that differ in padding alone have the same values."""
        if name not in self._names:
            array = self._allocated(name, (length, shape[1]))
            array[: shape[0]] = self._generator(values).standard_normal(shape, dtype=np.float32)

    def _allocated(self, name: str, shape: tuple[int, ...]) -> Array:
        if name in self._names:
            return self.view(name)
        array = self._arena.allocate(name, shape, np.float32)
        self._names.add(name)
        return array

    def _generator(self, name: str) -> np.random.Generator:
        return np.random.default_rng((self._seed, zlib.crc32(name.encode())))


def weight_name(matmul: Matmul) -> str:
    return f"weight.{matmul.name}.{matmul.rows}x{matmul.cols}"


def activation_length(matmul: Matmul, splits: Iterable[Split]) -> int:
    """How far the longest padded part reaches."""
    reached = (part.first_token + part.padded_tokens for split in splits for part in split.parts)
    return max(matmul.tokens, *reached, 0)


def part_spec(operands: Operands, part: Part) -> dict[str, object]:
    """What `matmul_kernels.build` wants for this part."""
    return {
        "weight": operands.weight,
        "activation": operands.activation,
        "output": operands.output,
        "first_row": part.first_row,
        "num_rows": part.num_rows,
        "first_token": part.first_token,
        "num_tokens": part.num_tokens,
        "padded_tokens": part.padded_tokens,
    }
