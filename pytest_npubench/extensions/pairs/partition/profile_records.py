"""A profile while it is measured: samples by point, as many as there are so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_npubench.extensions.pairs.partition.descriptors import fit_linear_past_threshold
from pytest_npubench.extensions.pairs.partition.matmul import GPU
from pytest_npubench.extensions.pairs.partition.options import SplitOptions
from pytest_npubench.extensions.pairs.partition.profile import (
    CopyLatency,
    GraphTime,
    PartitionProfile,
    PartKey,
    PartLatency,
    Slowdown,
    SyncLatency,
)

MIN_THRESHOLD_SIZES = 5


class ProfileRecords:
    """Starts empty or from an unfinished profile. Keys are those of the records."""

    def __init__(self, unfinished: PartitionProfile | None = None) -> None:
        self.latencies: dict[PartKey, list[float]] = {}
        self.copies: dict[int, list[float]] = {}
        self.graphs: dict[tuple[int, int, int], float] = {}
        self.slowdowns: dict[tuple[int, int, int], tuple[list[float], list[float]]] = {}
        self.syncs: dict[str, SyncLatency] = {}
        self.exposed_sync_s: dict[bool, list[float]] = {True: [], False: []}  # by whether it is decode
        self.sync_inside = {True: False, False: False}
        if unfinished is not None:
            self._take(unfinished)

    def _take(self, profile: PartitionProfile) -> None:
        self.latencies = {item.key: list(item.samples_s) for item in profile.latencies}
        self.copies = {item.num_bytes: list(item.samples_s) for item in profile.copies}
        self.graphs = {(item.rows, item.cols, item.tokens): item.compile_s for item in profile.graphs}
        self.slowdowns = {item.key: (list(item.gpu), list(item.npu)) for item in profile.slowdowns}
        self.syncs = {item.mechanism: item for item in profile.syncs}
        self.sync_inside = {True: profile.decode_sync_inside, False: profile.prefill_sync_inside}

    def add_slowdown(self, key: tuple[int, int, int], gpu: float, npu: float) -> None:
        pair = self.slowdowns.setdefault(key, ([], []))
        pair[0].append(gpu)
        pair[1].append(npu)

    def profile(self, fingerprint: Mapping[str, str], options: SplitOptions, *, is_finished: bool) -> PartitionProfile:
        latencies = tuple(
            PartLatency(unit=unit, rows=rows, cols=cols, tokens=tokens, samples_s=tuple(samples), is_cold=is_cold)
            for (unit, rows, cols, tokens, is_cold), samples in sorted(self.latencies.items())
        )
        return PartitionProfile(
            fingerprint=tuple(fingerprint.items()),
            options=options,
            latencies=latencies,
            copies=tuple(CopyLatency(num_bytes=size, samples_s=tuple(s)) for size, s in sorted(self.copies.items())),
            graphs=tuple(
                GraphTime(rows=rows, cols=cols, tokens=tokens, compile_s=seconds)
                for (rows, cols, tokens), seconds in sorted(self.graphs.items())
            ),
            slowdowns=tuple(
                Slowdown(rows=rows, cols=cols, tokens=tokens, gpu=tuple(gpu), npu=tuple(npu))
                for (rows, cols, tokens), (gpu, npu) in sorted(self.slowdowns.items())
            ),
            syncs=tuple(self.syncs.values()),
            decode_sync_inside=self._hides(True),
            prefill_sync_inside=self._hides(False),
            copy_inside=any(max(samples) > 0 for samples in self.copies.values()),
            gpu_threshold_tokens=threshold_tokens(latencies),
            is_finished=is_finished,
        )

    def _hides(self, is_decode: bool) -> bool:
        """Whether, with the GPU the slower unit, less than half of the signal's cost is left over."""
        exposed_s = self.exposed_sync_s[is_decode]
        if not exposed_s:
            return self.sync_inside[is_decode]
        fastest = next(iter(self.syncs.values()))
        return sorted(exposed_s)[len(exposed_s) // 2] < fastest.p50_s / 2


def threshold_tokens(latencies: Sequence[PartLatency]) -> float | None:
    """GPU-1 in tokens: the median threshold over the whole operators, where more than half of them show one."""
    sizes: dict[tuple[int, int], dict[int, float]] = {}
    for item in latencies:
        if item.unit == GPU and not item.is_cold:
            sizes.setdefault((item.rows, item.cols), {})[item.tokens] = item.median_s
    curves = [points for points in sizes.values() if len(points) >= MIN_THRESHOLD_SIZES and min(points.values()) > 0]
    fits = [fit_linear_past_threshold(list(points), list(points.values())) for points in curves]
    thresholds = sorted(fit.threshold for fit in fits if fit.threshold is not None)
    return thresholds[len(thresholds) // 2] if 2 * len(thresholds) > len(fits) else None
