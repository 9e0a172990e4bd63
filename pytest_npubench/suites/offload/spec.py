"""The offload part of a hardware file: on which pair of units llm.npu's techniques run, and how long."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_npubench.core.toml_table import TomlTable
from pytest_npubench.partition.pair_size import PairSize, pair_sizes
from pytest_npubench.suites.offload import SUITE


@dataclass(frozen=True, slots=True, kw_only=True)
class OffloadSpec:
    """On which pair llm.npu's techniques run."""

    pair: str
    profiles: tuple[PairSize, ...]


def read_offload(root: TomlTable) -> OffloadSpec:
    """The [offload] table. Raises HardwareFileError naming the file, the dotted key and what is allowed."""
    table = root.table("offload", ("pair", "profile"))
    return OffloadSpec(pair=table.text("pair"), profiles=pair_sizes(table, (), SUITE.kinds))
