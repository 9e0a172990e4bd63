"""Settings of a simulated server, each held against a load: what `npubench search` runs in its processes, or a cluster.

The unit of work is one setting at one rate. What does not change from one to the next (the model on its devices, the
requests) a process keeps.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest_npubench
from pytest_npubench.engines.config_keys import CONFIG_FILE
from pytest_npubench.errors import ConfigError, NpubenchError
from pytest_npubench.extensions.planning.cli.system_options import Stated, calibrated_system, system_of
from pytest_npubench.suites.hardware_files import folders_of_runs

if TYPE_CHECKING:
    from pytest_npubench.extensions.planning.cli.simulation import System
    from pytest_npubench.serving.request import ServingRequest
    from pytest_npubench.serving.settings import Setting

DISAGGREGATED = "disaggregated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """The load, the same for all but for its rate, and what has to be attained."""

    model: str
    workload: str
    num_requests: int
    slo_ttft_s: float
    slo_tbt_s: float
    attainment: float
    seed: int
    expert_parallel: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """hardware: a file, by name or path, or a cost file (.json). pools: of a System, what is given of a disaggregated
    server's. settings: of the policy."""

    hardware: str
    tensor_parallel: int
    pipeline_parallel: int = 1
    data_parallel: int
    pools: tuple[tuple[str, int], ...] = ()
    policy: str
    settings: tuple[tuple[str, Setting], ...]

    @property
    def num_devices(self) -> int:
        """Those of all workers of both kinds, where there are such. Of devices that leave none to decode, which are
        refused, the count is that of the prefill."""
        if self.policy == DISAGGREGATED:
            pools = dict(self.pools)
            prefill = pools.get("prefill_devices", self.tensor_parallel // 2)
            decode = max(0, self.tensor_parallel - prefill)
            return prefill * pools.get("prefill_replicas", 1) + decode * pools.get("decode_replicas", 1)
        return self.tensor_parallel * self.pipeline_parallel * self.data_parallel

    @property
    def name(self) -> str:
        words = ", ".join(f"{name} {value}" for name, value in (*self.pools, *self.settings))
        replicas = f"{self.data_parallel} x " if self.data_parallel > 1 else ""
        stages = f"{self.pipeline_parallel} stages of " if self.pipeline_parallel > 1 else ""
        device = f"{replicas}{stages}{self.tensor_parallel} x {Path(self.hardware).stem}"
        return f"{device} {self.policy}{f' ({words})' if words else ''}"

    def key(self, goal: Goal) -> str:
        """Of this under this goal, in a file of results. What files say belongs to it, and this package's version."""
        text = json.dumps([pytest_npubench.__version__, asdict(self), asdict(goal)], sort_keys=True)
        digest = hashlib.sha256(text.encode())
        shipped = (folder / f"{self.hardware}.toml" for folder in folders_of_runs())
        for path in (*map(Path, (self.hardware, goal.workload, goal.model)), *shipped):
            file = path / CONFIG_FILE if path.is_dir() else path
            if file.is_file():
                digest.update(file.read_bytes())
        return digest.hexdigest()[:16]


def candidates(
    *,
    hardware: Sequence[str],
    tensor_parallel: Sequence[int],
    pipeline_parallel: Sequence[int] = (1,),
    pools: Mapping[str, Sequence[int]],
    data_parallel: Sequence[int],
    policies: Sequence[str],
    settings: Mapping[str, Sequence[Setting]],
) -> Iterator[Candidate]:
    """All of them, each once. Raises RegistryError for an unknown policy, ConfigError for pools that none has."""
    from pytest_npubench.serving.schedulers import setting_names

    names_of = {policy: setting_names(policy) for policy in policies}
    if pools and DISAGGREGATED not in policies:
        raise ConfigError(f"--{next(iter(pools)).replace('_', '-')} is of --policy {DISAGGREGATED}")
    for device, tensor, stages, data, policy in itertools.product(
        hardware, tensor_parallel, pipeline_parallel, data_parallel, names_of
    ):
        of_policy = pools if policy == DISAGGREGATED else {}
        policy_settings = {name: values for name, values in settings.items() if name in names_of[policy]}
        for workers, chosen in itertools.product(
            itertools.product(*of_policy.values()), list(itertools.product(*policy_settings.values()))
        ):
            yield Candidate(
                hardware=device,
                tensor_parallel=tensor,
                pipeline_parallel=stages,
                data_parallel=data,
                pools=tuple(zip(of_policy, workers, strict=True)),
                policy=policy,
                settings=tuple(zip(policy_settings, chosen, strict=True)),
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Of one setting at one rate. attainment, ttft, tbt: fractions of the requests.

    is_whole: the simulation ran to its end. Where it did not, the SLO was lost before, `attainment` is not reached, and
    nothing is known of each limit alone. most_admitted: requests at once on one replica; None where nobody counts.
    why: this setting cannot be served, whatever the rate.
    """

    rate_per_s: float
    attains: bool
    attainment: float = 0.0
    ttft: float | None = None
    tbt: float | None = None
    is_whole: bool = True
    most_admitted: int | None = None
    why: str = ""


def evaluate(candidate: Candidate, goal: Goal, rate_per_s: float, at_least: float | None = None) -> Outcome:
    """Simulates the setting until its end, or until it is sure that it attains less than at_least (the goal's)."""
    try:
        return _evaluated(candidate, goal, rate_per_s, goal.attainment if at_least is None else at_least)
    except NpubenchError as error:
        return Outcome(rate_per_s=rate_per_s, attains=False, why=str(error))


def _evaluated(candidate: Candidate, goal: Goal, rate_per_s: float, at_least: float) -> Outcome:
    from pytest_npubench.extensions.planning.cli.simulation import simulate
    from pytest_npubench.extensions.planning.slo_watch import SloWatch
    from pytest_npubench.serving.metrics import Slo, attainment_split

    devices = candidate.tensor_parallel, candidate.pipeline_parallel, candidate.data_parallel
    pools: dict[str, Any] = dict(candidate.pools)
    system = replace(_system(candidate.hardware, *devices, goal), **pools)
    slo = Slo(ttft_s=goal.slo_ttft_s, tbt_s=goal.slo_tbt_s)
    watch = SloWatch(slo, attainment=at_least, num_requests=goal.num_requests)
    requests = _requests(goal, system.context_tokens, rate_per_s)
    longest = max(request.total_tokens for request in requests)
    if longest > system.kv_capacity_tokens:
        raise ConfigError(f"a request of {longest} tokens; its KV cache holds {system.kv_capacity_tokens}")
    result = simulate(system, candidate.policy, dict(candidate.settings), requests, watch)
    is_counted = candidate.policy != DISAGGREGATED
    # a micro-batch admits its part of them
    most_admitted = candidate.pipeline_parallel * max(result.log.num_running) if is_counted else None
    if watch.is_lost:
        return Outcome(
            rate_per_s=rate_per_s,
            attains=False,
            attainment=watch.attainment_at_most,
            is_whole=False,
            most_admitted=most_admitted,
        )
    attained, ttft, tbt = attainment_split(result.records, slo)
    return Outcome(
        rate_per_s=rate_per_s,
        attains=attained >= goal.attainment,
        attainment=attained,
        ttft=ttft,
        tbt=tbt,
        most_admitted=most_admitted,
    )


@lru_cache(maxsize=8)
def _requests(goal: Goal, most_tokens: int | None, rate_per_s: float) -> tuple[ServingRequest, ...]:
    """The same for all settings, whatever their KV caches hold."""
    from pytest_npubench.extensions.planning.cli.simulation import arriving
    from pytest_npubench.workloads import ANY_UNIT, workload

    lengths = workload(goal.workload, time_unit=ANY_UNIT)
    sample = lengths.sample(goal.num_requests, seed=goal.seed, max_total_tokens=most_tokens)
    return arriving(sample.requests, rate_per_s=rate_per_s, cv=None, seed=goal.seed)


@lru_cache(maxsize=256)
def _system(hardware: str, tensor_parallel: int, pipeline_parallel: int, data_parallel: int, goal: Goal) -> System:
    is_cost = hardware.endswith(".json")
    arguments = argparse.Namespace(
        hardware=None if is_cost else hardware,
        model=goal.model,
        tensor_parallel=tensor_parallel,
        pipeline_parallel=pipeline_parallel,
        data_parallel=data_parallel,
        expert_parallel=goal.expert_parallel and data_parallel > 1,
        dtype=None,
        kv_dtype=None,
        kv_capacity=None,
        prefix_hit=0.0,
        no_prefix_caching=False,
        seed=goal.seed,
    )
    if is_cost:
        return calibrated_system(arguments, Path(hardware))[0]
    return system_of(arguments, Stated(), may_exceed_memory=False)
