"""The serving part of a hardware file: which models are served how, under which load, in which experiments.

[serving] says how the engine runs (dtype, largest batch, KV capacity, the prefill tokens of one iteration, which is the
chunk size of chunked prefill and the work of one iteration under layered prefill). Each [[serving.load]] is a workload
with the rate at which its requests arrive: in requests per second, or as a utilisation of what the device can serve,
which is measured once and frozen by the first acceptance, so that one file fits machines of any speed.
[serving.profile.*] says what a run of that profile does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pytest_npubench.core.hardware import DTYPES, PROFILES
from pytest_npubench.core.toml_table import TomlTable
from pytest_npubench.suites.scheduling import SUITE


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSpec:
    """A workload and how fast its requests arrive under one model.

    `workload` is a name the registry knows; with "-div16" behind it every length is a sixteenth, for small models,
    with "-div16x4" prompts are a sixteenth and answers a quarter.
    Exactly one of rate_per_s and utilisation is given: utilisation 0.8 is 0.8 of the rate that chunked prefill serves
    when all requests are there at once. tokens_per_iteration: this load's own, None for that of [serving].
    """

    model: str
    workload: str
    rate_per_s: float | None = None
    utilisation: float | None = None
    tokens_per_iteration: int | None = None

    @property
    def rate_name(self) -> str:
        """As it stands in a case's id: r1.3 or u0.8."""
        return f"r{self.rate_per_s:g}" if self.rate_per_s is not None else f"u{self.utilisation:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingSize:
    """What a profile runs. num_requests arrive in one block; a round serves one block under every policy."""

    name: str
    models: tuple[str, ...]
    experiments: tuple[str, ...]
    policies: tuple[str, ...]
    num_requests: int
    min_rounds: int
    max_rounds: int
    budget_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingSpec:
    """How a device serves: the engine's settings, the loads, the run sizes.

    kv_capacity_tokens is that of every model; kv_capacities, where the file names models, holds each one's own, and
    `for_model` puts it in place.
    """

    models: tuple[str, ...]
    dtype: str
    max_batch_size: int
    kv_capacity_tokens: int
    block_size_tokens: int
    tokens_per_iteration: int
    loads: tuple[LoadSpec, ...]
    profiles: tuple[ServingSize, ...]
    kv_capacities: tuple[tuple[str, int], ...] = ()

    def for_model(self, model: str) -> ServingSpec:
        """The settings with the KV cache that this model has."""
        capacity = dict(self.kv_capacities).get(model, self.kv_capacity_tokens)
        return replace(self, kv_capacity_tokens=capacity, kv_capacities=())

    def size(self, profile: str) -> ServingSize | None:
        """The run size of that name; None where the profile serves nothing."""
        return next((size for size in self.profiles if size.name == profile), None)


def read_serving(root: TomlTable) -> ServingSpec:
    """The [serving] table. Raises HardwareFileError naming the file, the dotted key and what is allowed."""
    table = root.table("serving", SERVING_KEYS)
    models = table.strings("models")
    capacities = _kv_capacities(table, models)
    return ServingSpec(
        models=models,
        dtype=table.choice("dtype", DTYPES),
        max_batch_size=table.integer("max_batch_size"),
        kv_capacity_tokens=(
            min(tokens for _, tokens in capacities) if capacities else table.integer("kv_capacity_tokens")
        ),
        block_size_tokens=table.integer("block_size_tokens", default=16),
        tokens_per_iteration=table.integer("tokens_per_iteration"),
        loads=_loads(table, models),
        profiles=_sizes(table.table("profile", PROFILES), models),
        kv_capacities=capacities,
    )


SERVING_KEYS = (
    "models",
    "dtype",
    "max_batch_size",
    "kv_capacity_tokens",
    "block_size_tokens",
    "tokens_per_iteration",
    "load",
    "profile",
)
LOAD_KEYS = ("model", "workload", "rate_per_s", "utilisation", "tokens_per_iteration")


def _kv_capacities(serving: TomlTable, models: tuple[str, ...]) -> tuple[tuple[str, int], ...]:
    """Tokens by model where the key is a table, which then names every model; empty where it is one number for all."""
    if not isinstance(serving.entries.get("kv_capacity_tokens"), dict):
        return ()
    table = serving.table("kv_capacity_tokens", models)
    return tuple((model, table.integer(model)) for model in models)


def _loads(serving: TomlTable, models: tuple[str, ...]) -> tuple[LoadSpec, ...]:
    loads: list[LoadSpec] = []
    for table in serving.tables("load", LOAD_KEYS):
        if ("rate_per_s" in table) == ("utilisation" in table):
            raise table.error("rate_per_s", "want rate_per_s or utilisation, and not both")
        load = LoadSpec(
            model=table.choice("model", models),
            workload=table.text("workload"),
            rate_per_s=table.number("rate_per_s") if "rate_per_s" in table else None,
            utilisation=table.number("utilisation", at_most=4) if "utilisation" in table else None,
            tokens_per_iteration=table.integer("tokens_per_iteration") if "tokens_per_iteration" in table else None,
        )
        _check_load(load, [one for one in loads if (one.model, one.workload) == (load.model, load.workload)], table)
        loads.append(load)
    return tuple(loads)


def _check_load(load: LoadSpec, others: list[LoadSpec], table: TomlTable) -> None:
    """Against the others of its model and workload: what chunked prefill serves of one is measured once for all."""
    if load.rate_name in [other.rate_name for other in others]:
        raise table.error("workload", f"a second entry for {load.model}, {load.workload} at this rate; keep one")
    if any(other.tokens_per_iteration != load.tokens_per_iteration for other in others):
        raise table.error(
            "tokens_per_iteration", f"want the same in all entries for {load.model}, {load.workload}, or in none"
        )


def _sizes(profiles: TomlTable, models: tuple[str, ...]) -> tuple[ServingSize, ...]:
    """Profiles that the file does not name serve nothing."""
    keys = ("models", "experiments", "policies", "num_requests", "min_rounds", "max_rounds", "budget_s")
    tables = ((name, profiles.table(name, keys)) for name in PROFILES if name in profiles)
    return tuple(_size(name, table, models) for name, table in tables)


def _size(name: str, table: TomlTable, models: tuple[str, ...]) -> ServingSize:
    min_rounds = table.integer("min_rounds", at_least=2)  # one round has no spread, so no interval
    return ServingSize(
        name=name,
        models=table.strings("models", models) if "models" in table else models,
        experiments=table.strings("experiments", SUITE.kinds) if "experiments" in table else SUITE.kinds,
        policies=table.strings("policies"),
        num_requests=table.integer("num_requests", at_least=2),
        min_rounds=min_rounds,
        max_rounds=table.integer("max_rounds", at_least=min_rounds),
        budget_s=table.number("budget_s"),
    )
