"""How long a campaign on a pair of units goes on, and over what: a profile in a suite's section of a hardware file.

A profile that is not named does nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from pytest_npubench.core.hardware import PROFILES
from pytest_npubench.core.toml_table import TomlTable


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


def size_of(sizes: tuple[PairSize, ...], profile: str) -> PairSize | None:
    """The run size of that name; None where the profile does nothing."""
    return next((size for size in sizes if size.name == profile), None)


def pair_sizes(section: TomlTable, models: tuple[str, ...], experiments: tuple[str, ...]) -> tuple[PairSize, ...]:
    """The profiles of a section. Raises HardwareFileError naming the file, the dotted key and what is allowed."""
    profiles = section.table("profile", PROFILES)
    keys = ["experiments", "min_rounds", "max_rounds", "budget_s"]
    keys += ["models", "lengths"] if models else []
    tables = ((name, profiles.table(name, keys)) for name in PROFILES if name in profiles)
    return tuple(_size(name, table, models, experiments) for name, table in tables)


def _size(name: str, table: TomlTable, models: tuple[str, ...], experiments: tuple[str, ...]) -> PairSize:
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
