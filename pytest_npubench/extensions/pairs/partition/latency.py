"""How long a split takes by a profile: HeteroInfer, section 4.4, with what was measured instead of assumed.

    T = max(T_GPU, T_NPU) + T_sync + T_copy        both units work
    T = T_GPU                                      the GPU alone
    T = T_NPU + T_sync + T_copy                    the NPU alone

GPU: piecewise linear in the tokens, through the measured points; flat up to the threshold of GPU-1 where one was
found; past the last point with the last slope. Between two measured row counts linear in the rows. Token counts that
fill no vector (no multiple of ALIGNMENT) have a line of their own where some were measured: 63 tokens took 1.4 times as
long as 64 on a CPU.
NPU: a staircase. A graph takes the time of the smallest measured one that holds it, in rows and in tokens, and is never
interpolated to less.
Both at once: each unit is slower by its factor while the other works too, and runs at its own speed once that is done.
Where the profile says so, signal and copy are part of the NPU's time inside the maximum.

Worked number: alone 300 us and 400 us, factors 1.2 and 1.25. The GPU ends at 360 us; by then the NPU has done
360 / 1.25 = 288 of its 400 us, so it ends at 360 + 112 = 472 us.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_npubench.errors import PartitionError
from pytest_npubench.extensions.pairs.partition.matmul import GPU, NPU, Matmul, Part, Split
from pytest_npubench.extensions.pairs.partition.number_formats import RESULT_BYTES
from pytest_npubench.extensions.pairs.partition.profile import PartitionProfile

Points = Sequence[tuple[float, float]]

ALIGNMENT = 4  # float32 values in the smallest vector


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitPrediction:
    """A split's seconds. gpu_s and npu_s are alone, 0 where a unit has nothing to do; total_s holds everything."""

    total_s: float
    gpu_s: float
    npu_s: float
    sync_s: float
    copy_s: float
    compile_s: float = 0.0


