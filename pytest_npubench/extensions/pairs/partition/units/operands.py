"""Weights, activations and outputs of the operators a pair has loaded, as named arrays in the arena.

Seeded: weight [rows, cols] ~ N(0, 1/cols), activation [tokens, cols] ~ N(0, 1), so that outputs
[rows, tokens] are of order 1 whatever the shape. An activation is stored by token, since the parts of
activation-centric splits are then runs of memory, and is as long as its longest padded part reaches; the rows behind
its tokens are zero. Operators of one name and shape share their weight whatever their tokens. bf16 and w4a16
(partition.number_formats) are these numbers rounded.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from pytest_npubench.errors import PartitionError
from pytest_npubench.extensions.pairs.partition.matmul import GraphForm, Matmul, Part, Split
from pytest_npubench.extensions.pairs.partition.number_formats import FP32, GROUP, W4A16, bf16_bits, quantised
from pytest_npubench.extensions.pairs.partition.units.arena import SharedArena

Array = NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operands:
    """Names in the arena of what one operator reads and writes. scales: of weights in 4 bits, else None."""

    weight: str
    activation: str
    output: str
    scales: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartArrays:
    """What one part of an operator reads and writes: weight [rows, cols], in 4 bits two columns a byte, with scales
    [rows, groups]; activation [padded tokens, cols]; output [rows, tokens]. uint16 are the bits of bfloat16."""

    weight: NDArray[Any]
    activation: NDArray[Any]
    output: NDArray[Any]
    scales: NDArray[Any] | None = None


class OperandStore:
    def __init__(self, arena: SharedArena, seed: int) -> None:
        self._arena = arena
        self._seed = seed
        self._names: set[str] = set()

    def make(self, matmul: Matmul, length: int, *, source: str | None = None) -> Operands:
        """Make what is not there yet. `source` names the activation, [length, cols]: operators of one source read the
        same one. Raises MeasurementError where memory is short, PartitionError where 4-bit weights do not fill their
        groups."""
        if matmul.dtype == W4A16 and matmul.cols % GROUP:
            raise PartitionError(f"{matmul.name} in {W4A16}: {matmul.cols} columns; want a multiple of {GROUP}")
        shape = f"{matmul.rows}x{matmul.cols}"
        origin, rounded = source or f"{matmul.name}.{shape}", "" if matmul.dtype == FP32 else f".{matmul.dtype}"
        names = Operands(
            weight=weight_name(matmul) + rounded,
            activation=f"activation.{origin}.{matmul.tokens}.{length}{rounded}",
            output=f"output.{matmul.name}.{shape}.{matmul.tokens}{rounded}",
            scales=f"scales.{matmul.name}.{shape}" if matmul.dtype == W4A16 else None,
        )
        number_type = np.float32 if matmul.dtype == FP32 else np.uint16
        self._make_weight(names, matmul)
        self._make_activation(names.activation, f"{origin}.{matmul.tokens}", matmul, length, number_type)
        self._allocated(names.output, (matmul.rows, matmul.tokens), number_type)
        return names

    def view(self, name: str) -> NDArray[Any]:
        return self._arena.view(name)

    def fill(self, name: str, shape: tuple[int, ...], scale: float = 1.0) -> Array:
        """Returns a named array of seeded normal numbers, made once."""
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
        """Returns an array to write into, made anew where it is there in another shape."""
        if name in self._names and self.view(name).shape != shape:
            self._arena.free(name)
            self._names.remove(name)
        self._allocated(name, shape)
        return name

    def free(self) -> None:
        for name in self._names:
            self._arena.free(name)
        self._names.clear()

    def _make_weight(self, names: Operands, matmul: Matmul) -> None:
        shape, scale = (matmul.rows, matmul.cols), matmul.cols**-0.5
        if matmul.dtype == FP32:
            self.fill(names.weight, shape, scale)
        elif names.weight not in self._names:
            values = self._generator(weight_name(matmul)).standard_normal(shape, dtype=np.float32) * np.float32(scale)
            if names.scales is None:
                self._put(names.weight, bf16_bits(values))
            else:
                packed, scales = quantised(values)
                self._put(names.weight, packed)
                self._put(names.scales, scales)

    def _put(self, name: str, values: NDArray[Any]) -> None:
        self._allocated(name, values.shape, values.dtype)[...] = values

    def _make_activation(
        self, name: str, values: str, matmul: Matmul, length: int, number_type: type[np.generic]
    ) -> None:
        """Activations of one operator that differ in padding alone have the same values."""
        if name not in self._names:
            array = self._allocated(name, (length, matmul.cols), number_type)
            drawn = self._generator(values).standard_normal((matmul.tokens, matmul.cols), dtype=np.float32)
            array[: matmul.tokens] = drawn if matmul.dtype == FP32 else bf16_bits(drawn)

    def _allocated(self, name: str, shape: tuple[int, ...], number_type: DTypeLike = np.float32) -> NDArray[Any]:
        if name in self._names:
            return self.view(name)
        array = self._arena.allocate(name, shape, number_type)
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


def part_arrays(arena: SharedArena, operands: Operands, part: Part) -> PartArrays:
    """With as many tokens of the activation as the part's graph takes."""
    rows = slice(part.first_row, part.first_row + part.num_rows)
    tokens = slice(part.first_token, part.first_token + part.num_tokens)
    return PartArrays(
        weight=arena.view(operands.weight)[rows],
        activation=arena.view(operands.activation)[part.first_token : part.first_token + part.padded_tokens],
        output=arena.view(operands.output)[rows, tokens],
        scales=None if operands.scales is None else arena.view(operands.scales)[rows],
    )


def part_spec(operands: Operands, part: Part, form: GraphForm) -> dict[str, object]:
    """What `matmul_kernels.build` wants for this part."""
    return {"operands": operands, "part": part, "form": form}
