"""A calibrated step cost as a file: what was fitted, for what, from what, and how well it did.

JSON format "npubench-step-cost", history of versions:
    1  model, hardware, tensor_parallel, pipeline_parallel, data_parallel, is_expert_parallel, dtype, kv_dtype,
       kv_capacity_tokens, is_capacity_guessed, asynchronous, terms, unit_s, logs, centre, curve, experts, seen,
       source, stack, errors, doubts
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from pytest_npubench.core.documents import json_value
from pytest_npubench.core.record_reader import JSON, WrongEntryError
from pytest_npubench.core.regular_file import SMALL_BYTES, read_text, replace_text
from pytest_npubench.engines.kv_capacity import dtype_bytes
from pytest_npubench.engines.shapes import DecoderShape
from pytest_npubench.errors import ConfigError, StoreError
from pytest_npubench.extensions.planning.virtual.calibration import Calibration, Prior
from pytest_npubench.extensions.planning.virtual.measured_router import MeasuredRouter
from pytest_npubench.serving.log import IterationLog

FORMAT, VERSION = "npubench-step-cost", 1
NO_HARDWARE = "unknown"
NEARLY_FULL = 0.9
MARGIN = 1.25  # times what was seen: a form of bytes and operations carries a little further


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The most of each that one iteration of the calibrating run had; beyond it the cost extrapolates. prefill_pairs:
    tokens that its prompts' tokens attend to, 0 where that is not known."""

    prefill_tokens: int
    decode_rows: int
    context_tokens: int
    prefill_pairs: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CostFile:
    """terms: names of calibrated.CalibratedCost; unit_s: their seconds at the published peaks; logs: posterior draws of
    the logarithms of their factors; centre: those of the one cost that stands for them, none: their mean; curve: what
    rows are worth (calibrated.Curve), where iterations told; experts: of one layer, that so many tokens activate, where
    iterations told (measured_router.MeasuredRouter.knots). num_seen: requests, or iterations, that it was calibrated
    on. stack: what served them, as far as it is known. errors: simulated over measured - 1 of the others. doubts: why
    it may be wrong."""

    model: str
    num_layers: int
    num_parameters: int | None = None
    has_experts: bool
    hardware: str
    tensor_parallel: int
    dtype: str
    asynchronous: bool
    pipeline_parallel: int = 1
    data_parallel: int = 1
    is_expert_parallel: bool = False
    kv_dtype: str | None = None
    kv_capacity_tokens: int
    is_capacity_guessed: bool = False
    keeps_blocks: bool = True
    terms: tuple[str, ...]
    unit_s: tuple[float, ...]
    logs: tuple[tuple[float, ...], ...]
    centre: tuple[float, ...] = ()
    curve: tuple[tuple[float, float], ...] = ()
    experts: tuple[tuple[float, float], ...] = ()
    seen: Seen
    source: str
    num_seen: int
    stack: str = ""
    errors: Mapping[str, float]
    doubts: tuple[str, ...] = ()
    format: str = FORMAT
    version: int = VERSION

    @property
    def is_over_peaks(self) -> bool:
        """Its factors are over a hardware file's peaks, and not over a first fit."""
        return self.hardware != NO_HARDWARE

    @property
    def num_sharing(self) -> int:
        """Replicas that share their experts."""
        return self.data_parallel if self.is_expert_parallel else 1

    def __post_init__(self) -> None:
        if (self.format, self.version) != (FORMAT, VERSION):
            raise WrongEntryError("format", f"{self.format} {self.version}; want {FORMAT} {VERSION}")
        if not self.terms or len(self.unit_s) != len(self.terms) or not self.logs:
            raise WrongEntryError("unit_s", f"{len(self.unit_s)} numbers for {len(self.terms)} terms; want one each")
        if any(len(row) != len(self.terms) for row in self.logs):
            raise WrongEntryError("logs", f"want rows of {len(self.terms)} numbers, one a term")
        if self.centre and len(self.centre) != len(self.terms):
            raise WrongEntryError("centre", f"{len(self.centre)} numbers for {len(self.terms)} terms; want one each")
        points = list(self.curve)
        rises = all(low[0] < high[0] and low[1] <= high[1] for low, high in pairwise(points))
        if points and not (len(points) > 1 and points[0] == (0.0, 0.0) and rises):
            raise WrongEntryError("curve", "want two points or more that rise from 0, 0")

    @property
    def router(self) -> MeasuredRouter | None:
        return MeasuredRouter(self.experts) if self.experts else None

    def beyond(self, log: IterationLog, shape: DecoderShape, guessed_tokens: int | None = None) -> tuple[str, ...]:
        """What an iteration of this log has more of than any that was calibrated on, in words; none: nothing.
        guessed_tokens: of the KV cache, where no engine stated its size."""
        now = seen_in(log, shape, self.kv_dtype or self.dtype)
        return filled(now, guessed_tokens) + tuple(
            f"{name.replace('_', ' ')}: up to {highest}, calibrated on up to {calibrated}"
            for name, calibrated in asdict(self.seen).items()
            if (highest := getattr(now, name)) > MARGIN * calibrated and (calibrated or name != "prefill_pairs")
        )

    def calibration(self, shape: DecoderShape) -> Calibration:
        """Raises ConfigError where it was fitted on another model."""
        if (shape.num_layers, shape.is_dense) != (self.num_layers, not self.has_experts) or shape.name != self.model:
            raise ConfigError(
                f"the step cost is of {self.model} ({self.num_layers} layers), not of {shape.name} "
                f"({shape.num_layers} layers); calibrate on a run of it"
            )
        if self.num_parameters not in (None, shape.num_parameters):
            raise ConfigError(
                f"the step cost is of {self.model} with {self.num_parameters:,} parameters, not of one with "
                f"{shape.num_parameters:,}; calibrate on a run of it"
            )
        return self.calibration_as_is(shape)

    def calibration_as_is(self, shape: DecoderShape) -> Calibration:
        """Whatever model it was fitted on."""
        number = len(self.terms)
        nothing, none = np.zeros(number), np.zeros((number, number))
        unit_s = np.array(self.unit_s)
        prior = Prior(names=self.terms, unit_s=unit_s, mean=nothing, covariance=none, curve=self.curve)
        logs = np.array(self.logs)
        return Calibration(prior=prior, shape=shape, logs=logs, centre=np.array(self.centre or logs.mean(axis=0)))


