"""The serving part of a hardware file: which models are served how, under which load, in which experiments.

[serving] says how the engine runs (dtype, largest batch, KV capacity, the prefill tokens of one iteration, which is the
chunk size of chunked prefill and the work of one iteration under layered prefill). Each [[serving.load]] is a workload
with the rate at which its requests arrive: in requests per second, or as a utilisation of what the device can serve,
which is measured once and frozen by the first acceptance, so that one file fits machines of any speed.
[serving.profile.*] says what a run of that profile does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated

from pytest_npubench.core.figures import Dtype
from pytest_npubench.core.hardware import RunLength, known_profiles, size_of
from pytest_npubench.core.record_reader import (
    Count,
    Positive,
    Text,
    Texts,
    WrongEntryError,
    at_least,
    check_keys,
    check_within,
    key,
    listed,
    tables,
    text,
    up_to,
    within,
)
from pytest_npubench.suites.scheduling import SUITE

KINDS = tuple(sorted({*SUITE.kinds, "simulated_coverage", "step_cost"}))
"""What a file may name: the kinds that there are, and those of an extension that is not installed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSpec:
    """A workload and how fast its requests arrive under one model.

    `workload` is a name the registry knows; with "-div16" behind it every length is a sixteenth, for small models,
    with "-div16x4" prompts are a sixteenth and answers a quarter.
    A hardware file gives exactly one of rate_per_s and utilisation: utilisation 0.8 is 0.8 of the rate that chunked
    prefill serves when all requests are there at once. tokens_per_iteration: this load's own, None for that of
    [serving].
    """

    model: Annotated[str, text("one of the section's models")]
    workload: Text
    rate_per_s: Positive | None = None
    utilisation: Annotated[float, up_to(4)] | None = None
    tokens_per_iteration: Count | None = None

    @property
    def rate_name(self) -> str:
        """Writes the rate as it stands in a case's id: r1.3 or u0.8."""
        return f"r{self.rate_per_s:g}" if self.rate_per_s is not None else f"u{self.utilisation:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingSize(RunLength):
    """What a profile runs; all of the section's models where it names none. num_requests arrive in one block; a round
    serves one block under every policy."""

    models: Texts = ()
    experiments: Annotated[Texts, within(KINDS)] = SUITE.kinds
    policies: Texts
    num_requests: Annotated[int, at_least(2)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingSpec:
    """How a device serves: the engine's settings, the loads, the run sizes.

    kv_capacity is in tokens: that of every model, or each one's own, which `for_model` puts in place. step_costs: by
    model, what `npubench calibrate` wrote, as a path from the folder that the run starts in.
    """

    models: Texts
    dtype: Dtype
    max_batch_size: Count
    kv_capacity: Count | Mapping[str, Count] = field(metadata=key("kv_capacity_tokens"))
    block_size_tokens: Count = 16
    tokens_per_iteration: Count
    step_costs: Mapping[str, Text] = field(default_factory=dict)
    loads: Annotated[tuple[LoadSpec, ...], tables("serving.load")] = field(default=(), metadata=key("load"))
    profiles: Annotated[tuple[ServingSize, ...], known_profiles] = field(metadata=key("profile"))

    def __post_init__(self) -> None:
        """Raises WrongEntryError where a load, a profile or a KV cache is of a model that the section does not name, or
        where loads contradict each other."""
        if not isinstance(self.kv_capacity, int):
            check_keys("kv_capacity_tokens", self.kv_capacity, self.models)
            if missing := [model for model in self.models if model not in self.kv_capacity]:
                problem = "missing; want a whole number of at least 1"
                raise WrongEntryError(f"kv_capacity_tokens.{missing[0]}", problem)
        check_keys("step_costs", self.step_costs, self.models)
        for size in self.profiles:
            check_within(f"profile.{size.name}.models", size.models, self.models)
        for index, load in enumerate(self.loads):
            _check_load(f"load[{index}]", load, self.models, self.loads[:index])

    @property
    def kv_capacity_tokens(self) -> int:
        """Returns the smallest of all models."""
        return self.kv_capacity if isinstance(self.kv_capacity, int) else min(self.kv_capacity.values())

    def for_model(self, model: str) -> ServingSpec:
        """Returns the settings with the KV cache that this model has."""
        return self if isinstance(self.kv_capacity, int) else replace(self, kv_capacity=self.kv_capacity[model])

    def size(self, profile: str) -> ServingSize | None:
        """Returns the run size of that name; None where the profile serves nothing."""
        size = size_of(self.profiles, profile)
        return size and replace(size, models=size.models or self.models)


def _check_load(at: str, load: LoadSpec, models: tuple[str, ...], earlier: tuple[LoadSpec, ...]) -> None:
    """Against the others of its model and workload: what chunked prefill serves of one is measured once for all."""
    if (load.rate_per_s is None) == (load.utilisation is None):
        raise WrongEntryError(f"{at}.rate_per_s", "want rate_per_s or utilisation, and not both")
    if load.model not in models:
        raise WrongEntryError(f"{at}.model", f"want one of {listed(models)}, not {load.model!r}")
    others = [one for one in earlier if (one.model, one.workload) == (load.model, load.workload)]
    if load.rate_name in [other.rate_name for other in others]:
        problem = f"a second entry for {load.model}, {load.workload} at this rate; keep one"
        raise WrongEntryError(f"{at}.workload", problem)
    if any(other.tokens_per_iteration != load.tokens_per_iteration for other in others):
        problem = f"want the same in all entries for {load.model}, {load.workload}, or in none"
        raise WrongEntryError(f"{at}.tokens_per_iteration", problem)
