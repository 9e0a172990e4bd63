"""What was measured and compiled on one engine of several."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from pytest_npubench.campaign.points import Measured
from pytest_npubench.core.measurement import CompileRecord
from pytest_npubench.suites.buckets.points import Variant

ValueT = TypeVar("ValueT")


def on(measured: Measured, variant: Variant) -> Measured:
    """What was measured on one engine, under the names that it has where there is no other."""

    def without_prefix(named: Mapping[str, ValueT]) -> dict[str, ValueT]:
        prefix = variant.prefix
        return {name.removeprefix(prefix): value for name, value in named.items() if name.startswith(prefix)}

    compiles = without_prefix({record.name: record for record in measured.compiles})
    return replace(
        measured,
        rounds=[without_prefix(row) for row in measured.rounds],
        failures=without_prefix(measured.failures),
        compiles=tuple(replace(record, name=name) for name, record in compiles.items()),
    )


def bucket_binaries(compiles: Iterable[CompileRecord], bucket: int) -> tuple[CompileRecord, ...]:
    """The prefill and decode binaries of one bucket."""
    return tuple(
        record
        for record in compiles
        if record.name.startswith(("prefill-", "decode-")) and record.name.endswith(f"-{bucket}")
    )


def move_binaries(compiles: Iterable[CompileRecord], buckets: Collection[int]) -> tuple[CompileRecord, ...]:
    """Of moves into these buckets."""
    return tuple(
        record for record in compiles if record.name.startswith("move-") and int(record.name.split("-")[-1]) in buckets
    )