def filled(seen: Seen, guessed_tokens: int | None) -> tuple[str, ...]:
    """In words, where a KV cache of a size that was guessed was nearly full."""
    if guessed_tokens is None or seen.context_tokens < NEARLY_FULL * guessed_tokens:
        return ()
    return (
        f"the KV cache was {seen.context_tokens / guessed_tokens:.0%} full, and no engine stated its size: "
        f"{guessed_tokens} tokens are what memory leaves; want --kv-capacity as the engine says when it starts",
    )


def seen_in(log: IterationLog, shape: DecoderShape, dtype: str, *, until_s: float = float("inf")) -> Seen:
    """Of the iterations that started before until_s."""
    number = max(1, sum(start_s < until_s for start_s in log.start_s))
    token_bytes = shape.kv_bytes_per_token(dtype_bytes(dtype))
    return Seen(
        prefill_tokens=max(log.num_prefill_tokens[:number]),
        decode_rows=max(log.num_decode[:number]),
        context_tokens=int(max(log.kv_bytes[:number]) / token_bytes),
        prefill_pairs=max(log.num_prefill_pairs[:number]),
    )


def read_cost_file(path: Path) -> CostFile:
    """Of one stage, where it says nothing of stages. Raises StoreError naming the file and the place in it that is
    wrong."""
    try:
        content = JSON.table(json_value(read_text(path, SMALL_BYTES)), "")
        return JSON.record(CostFile, {"pipeline_parallel": 1, **content})
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror or error}") from error
    except ValueError as error:
        raise StoreError(f"{path}: {error}") from error


def write_cost_file(path: Path, content: CostFile) -> None:
    """Raises OSError where it cannot be written."""
    replace_text(path, json.dumps(asdict(content)) + "\n")
