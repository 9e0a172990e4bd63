"""The partition part of a hardware file: which pair of units runs which models, on what grid, how long.

[partition] names the pair (pytest_npubench.partition.units), the token counts that the static unit has graphs for, its
tile in weight rows, and the shares of the rows that the GPU may get in decode and in prefill (HeteroInfer, Table 3, has
quarters there and fifths here). [partition.profile.*] says what a run of that profile does.
"""

from __future__ import annotations

from dataclasses import dataclass

from pytest_npubench.core.toml_table import TomlTable
from pytest_npubench.partition.pair_size import PairSize, pair_sizes
from pytest_npubench.suites.partition import SUITE

PARTITION_KEYS = ("pair", "models", "standard_sizes", "tile", "decode_shares", "prefill_shares", "profile")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSpec:
    """How a device is split. Shares are the GPU's part of the weight rows, each between 0 and 1."""

    pair: str
    models: tuple[str, ...]
    standard_sizes: tuple[int, ...]
    tile: int
    decode_shares: tuple[float, ...]
    prefill_shares: tuple[float, ...]
    profiles: tuple[PairSize, ...]


def read_partition(root: TomlTable) -> PartitionSpec:
    """The [partition] table. Raises HardwareFileError naming the file, the dotted key and what is allowed."""
    table = root.table("partition", PARTITION_KEYS)
    models = table.strings("models")
    return PartitionSpec(
        pair=table.text("pair"),
        models=models,
        standard_sizes=table.increasing("standard_sizes"),
        tile=table.integer("tile", default=1),
        decode_shares=table.shares("decode_shares"),
        prefill_shares=table.shares("prefill_shares"),
        profiles=pair_sizes(table, models, SUITE.kinds),
    )
