"""What leaving outliers out costs in error, and what it saves: by channels, by layers, by a hot list out of date.

llm.npu keeps the shadow of the 15 % most important layers only ("85 % pruned", section 3.3) and caches the weights of
hot channels alone. Its reviewers ask how the threshold was chosen and what a shift of the input does. These are numbers
of synthetic layers; a relative error here is no model's accuracy.

    importance of a layer = max |x| / (127 s): how far its largest outlier lies beyond what INT8 holds
    miss rate = channels found to exceed the limit that are not on the hot list / channels found

Worked number: 8 hot channels, half of them moved: 4 of the 8 found are not on the list: miss rate 0.5; fetched in
float32 for 2048 rows they are 4 * 2048 * 4 = 32,768 bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pytest_npubench.engines.outliers import OutlierCase, activation, shifted_channels, weight
from pytest_npubench.engines.quantization import (
    ActivationCalibration,
    Floats,
    calibrate,
    finite_tensor,
    int8_product,
    relative_error,
    residual,
    shadow_product,
)
from pytest_npubench.errors import ConfigError

FLOAT_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class PruningOutcome:
    """pruned_fraction: of outlier channels or of layers. work_fraction: of the shadow's multiplications that are left.
    relative_error: of one product, or the mean over the layers."""

    pruned_fraction: float
    work_fraction: float
    relative_error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MissOutcome:
    """dropped_error: with the missed channels left out; fetched_error: with their weights fetched, fetched_bytes of
    them."""

    moved_fraction: float
    miss_fraction: float
    dropped_error: float
    fetched_error: float
    fetched_bytes: int


def prune_channels(case: OutlierCase, pruned_fractions: Sequence[float]) -> tuple[PruningOutcome, ...]:
    """Leave out the outlier channels with the least residual, that share of them. Raises ConfigError outside 0..1."""
    _check_shares(pruned_fractions)
    x, w, reference, known = _operator(case)
    sizes = np.linalg.norm(residual(x, known), axis=0)
    found = np.flatnonzero(sizes)
    ranked = found[np.argsort(-sizes[found], kind="stable")]
    outcomes = []
    for share in pruned_fractions:
        kept = tuple(int(channel) for channel in ranked[: _num_kept(len(ranked), share)])
        outcomes.append(
            PruningOutcome(
                pruned_fraction=share,
                work_fraction=len(kept) / len(ranked) if len(ranked) else 0.0,
                relative_error=relative_error(shadow_product(x, w, known, kept), reference),
            )
        )
    return tuple(outcomes)


def prune_layers(cases: Sequence[OutlierCase], pruned_fractions: Sequence[float]) -> tuple[PruningOutcome, ...]:
    """Run the least important layers without a shadow, clipped, that share of them; one case a layer."""
    _check_shares(pruned_fractions)
    if not cases:
        raise ConfigError("no layers; want at least one")
    layers = [_layer(case) for case in cases]
    ranked = sorted(range(len(layers)), key=lambda index: -layers[index].importance)
    total = sum(layer.num_found for layer in layers)
    outcomes = []
    for share in pruned_fractions:
        kept = set(ranked[: _num_kept(len(layers), share)])
        errors = [layer.shadow_error if index in kept else layer.clip_error for index, layer in enumerate(layers)]
        work = sum(layers[index].num_found for index in kept)
        outcomes.append(
            PruningOutcome(
                pruned_fraction=share,
                work_fraction=work / total if total else 0.0,
                relative_error=sum(errors) / len(errors),
            )
        )
    return tuple(outcomes)


def miss_rates(case: OutlierCase, moved_fractions: Sequence[float]) -> tuple[MissOutcome, ...]:
    """Run with the hot list and scale of the profile on activations whose hot channels have moved in part."""
    _check_shares(moved_fractions)
    return tuple(_miss(case, share) for share in moved_fractions)


def make_layers(case: OutlierCase, num_layers: int) -> tuple[OutlierCase, ...]:
    """Layers alike but for their seeds and magnitudes, which fall from the case's own to 2 by equal ratios: the first
    layers of a decoder have the largest outliers. Raises ConfigError below one layer."""
    if num_layers < 1:
        raise ConfigError(f"num_layers is {num_layers}; want at least 1")
    magnitudes = np.geomspace(case.magnitude, 2.0, num_layers)
    return tuple(
        OutlierCase(
            num_tokens=case.num_tokens,
            num_channels=case.num_channels,
            num_rows=case.num_rows,
            num_outliers=case.num_outliers,
            magnitude=float(magnitude),
            spread=case.spread,
            seed=case.seed + index,
        )
        for index, magnitude in enumerate(magnitudes)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layer:
    importance: float
    num_found: int
    clip_error: float
    shadow_error: float


def _layer(case: OutlierCase) -> _Layer:
    x, w, reference, known = _operator(case)
    return _Layer(
        importance=float(np.abs(x).max()) / known.limit,
        num_found=int(residual(x, known).any(axis=0).sum()),
        clip_error=relative_error(int8_product(x, w, known.scale), reference),
        shadow_error=relative_error(shadow_product(x, w, known), reference),
    )


def _miss(case: OutlierCase, share: float) -> MissOutcome:
    known = calibrate(activation(case, batch=1), case.num_outliers)
    x = finite_tensor("x", activation(case, hot_channels=shifted_channels(case, share)))
    w = weight(case)
    reference = x @ w
    found = np.flatnonzero(residual(x, known).any(axis=0))
    missed = np.setdiff1d(found, known.hot_channels)
    listed = tuple(int(channel) for channel in np.intersect1d(found, known.hot_channels))
    return MissOutcome(
        moved_fraction=share,
        miss_fraction=len(missed) / len(found) if len(found) else 0.0,
        dropped_error=relative_error(shadow_product(x, w, known, listed), reference),
        fetched_error=relative_error(shadow_product(x, w, known), reference),
        fetched_bytes=len(missed) * case.num_rows * FLOAT_BYTES,
    )


def _operator(case: OutlierCase) -> tuple[Floats, Floats, Floats, ActivationCalibration]:
    x, w = activation(case), weight(case)
    return x, w, x @ w, calibrate(activation(case, batch=1), case.num_outliers)


def _num_kept(count: int, pruned_fraction: float) -> int:
    return count - round(pruned_fraction * count)


def _check_shares(shares: Sequence[float]) -> None:
    for share in shares:
        if not 0 <= share <= 1:
            raise ConfigError(f"a share of {share}; want one between 0 and 1")
