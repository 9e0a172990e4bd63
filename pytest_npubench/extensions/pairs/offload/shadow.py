"""Shadow outliers: INT8 on the static unit, the few large channels in float32 on the other (llm.npu, section 3.3).

Arms, for every share of outlier channels:

    fp32           the whole product in float32 on the static unit: the reference
    max_min        INT8 with the per-tensor max-min scale, outliers included
    clip           INT8 with the scale of the other channels; what exceeds it is cut off
    serial         clip, then the residual of the outlier channels on the other unit
    parallel_fast  both at once, awaited by a polled flag
    parallel_slow  both at once, awaited through a pipe
    mixed          both in one graph of the static unit, for the hot channels of the profile

What a visit leaves is ShadowVisit, with sync_fraction = (total - the longer part) / total.

Worked number: total 5.0 ms, static 4.0, dynamic 1.5: sync (5.0 - 4.0) / 5.0 = 0.20. Error at 256 x 2048 x 2048 with
8 outlier channels, mean of four seeds: max_min 0.148, clip 0.863, shadow 0.0056.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from pytest_npubench.core.clock import perf_counter
from pytest_npubench.engines.outliers import OutlierCase, activation, weight
from pytest_npubench.engines.quantization import ActivationCalibration, Floats, calibrate, max_min_scale, relative_error
from pytest_npubench.errors import ConfigError
from pytest_npubench.extensions.pairs.offload.units import (
    FAST,
    SLOW,
    Figures,
    OffloadPoint,
    Units,
    make_arrays,
    point_of,
)

EXPERIMENT = "shadow"
SHADOW_ARMS = ("serial", "parallel_fast", "parallel_slow")
ARMS = ("fp32", "max_min", "clip", *SHADOW_ARMS, "mixed")
PROFILE_BATCH = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowSettings:
    """One operator and the numbers of outlier channels to sweep. Raises ConfigError for none, one given twice, or one
    outside 0..num_channels."""

    num_tokens: int = 64
    num_channels: int = 1024
    num_rows: int = 1024
    num_outliers: tuple[int, ...] = (0, 8, 64, 256, 1024)
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.num_outliers or len(set(self.num_outliers)) < len(self.num_outliers):
            raise ConfigError(f"num_outliers is {self.num_outliers}; want one or more, none twice")
        for count in self.num_outliers:
            self.case(count)

    def case(self, num_outliers: int) -> OutlierCase:
        return OutlierCase(
            num_tokens=self.num_tokens,
            num_channels=self.num_channels,
            num_rows=self.num_rows,
            num_outliers=num_outliers,
            seed=self.seed,
        )

    def points(self) -> tuple[OffloadPoint, ...]:
        return tuple(
            OffloadPoint(experiment=EXPERIMENT, arm=arm, setting=setting_name(count))
            for count in self.num_outliers
            for arm in ARMS
        )


def setting_name(num_outliers: int) -> str:
    return f"{num_outliers} outliers"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowVisit(Figures):
    """static_s, dynamic_s: each unit's own part. num_outlier_channels: as found in the activation."""

    total_s: float
    static_s: float
    dynamic_s: float
    sync_fraction: float
    num_outlier_channels: float
    relative_error: float


class ShadowBench:
    """See the module. Runs in the dynamic unit's process."""

    KERNELS = "pytest_npubench.extensions.pairs.offload.shadow_kernels"

    def __init__(self, settings: ShadowSettings, units: Units) -> None:
        self.points = settings.points()
        self._settings = settings
        self._units = units
        self._calibrations: dict[int, ActivationCalibration] = {}
        self._references: dict[int, Floats] = {}

    def load(self) -> None:
        for count in self._settings.num_outliers:
            self._load(count)

    def measure(self, name: str) -> ShadowVisit:
        point = point_of(self.points, name)
        count = int(point.setting.split()[0])
        self._units.static.arm(_mechanism(point.arm))
        run = self._shadow if point.arm in SHADOW_ARMS else self._alone
        ran = run(point.arm, count)
        output = self._units.arena.view(f"{count}/y")
        return ShadowVisit(
            total_s=ran.total_s,
            static_s=ran.static_s,
            dynamic_s=ran.dynamic_s,
            sync_fraction=sync_fraction(ran.total_s, ran.static_s, ran.dynamic_s, serial=point.arm == "serial"),
            num_outlier_channels=ran.num_found,
            relative_error=relative_error(output, self._references[count]),
        )

    def _load(self, count: int) -> None:
        case, arena = self._settings.case(count), self._units.arena
        tokens, rows = case.num_tokens, case.num_rows
        make_arrays(arena, {f"{count}/x": (tokens, case.num_channels), f"{count}/w": (case.num_channels, rows)})
        make_arrays(arena, {f"{count}/{name}": (tokens, rows) for name in ("y", "bulk")})
        x, w = arena.view(f"{count}/x"), arena.view(f"{count}/w")
        x[:], w[:] = activation(case), weight(case)
        self._references[count] = (x.astype(np.float64) @ w.astype(np.float64)).astype(np.float32)
        calibration = calibrate(activation(case, batch=PROFILE_BATCH), count)
        self._calibrations[count] = calibration
        for key, spec in _graphs(count, calibration, max_min_scale(x)).items():
            self._units.static.build(f"{count}/{key}", spec)

    def _alone(self, arm: str, count: int) -> _Ran:
        began_s = perf_counter()
        static_s = self._static(arm, count)
        return _Ran(perf_counter() - began_s, static_s, 0.0, 0)

    def _static(self, key: str, count: int) -> float:
        self._units.static.submit([f"{count}/{key}"], mechanism=FAST)
        return self._units.static.wait()[0]

    def _shadow(self, arm: str, count: int) -> _Ran:
        """The bulk goes to the static unit; this process finds the outliers, multiplies them, and adds the two."""
        arena, calibration = self._units.arena, self._calibrations[count]
        product = _torch_residual(arena.view(f"{count}/x"), arena.view(f"{count}/w"), calibration)
        bulk, output = arena.view(f"{count}/bulk"), arena.view(f"{count}/y")
        began_s = perf_counter()
        if arm == "serial":
            static_s = self._static("bulk", count)
            rest, num_found, dynamic_s = product()
        else:
            self._units.static.submit([f"{count}/bulk"], mechanism=_mechanism(arm))
            rest, num_found, dynamic_s = product()
            static_s = self._units.static.wait()[0]
        dynamic_s += _add(bulk, rest, output)
        return _Ran(perf_counter() - began_s, static_s, dynamic_s, num_found)


