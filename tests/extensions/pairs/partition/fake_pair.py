"""A pair of units that measures nothing: its times are known, so that what is made of them can be checked. Tests only.

The GPU takes gpu_s(rows, cols, tokens), the NPU npu_s(rows, cols, padded); beside each other both are slower by their
factor for as long as both work. A clock of its own goes forward by what a run takes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from pytest_npubench.extensions.pairs.partition.latency import ends_together_s
from pytest_npubench.extensions.pairs.partition.matmul import GPU, NPU, Matmul, Part, Split, check_split
from pytest_npubench.extensions.pairs.partition.unit import SplitTiming, UnitFacts


def gpu_time_s(rows: int, cols: int, tokens: int) -> float:
    """5 us, then 1 TFLOP/s past 8 tokens' worth of memory time."""
    return 5e-6 + 2e-12 * rows * cols * max(tokens, 8)


def npu_time_s(rows: int, cols: int, padded: int) -> float:
    """8 us, then 3 TFLOP/s on tiles of 32 rows and 32 tokens."""
    return 8e-6 + 2e-12 / 3 * (-(-rows // 32) * 32) * cols * (-(-padded // 32) * 32)


class FakePair:
    """UnitPair. wrong: a strategy whose outputs are twice as large; wrong_unit: of that strategy the rows and tokens of
    that unit alone; noise: the largest relative error of a time; cold: how much longer both units take for a weight
    that they have not read since the caches were emptied."""

    def __init__(
        self,
        *,
        factors: tuple[float, float] = (1.2, 1.1),
        sync_s: float = 20e-6,
        copy_s_per_byte: float = 1e-10,
        noise: float = 0.0,
        hides_sync: bool = False,
        wrong: str | None = None,
        wrong_unit: str | None = None,
        cold: float = 1.0,
        seed: int = 0,
        gpu_s: Callable[[int, int, int], float] = gpu_time_s,
        npu_s: Callable[[int, int, int], float] = npu_time_s,
    ) -> None:
        self.factors, self.sync_s, self.copy_s_per_byte = factors, sync_s, copy_s_per_byte
        self.noise, self.hides_sync = noise, hides_sync
        self.wrong, self.wrong_unit, self.cold = wrong, wrong_unit, cold
        self._cached: set[tuple[str, int, int]] = set()
        self.gpu_s, self.npu_s = gpu_s, npu_s
        self.now_s = 0.0
        self.num_runs = 0
        self.closed = False
        self._random = random.Random(seed)
        self._loaded: dict[Matmul, set[Split]] = {}
        self._last: dict[Matmul, Split] = {}
        self._outputs: dict[Matmul, NDArray[np.float32]] = {}

    gpu = UnitFacts(name="fake gpu", role=GPU)
    npu = UnitFacts(name="fake npu", role=NPU, tile=32)
    mechanisms = ("flag", "pipe")

    def clock(self) -> float:
        return self.now_s

    def load(self, matmul: Matmul, splits: Sequence[Split]) -> Mapping[tuple[int, int, int], float]:
        for split in splits:
            check_split(matmul, split)
        self._loaded.setdefault(matmul, set()).update(splits)
        shapes = {part.shape for split in splits for part in split.of(NPU)}
        return {(rows, matmul.cols, padded): 0.02 for rows, padded in shapes}

    def run(self, matmul: Matmul, split: Split, *, mechanism: str | None = None) -> SplitTiming:
        assert split in self._loaded[matmul]
        self.num_runs += 1
        weight = matmul.name, matmul.rows, matmul.cols
        timing = self.timing(matmul, split, mechanism, factor=1.0 if weight in self._cached else self.cold)
        self._cached.add(weight)
        self.now_s += timing.total_s + 50e-6
        self._last[matmul] = split
        return timing

    def timing(self, matmul: Matmul, split: Split, mechanism: str | None = None, *, factor: float = 1.0) -> SplitTiming:
        gpu_s = sum(factor * self._noisy(self.gpu_s(p.num_rows, matmul.cols, p.num_tokens)) for p in split.of(GPU))
        npu_s = sum(factor * self._noisy(self.npu_s(p.num_rows, matmul.cols, p.padded_tokens)) for p in split.of(NPU))
        copy_s = sum(self._copied_s(part) for part in split.of(NPU))
        sync_s = self.sync_s * (10 if mechanism == "pipe" else 1) if split.of(NPU) else 0.0
        if gpu_s and npu_s:
            gpu_s, npu_s = ends_together_s(gpu_s, npu_s, self.factors)
        npu_s += copy_s
        if self.hides_sync and gpu_s > npu_s + sync_s:
            sync_s = 0.0
        return SplitTiming(
            total_s=max(gpu_s, npu_s) + sync_s,
            gpu_s=gpu_s if split.of(GPU) else None,
            npu_s=npu_s if split.of(NPU) else None,
            sync_s=sync_s,
            copy_s=copy_s,
        )

    def output(self, matmul: Matmul) -> NDArray[np.float32]:
        """NaN where no part of the last run has written."""
        if matmul not in self._outputs:
            weight, activation = self.operands(matmul)
            self._outputs[matmul] = weight @ activation
        output = np.full((matmul.rows, matmul.tokens), np.nan, dtype=np.float32)
        for part in self._last[matmul].parts if matmul in self._last else ():
            rows = slice(part.first_row, part.first_row + part.num_rows)
            tokens = slice(part.first_token, part.first_token + part.num_tokens)
            is_wrong = self._last[matmul].strategy == self.wrong and self.wrong_unit in (None, part.unit)
            output[rows, tokens] = self._outputs[matmul][rows, tokens] * np.float32(1 + is_wrong)
        return output

    def spoil_output(self, matmul: Matmul) -> None:
        self._last.pop(matmul, None)

    def operands(self, matmul: Matmul) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        generator = np.random.default_rng(matmul.rows)
        weight = generator.standard_normal((matmul.rows, matmul.cols), dtype=np.float32)
        return weight, np.ones((matmul.cols, matmul.tokens), dtype=np.float32)

    def round_trips_s(self, mechanism: str, num_trips: int) -> tuple[float, ...]:
        return (self.sync_s * (10 if mechanism == "pipe" else 1),) * num_trips

    def stream_bytes_per_s(self, units: Sequence[str], num_bytes: int) -> Mapping[str, float]:
        return dict.fromkeys(units, 1e10)

    def evict(self) -> None:
        self._cached.clear()

    def unload(self) -> None:
        self._loaded.clear()

    def close(self) -> None:
        self.closed = True

    def _copied_s(self, part: Part) -> float:
        return part.num_rows * part.num_tokens * 4 * self.copy_s_per_byte

    def _noisy(self, seconds: float) -> float:
        return seconds * (1 + self.noise * self._random.uniform(-1, 1))
