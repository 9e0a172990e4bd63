"""Published figures of a device, as a hardware file states them: a value, its unit and the document that says so.

Worked example: {value = 3.35, unit = "TB/s", source = "..."} is read as 3.35e12 B/s.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, TypeVar

from msgspec import Meta

from pytest_npubench.core.record_reader import (
    Count,
    Positive,
    Text,
    Texts,
    WrongEntryError,
    check_keys,
    listed,
    one_of,
    text,
)

INTEGER_DTYPES = ("int8", "int4")
DTYPES = ("fp32", "tf32", "bf16", "fp16", "fp8", *INTEGER_DTYPES)
Dtype = Annotated[str, one_of(DTYPES)]
OTHER_PEAKS = ("memory_bandwidth_bytes_per_s", "memory_bytes", "interconnect_bandwidth_bytes_per_s")
SOURCE = "the document that states the figure, with its address"

FigureT = TypeVar("FigureT", bound="Figure")

# unit: factor to the base unit, which comes first
FLOP_UNITS = {"FLOP/s": 1.0, "TFLOP/s": 1e12}
OP_UNITS = {"OP/s": 1.0, "TOP/s": 1e12}
BANDWIDTH_UNITS = {"B/s": 1.0, "GB/s": 1e9, "TB/s": 1e12}
CLOCK_UNITS = {"Hz": 1.0, "GHz": 1e9}
MEMORY_UNITS = {"B": 1.0, "GB": 1e9, "GiB": 2.0**30}


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A published figure in its base unit (FLOP/s, OP/s, B/s or B) and the document that states it."""

    value: Positive
    unit: Text
    source: Annotated[str, text(SOURCE)]


def in_base_unit(figure: Figure, units: Mapping[str, float]) -> Figure:
    """Returns the figure in the first of its units."""
    return Figure(value=figure.value * units[figure.unit], unit=next(iter(units)), source=figure.source)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Peak(Figure):
    """A figure that may leave its source to the [peak] table."""

    source: Annotated[str, text(SOURCE)] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compute(_Peak):
    unit: Annotated[str, one_of((*FLOP_UNITS, *OP_UNITS))]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bandwidth(_Peak):
    unit: Annotated[str, one_of(BANDWIDTH_UNITS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory(_Peak):
    unit: Annotated[str, one_of(MEMORY_UNITS)]


def _flops(figures: Mapping[str, Figure]) -> Mapping[str, Figure]:
    check_keys("", figures, DTYPES)
    units = {dtype: OP_UNITS if dtype in INTEGER_DTYPES else FLOP_UNITS for dtype in DTYPES}
    for dtype, figure in figures.items():
        if figure.unit not in units[dtype]:
            raise WrongEntryError(f"{dtype}.unit", f"want one of {listed(units[dtype])}, not {figure.unit!r}")
    return {dtype: in_base_unit(figure, units[dtype]) for dtype, figure in figures.items()}


_BytesPerS = Annotated[_Bandwidth, partial(in_base_unit, units=BANDWIDTH_UNITS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """What the maker publishes for one chip, dense; None or absent where it publishes nothing.

    interconnect_bandwidth_bytes_per_s is what one chip sends to the others of its group, in one direction. `source` is
    that of the figures that name none. `unverified` names those that nobody has read in their source: dtypes, or keys
    of this table.
    """

    source: Annotated[str, text(SOURCE)] = ""
    flops_per_s: Annotated[Mapping[str, _Compute], _flops] = field(default_factory=dict)
    memory_bandwidth_bytes_per_s: _BytesPerS | None = None
    memory_bytes: Annotated[Memory, partial(in_base_unit, units=MEMORY_UNITS)] | None = None
    interconnect_bandwidth_bytes_per_s: _BytesPerS | None = None
    unverified: Texts = ()


NO_PEAK = Peak()


def sourced(peak: Peak) -> Peak:
    """Returns the peaks, each with its source. Raises WrongEntryError where one has none, and where a figure that is
    not there is called unverified."""

    def with_source(name: str, figure: FigureT) -> FigureT:
        if not (source := figure.source or peak.source):
            raise WrongEntryError(f"{name}.source", f"missing; want {SOURCE}, here or as peak.source")
        return replace(figure, source=source)

    others = {name: figure for name in OTHER_PEAKS if (figure := getattr(peak, name)) is not None}
    for name in peak.unverified:
        if name not in (figures := (*peak.flops_per_s, *others)):
            raise WrongEntryError("unverified", f"{name!r} is no figure here; want some of {', '.join(figures)}")
    return replace(
        peak,
        flops_per_s={dtype: with_source(f"flops_per_s.{dtype}", figure) for dtype, figure in peak.flops_per_s.items()},
        **{name: with_source(name, figure) for name, figure in others.items()},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock(Figure):
    unit: Annotated[str, one_of(CLOCK_UNITS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Link(Figure):
    unit: Annotated[str, one_of(BANDWIDTH_UNITS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """How a device reaches those of other nodes. devices_per_node: that peak.interconnect_bandwidth_bytes_per_s joins.
    bandwidth_bytes_per_s: what one device sends to others, in one direction."""

    devices_per_node: Count
    bandwidth_bytes_per_s: Annotated[_Link, partial(in_base_unit, units=BANDWIDTH_UNITS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Price(Figure):
    unit: Annotated[str, Meta(pattern=r"^[A-Z]{3}/h\Z", description='a currency an hour, such as "USD/h"')]
