"""The partition part of a hardware file: which pair of units runs which models, on what grid, how long.

[partition] names the pairs (pairs/partition/units), the token counts that the static unit has graphs for, its
tile in weight rows, and the shares of the rows that the GPU may get in decode and in prefill (HeteroInfer, Table 3, has
quarters there and fifths here). [partition.profile.*] says what a run of that profile does; one that is not named does
nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated

from msgspec import Meta

from pytest_npubench.core.hardware import RunLength, known_profiles, size_of
from pytest_npubench.core.record_reader import Count, Counts, Text, Texts, check_within, increasing, key, one_of, within
from pytest_npubench.extensions.pairs.suites.partition import SUITE

_SHARES = "a list of one or more numbers above 0 and below 1, each larger than the one before"
Shares = Annotated[tuple[Annotated[float, Meta(gt=0, lt=1)], ...], Meta(min_length=1, description=_SHARES), increasing]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSize(RunLength):
    """What a profile runs; all of the section's models where it names none. `lengths` are the token counts S that
    splits are made for."""

    models: Texts = ()
    experiments: Annotated[Texts, within(SUITE.kinds)] = SUITE.kinds
    lengths: Counts


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSpec:
    """How a device is split. Shares are the GPU's part of the weight rows. further_pairs are measured as well as
    `pair`, asked_pairs only where --npubench-pair names them; their cases have an axis with the pair's name. dtype: of
    operands where a kind names none."""

    pair: Text
    further_pairs: Texts = ()
    asked_pairs: Texts = ()
    models: Texts
    standard_sizes: Counts
    tile: Count = 1
    dtype: Annotated[str, one_of(("fp32", "bf16"))] = "fp32"
    decode_shares: Shares
    prefill_shares: Shares
    profiles: Annotated[tuple[PartitionSize, ...], known_profiles] = field(metadata=key("profile"))

    def __post_init__(self) -> None:
        """Raises WrongEntryError where a profile names a model that the section does not."""
        for size in self.profiles:
            check_within(f"profile.{size.name}.models", size.models, self.models)

    def pairs(self, asked: str | None) -> tuple[str, ...]:
        """Those to measure: the one that a run asks for, where the device has it, else all but the asked_pairs."""
        if asked is None:
            return (self.pair, *self.further_pairs)
        return tuple(pair for pair in (self.pair, *self.further_pairs, *self.asked_pairs) if pair == asked)

    def size(self, profile: str) -> PartitionSize | None:
        """Returns the run size of that name; None where the profile splits nothing."""
        size = size_of(self.profiles, profile)
        return size and replace(size, models=size.models or self.models)
