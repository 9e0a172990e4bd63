"""The partition and offload parts of a hardware file: which pair of units runs which models, on what grid, how long.

[partition] names the pair (pytest_npubench.partition.units), the token counts that the static unit has graphs for, its
tile in weight rows, and the shares of the rows that the GPU may get in decode and in prefill (HeteroInfer, Table 3, has
quarters there and fifths here). [offload] names the pair for llm.npu's techniques. [partition.profile.*] and
[offload.profile.*] say what a run of that profile does; a profile that is not named does nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from pytest_npubench.toml_table import Table

PROFILES = ("quick", "nightly", "full")
PARTITION_EXPERIMENTS = (
    "gpu_linear",
    "sync_cost",
    "npu_stage",
    "npu_order",
    "npu_shape",
    "bandwidth",
    "graph_generation",
    "overlap",
    "solver",
    "solver_regret",
    "bucket_edges",
    "decoder_layer",
)
OFFLOAD_EXPERIMENTS = ("chunk_sharing", "shadow_outlier", "pruning", "out_of_order", "contention", "factorial")
PARTITION_KEYS = ("pair", "models", "standard_sizes", "tile", "decode_shares", "prefill_shares", "profile")
OFFLOAD_KEYS = ("pair", "profile")


@dataclass(frozen=True, slots=True, kw_only=True)
class PairSize:
    """What a profile runs on a pair of units. `lengths` are the token counts S that splits are made for."""

    name: str
    models: tuple[str, ...]
    experiments: tuple[str, ...]
    lengths: tuple[int, ...]
    min_rounds: int
    max_rounds: int
    budget_s: float


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


@dataclass(frozen=True, slots=True, kw_only=True)
class OffloadSpec:
    """On which pair llm.npu's techniques run."""

    pair: str
    profiles: tuple[PairSize, ...]


def size_of(spec: PartitionSpec | OffloadSpec, profile: str) -> PairSize | None:
    """The run size of that name; None where the profile does nothing."""
    return next((size for size in spec.profiles if size.name == profile), None)


def read_partition(table: Table) -> PartitionSpec:
    """The [partition] table. Raises HardwareFileError naming the file, the dotted key and what is allowed."""
    models = table.strings("models")
    return PartitionSpec(
        pair=table.text("pair"),
        models=models,
        standard_sizes=table.increasing("standard_sizes"),
        tile=table.integer("tile", default=1),
        decode_shares=table.shares("decode_shares"),
        prefill_shares=table.shares("prefill_shares"),
        profiles=_sizes(table.table("profile", PROFILES), models, PARTITION_EXPERIMENTS),
    )


def read_offload(table: Table) -> OffloadSpec:
    """The [offload] table. Raises HardwareFileError likewise."""
    return OffloadSpec(
        pair=table.text("pair"), profiles=_sizes(table.table("profile", PROFILES), (), OFFLOAD_EXPERIMENTS)
    )


def _sizes(profiles: Table, models: tuple[str, ...], experiments: tuple[str, ...]) -> tuple[PairSize, ...]:
    keys = ["experiments", "min_rounds", "max_rounds", "budget_s"]
    keys += ["models", "lengths"] if models else []
    tables = ((name, profiles.table(name, keys)) for name in PROFILES if name in profiles)
    return tuple(_size(name, table, models, experiments) for name, table in tables)


def _size(name: str, table: Table, models: tuple[str, ...], experiments: tuple[str, ...]) -> PairSize:
    min_rounds = table.integer("min_rounds", at_least=2)  # one round has no spread, so no interval
    return PairSize(
        name=name,
        models=table.strings("models", models) if "models" in table else models,
        experiments=table.strings("experiments", experiments) if "experiments" in table else experiments,
        lengths=table.increasing("lengths") if models else (),
        min_rounds=min_rounds,
        max_rounds=table.integer("max_rounds", at_least=min_rounds),
        budget_s=table.number("budget_s"),
    )
