"""What is worth measuring of one operator: units alone on parts of it, and both at once on splits near the balance."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pytest_npubench.errors import PartitionError
from pytest_npubench.extensions.pairs.partition.latency import LatencyModel
from pytest_npubench.extensions.pairs.partition.matmul import GPU, NPU, Matmul, Part, Split
from pytest_npubench.extensions.pairs.partition.model_shapes import OperatorShape
from pytest_npubench.extensions.pairs.partition.number_formats import FP32
from pytest_npubench.extensions.pairs.partition.options import SplitOptions
from pytest_npubench.extensions.pairs.partition.profile import PartKey
from pytest_npubench.extensions.pairs.partition.strategies import all_splits

ROW_STRATEGIES = ("weight_centric", "hybrid")
SMALLEST_STEP = 8  # tokens; below it powers of two, above it also those in between


@dataclass(frozen=True, slots=True, kw_only=True)
class PartPoint:
    """One unit alone on weight [rows, cols], as an operator of its own; is_cold: the weight comes from memory."""

    unit: str
    rows: int
    cols: int
    tokens: int
    is_cold: bool = False
    dtype: str = FP32

    @property
    def key(self) -> PartKey:
        return self.unit, self.rows, self.cols, self.tokens, self.is_cold

    @property
    def matmul(self) -> Matmul:
        return Matmul(name="part", rows=self.rows, cols=self.cols, tokens=self.tokens, dtype=self.dtype)

    @property
    def split(self) -> Split:
        part = Part(
            unit=self.unit,
            first_row=0,
            num_rows=self.rows,
            first_token=0,
            num_tokens=self.tokens,
            padded_tokens=self.tokens,
        )
        return Split(strategy=f"{self.unit}_only", parts=(part,))


@dataclass(frozen=True, slots=True, kw_only=True)
class TogetherPoint:
    """Both units at once on a split of the whole operator. is_balanced: they end near each other, so that each has
    company nearly all the time, and their slowdown can be told."""

    matmul: Matmul
    split: Split
    is_balanced: bool

    @property
    def key(self) -> tuple[int, int, int]:
        return self.matmul.rows, self.matmul.cols, self.matmul.tokens

    @property
    def is_cold(self) -> bool:
        return self.matmul.is_decode

    def alone(self, unit: str) -> tuple[PartKey, ...]:
        cols, is_cold = self.matmul.cols, self.is_cold
        return tuple((unit, part.num_rows, cols, part.padded_tokens, is_cold) for part in self.split.of(unit))


def part_points(shape: OperatorShape, lengths: Sequence[int], options: SplitOptions) -> tuple[PartPoint, ...]:
    """Returns the most valuable first: whole operators, then shares of the rows from the half outwards, short before
    long. One token has cold weights; where a longer prompt leaves it to the GPU, warm ones."""
    parts = {(GPU, shape.rows, tokens, False) for tokens in _gpu_lengths(lengths)}
    for tokens in lengths:
        sizes, is_cold = options.padded(tokens), tokens == 1
        parts |= {(NPU, shape.rows, size, is_cold) for size in (*sizes, *_smaller(options, tokens))}
        parts.add((GPU, shape.rows, tokens, is_cold))
        for npu_rows in options.npu_rows(shape.rows, tokens):
            parts.add((GPU, shape.rows - npu_rows, tokens, is_cold))
            parts |= {(NPU, npu_rows, size, is_cold) for size in sizes}
    ordered = sorted(parts, key=lambda item: (*_distance(item[1], shape.rows), *item[2:], item[0]))
    return tuple(
        PartPoint(unit=unit, rows=rows, cols=shape.cols, tokens=tokens, is_cold=is_cold, dtype=shape.dtype)
        for unit, rows, tokens, is_cold in ordered
    )


def together_points(
    shape: OperatorShape, lengths: Sequence[int], options: SplitOptions, model: LatencyModel
) -> tuple[TogetherPoint, ...]:
    """For each length the split whose units end nearest to each other by what is known, and for the shortest of each
    phase the one with most for the GPU: there the NPU's signal can hide. Those that cannot be priced are left out."""
    points: list[TogetherPoint] = []
    for matmul in map(shape.matmul, sorted(lengths)):
        splits = all_splits(matmul, options, ROW_STRATEGIES)
        gaps_s = {split: gap for split in splits if (gap := _gap_s(model, matmul, split)) is not None}
        if gaps_s:
            balanced = min(gaps_s, key=lambda split: gaps_s[split])
            points.append(TogetherPoint(matmul=matmul, split=balanced, is_balanced=True))
            heavy = max(gaps_s, key=lambda split: split.of(GPU)[0].num_rows)
            if heavy != balanced and _is_first_of_phase(matmul.tokens, lengths):
                points.append(TogetherPoint(matmul=matmul, split=heavy, is_balanced=False))
    return tuple(points)


def _gpu_lengths(lengths: Iterable[int]) -> set[int]:
    """Returns the lengths themselves, and a grid up to them for what activation-centric splits leave to the GPU: also
    one short of it, since a unit may be slower at lengths that fill no vector (latency.ALIGNMENT)."""
    wanted = set(lengths)
    size = 1
    while size < max(wanted, default=1):
        wanted.add(size)
        if size >= SMALLEST_STEP:
            wanted.add(size - 1)
            if size * 3 // 2 < max(wanted):
                wanted.add(size * 3 // 2)
        size *= 2
    return wanted


def _smaller(options: SplitOptions, tokens: int) -> tuple[int, ...]:
    return tuple(size for size in options.standard_sizes if size < tokens)


def _distance(rows: int, all_rows: int) -> tuple[bool, float]:
    return rows != all_rows, abs(rows / all_rows - 0.5) if rows != all_rows else 0.0


def _gap_s(model: LatencyModel, matmul: Matmul, split: Split) -> float | None:
    try:
        prediction = model.predict(matmul, split)
    except PartitionError:
        return None
    return abs(prediction.gpu_s - prediction.npu_s)


def _is_first_of_phase(tokens: int, lengths: Sequence[int]) -> bool:
    return tokens == min(length for length in lengths if (length == 1) == (tokens == 1))