class _Ran(NamedTuple):
    """One product: seconds of all of it and of each unit's part, and the outlier channels found."""

    total_s: float
    static_s: float
    dynamic_s: float
    num_found: int


def _mechanism(arm: str) -> str:
    return SLOW if arm == "parallel_slow" else FAST


def _graphs(count: int, calibration: ActivationCalibration, x_scale: float) -> dict[str, dict[str, object]]:
    shared: dict[str, object] = {"x": f"{count}/x", "weight": f"{count}/w", "output": f"{count}/y", "kind": "int8"}
    mixed = {**shared, "kind": "mixed", "scale": calibration.scale, "channels": calibration.hot_channels}
    return {
        "fp32": {**shared, "kind": "fp32"},
        "max_min": {**shared, "scale": x_scale},
        "clip": {**shared, "scale": calibration.scale},
        "bulk": {**shared, "scale": calibration.scale, "output": f"{count}/bulk"},
        "mixed": mixed if calibration.hot_channels else {**shared, "scale": calibration.scale},
    }


def _torch_residual(x: Floats, w: Floats, calibration: ActivationCalibration) -> Callable[[], tuple[Any, int, float]]:
    """Finds the channels that exceed the limit in this activation, and multiplies what does; None where none do."""
    import torch

    activations, weights, limit = torch.from_numpy(x), torch.from_numpy(w), calibration.limit

    def product() -> tuple[Any, int, float]:
        began_s = perf_counter()
        outliers = (activations.abs().amax(dim=0) > limit).nonzero().flatten()
        rest = None
        if len(outliers):
            some = activations[:, outliers]
            rest = (some - some.clamp(-limit, limit)) @ weights[outliers]
        return rest, len(outliers), perf_counter() - began_s

    return product


def _add(bulk: Floats, rest: Any, output: Floats) -> float:
    """Returns the sum of both units' results; seconds."""
    began_s = perf_counter()
    if rest is None:
        np.copyto(output, bulk)
    else:
        np.add(bulk, rest.numpy(), out=output)
    return perf_counter() - began_s


def sync_fraction(total_s: float, static_s: float, dynamic_s: float, *, serial: bool = False) -> float:
    """(total - the longer part) / total; for a serial run what both parts leave. Raises ConfigError: total not > 0."""
    if not total_s > 0:
        raise ConfigError(f"total_s is {total_s}; want more than 0 seconds")
    parts_s = static_s + dynamic_s if serial else max(static_s, dynamic_s)
    return (total_s - parts_s) / total_s


def crossover(shares: Sequence[float], pair_s: Sequence[float], one_unit_s: Sequence[float]) -> float | None:
    """Returns the least share of outlier channels from which one unit in mixed precision beats the pair at every larger
    share, between two measured shares by a straight line of the ratio; None where it never does.

    Worked number: shares (0, 0.5), pair (1, 3), one unit (2, 2): ratios 0.5 and 1.5, crossover 0.25. Raises ConfigError
    where the three differ in length, none is given, or shares do not increase.
    """
    if not shares or len({len(shares), len(pair_s), len(one_unit_s)}) > 1:
        raise ConfigError(f"{len(shares)} shares, {len(pair_s)} and {len(one_unit_s)} times; want as many of each")
    if list(shares) != sorted(set(shares)):
        raise ConfigError(f"shares are {tuple(shares)}; want them increasing")
    ratios = [pair / one for pair, one in zip(pair_s, one_unit_s, strict=True)]
    if ratios[-1] <= 1:
        return None
    above = len(ratios)
    while above and ratios[above - 1] > 1:
        above -= 1
    if not above:
        return shares[0]
    low, high = ratios[above - 1], ratios[above]
    return shares[above - 1] + (shares[above] - shares[above - 1]) * (1 - low) / (high - low)