class LatencyModel:
    """Predicts splits from one profile. Every method raises PartitionError naming what was not measured."""

    def __init__(self, profile: PartitionProfile) -> None:
        self.profile = profile
        self._medians_s: dict[tuple[str, int, bool], dict[int, dict[int, float]]] = {}
        for item in profile.latencies:
            by_rows = self._medians_s.setdefault((item.unit, item.cols, item.is_cold), {})
            by_rows.setdefault(item.rows, {})[item.tokens] = item.median_s

    def gpu_s(self, rows: int, cols: int, tokens: int, *, is_cold: bool = False) -> float:
        by_rows = self._of(GPU, rows, cols, is_cold)
        if tokens in by_rows.get(rows, {}):
            return by_rows[rows][tokens]
        if rows in by_rows:
            return self._line(by_rows[rows], tokens) * self._misaligned_factor(by_rows, tokens)
        points = [(float(known), self.gpu_s(known, cols, tokens, is_cold=is_cold)) for known in sorted(by_rows)]
        return line(points, rows)

    def _line(self, by_tokens: Mapping[int, float], tokens: int) -> float:
        """Through the aligned points, where there are any."""
        aligned = {known: seconds for known, seconds in by_tokens.items() if _is_aligned(known)}
        points = sorted((aligned or by_tokens).items())
        return line(_with_threshold(points, self.profile.gpu_threshold_tokens), tokens)

    def _misaligned_factor(self, by_rows: Mapping[int, Mapping[int, float]], tokens: int) -> float:
        """What a misaligned length takes over an aligned one, by the row count that has most misaligned points."""
        if _is_aligned(tokens):
            return 1.0
        by_tokens = max(by_rows.values(), key=lambda measured: sum(not _is_aligned(length) for length in measured))
        misaligned = sorted((measured, seconds) for measured, seconds in by_tokens.items() if not _is_aligned(measured))
        return max(1.0, line(misaligned, tokens) / self._line(by_tokens, tokens)) if misaligned else 1.0

    def npu_s(self, rows: int, cols: int, padded_tokens: int, *, is_cold: bool = False) -> float:
        by_rows = self._of(NPU, rows, cols, is_cold)
        graphs = [
            (graph_rows, tokens)
            for graph_rows, by_tokens in by_rows.items()
            for tokens in by_tokens
            if graph_rows >= rows and tokens >= padded_tokens
        ]
        if not graphs:
            raise PartitionError(f"no NPU graph that holds [{rows}, {cols}] x {padded_tokens} was measured")
        graph_rows, tokens = min(graphs)
        return by_rows[graph_rows][tokens]

    def copy_s(self, num_bytes: int) -> float:
        """0 where none was measured: the static unit writes into shared memory itself."""
        points = sorted((float(copy.num_bytes), copy.median_s) for copy in self.profile.copies)
        return line(points, num_bytes) if points else 0.0

    def compile_s(self, rows: int, cols: int, tokens: int) -> float:
        """Returns the compile seconds of the measured graph that is nearest in size."""
        if not self.profile.graphs:
            raise PartitionError("no graph's making was timed")
        size = math.log(rows * cols * tokens)
        nearest = min(self.profile.graphs, key=lambda item: abs(math.log(item.rows * item.cols * item.tokens) - size))
        return nearest.compile_s

    def slowdowns(self, matmul: Matmul) -> tuple[float, float]:
        """(GPU's, NPU's) factor: of the same weight at the nearest tokens, else of the nearest weight; else 1."""
        if not self.profile.slowdowns:
            return 1.0, 1.0
        near = min(
            self.profile.slowdowns,
            key=lambda item: (
                (item.rows, item.cols) != (matmul.rows, matmul.cols),
                abs(math.log(item.rows * item.cols / matmul.weight_elements))
                + abs(math.log(item.tokens / matmul.tokens)),
            ),
        )
        return near.gpu_factor, near.npu_factor

    def predict(self, matmul: Matmul, split: Split, mechanism: str | None = None) -> SplitPrediction:
        """Returns the seconds of a split that check_split has passed; of one token on cold weights."""
        cols, is_cold = matmul.cols, matmul.is_decode
        gpu_s = sum(self.gpu_s(part.num_rows, cols, part.num_tokens, is_cold=is_cold) for part in split.of(GPU))
        npu_s = sum(self.npu_s(part.num_rows, cols, part.padded_tokens, is_cold=is_cold) for part in split.of(NPU))
        copy_s = sum(
            self.copy_s(part.num_rows * part.num_tokens * RESULT_BYTES[matmul.dtype]) for part in split.of(NPU)
        )
        sync_s = self.profile.sync(mechanism).p50_s if split.of(NPU) else 0.0
        compile_s = self._compile_s(matmul, split.of(NPU)) if split.prepares_online else 0.0
        total_s = compile_s + self._total_s(matmul, gpu_s, npu_s, copy_s, sync_s)
        return SplitPrediction(
            total_s=total_s, gpu_s=gpu_s, npu_s=npu_s, sync_s=sync_s, copy_s=copy_s, compile_s=compile_s
        )

    def _total_s(self, matmul: Matmul, gpu_s: float, npu_s: float, copy_s: float, sync_s: float) -> float:
        if npu_s == 0:
            return gpu_s
        if gpu_s == 0:
            return npu_s + sync_s + copy_s
        copy_inside, sync_inside = self.profile.copy_inside, self.profile.sync_inside(matmul.tokens)
        gpu_end_s, npu_end_s = ends_together_s(gpu_s, npu_s, self.slowdowns(matmul))
        npu_end_s += (copy_s if copy_inside else 0) + (sync_s if sync_inside else 0)
        outside_s = (0 if copy_inside else copy_s) + (0 if sync_inside else sync_s)
        return max(gpu_end_s, npu_end_s) + outside_s

    def _compile_s(self, matmul: Matmul, parts: Sequence[Part]) -> float:
        return sum(self.compile_s(rows, matmul.cols, tokens) for rows, tokens in {part.shape for part in parts})

    def _of(self, unit: str, rows: int, cols: int, is_cold: bool) -> Mapping[int, Mapping[int, float]]:
        """Returns seconds by rows and tokens; the warm ones where a profile (of a paper) has no cold ones."""
        for key in ((unit, cols, is_cold), (unit, cols, False)):
            if key in self._medians_s:
                return self._medians_s[key]
        raise PartitionError(f"nothing of a weight [{rows}, {cols}] was measured on the {unit}")


def _is_aligned(tokens: int) -> bool:
    return tokens <= ALIGNMENT or tokens % ALIGNMENT == 0


def ends_together_s(gpu_s: float, npu_s: float, factors: tuple[float, float]) -> tuple[float, float]:
    """When each of two units ends that begin together, from their seconds alone and their slowdown factors."""
    slow_gpu_s, slow_npu_s = gpu_s * factors[0], npu_s * factors[1]
    if slow_gpu_s <= slow_npu_s:
        return slow_gpu_s, slow_gpu_s + npu_s - slow_gpu_s / factors[1]
    return slow_npu_s + gpu_s - slow_npu_s / factors[0], slow_npu_s


def line(points: Points, at: float) -> float:
    """Piecewise linear through points sorted by their first figure, all above 0; flat before the first. Past the last
    with the last slope, in proportion where there is one point; never falling."""
    places = [place for place, _ in points]
    index = bisect_left(places, at)
    if index == 0:
        return points[0][1]
    if index == len(points):
        return _beyond(points, at)
    (left, low), (right, high) = points[index - 1], points[index]
    return low + (high - low) * (at - left) / (right - left)


def _beyond(points: Points, at: float) -> float:
    last, value = points[-1]
    if len(points) == 1:
        return value * at / last
    before, previous = points[-2]
    return value + max(0.0, (value - previous) / (last - before)) * (at - last)


def _with_threshold(points: Points, threshold: float | None) -> Points:
    """Returns the points with a flat stretch up to the threshold, where that lies between two of them."""
    index = bisect_left([place for place, _ in points], threshold) if threshold is not None else 0
    if threshold is None or not 0 < index < len(points) or points[index][0] == threshold:
        return points
    return [*points[:index], (threshold, points[index - 1][1]), *points[index:]]
