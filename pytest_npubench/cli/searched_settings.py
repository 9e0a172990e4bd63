"""Settings of a simulated server, each held against a load: what `npubench search` runs in its processes."""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import multiprocessing
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest_npubench
from pytest_npubench.cli.system_options import Stated, calibrated_system, system_of
from pytest_npubench.engines.hf_config import CONFIG_FILE
from pytest_npubench.errors import NpubenchError
from pytest_npubench.suites.hardware_files import known_folders

if TYPE_CHECKING:
    from pytest_npubench.cli.simulation import System
    from pytest_npubench.serving.settings import Setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """The load, the same for all, and what has to be attained. rates_per_s from the lowest on."""

    model: str
    workload: str
    num_requests: int
    rates_per_s: tuple[float, ...]
    slo_ttft_s: float
    slo_tbt_s: float
    attainment: float
    seed: int
    expert_parallel: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """hardware: a file, by name or path, or a cost file (.json). settings: of the policy."""

    hardware: str
    tensor_parallel: int
    data_parallel: int
    policy: str
    settings: tuple[tuple[str, Setting], ...]

    @property
    def num_devices(self) -> int:
        return self.tensor_parallel * self.data_parallel

    @property
    def name(self) -> str:
        own = ", ".join(f"{name} {value}" for name, value in self.settings)
        replicas = f"{self.data_parallel} x " if self.data_parallel > 1 else ""
        return (
            f"{replicas}{self.tensor_parallel} x {Path(self.hardware).stem} {self.policy}{f' ({own})' if own else ''}"
        )

    def key(self, goal: Goal) -> str:
        """Of this under this goal, in a file of results. What files say belongs to it, and this package's version."""
        text = json.dumps([pytest_npubench.__version__, asdict(self), asdict(goal)], sort_keys=True)
        digest = hashlib.sha256(text.encode())
        shipped = (folder / f"{self.hardware}.toml" for folder in known_folders())
        for path in (*map(Path, (self.hardware, goal.workload, goal.model)), *shipped):
            file = path / CONFIG_FILE if path.is_dir() else path
            if file.is_file():
                digest.update(file.read_bytes())
        return digest.hexdigest()[:16]


def candidates(
    *,
    hardware: Sequence[str],
    tensor_parallel: Sequence[int],
    data_parallel: Sequence[int],
    policies: Sequence[str],
    settings: Mapping[str, Sequence[Setting]],
) -> Iterator[Candidate]:
    """All of them, each once. Raises RegistryError for an unknown policy."""
    from pytest_npubench.serving.schedulers import setting_names

    known = {policy: setting_names(policy) for policy in policies}
    for device, tensor, data, policy in itertools.product(hardware, tensor_parallel, data_parallel, known):
        own = {name: values for name, values in settings.items() if name in known[policy]}
        for chosen in itertools.product(*own.values()):
            yield Candidate(
                hardware=device,
                tensor_parallel=tensor,
                data_parallel=data,
                policy=policy,
                settings=tuple(zip(own, chosen, strict=True)),
            )


def end_with_owner() -> None:
    """What each of the processes begins with: they wait for work, and know of no kill of who gives it."""

    def wait() -> None:
        owner = multiprocessing.parent_process()
        assert owner is not None
        owner.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def evaluate(candidate: Candidate, goal: Goal) -> dict[str, Any]:
    """The highest rate that it carries (None: none of them), from the lowest on until one is not attained; of each rate
    that was tried attainment, and each limit's alone. `why`: where it cannot be served at all."""
    try:
        return _evaluated(candidate, goal)
    except NpubenchError as error:
        return {"rate_per_s": None, "why": str(error), "tried": []}


def _evaluated(candidate: Candidate, goal: Goal) -> dict[str, Any]:
    from pytest_npubench.cli.simulation import arriving, drawn_lengths, simulate
    from pytest_npubench.serving.metrics import Slo, attainment_split
    from pytest_npubench.workloads import workload

    system = _system(candidate, goal)
    slo = Slo(ttft_s=goal.slo_ttft_s, tbt_s=goal.slo_tbt_s)
    lengths = drawn_lengths(
        workload(goal.workload), goal.num_requests, seed=goal.seed, most_tokens=system.kv_capacity_tokens
    )
    carried, tried = None, []
    for rate_per_s in goal.rates_per_s:
        requests = arriving(lengths.requests, rate_per_s=rate_per_s, cv=None, seed=goal.seed)
        records = simulate(system, candidate.policy, dict(candidate.settings), requests).records
        attained, ttft, tbt = attainment_split(records, slo)
        tried.append({"rate_per_s": rate_per_s, "attainment": attained, "ttft": ttft, "tbt": tbt})
        if attained < goal.attainment:
            break
        carried = rate_per_s
    return {"rate_per_s": carried, "why": "", "tried": tried}


def _system(candidate: Candidate, goal: Goal) -> System:
    is_cost = candidate.hardware.endswith(".json")
    arguments = argparse.Namespace(
        hardware=None if is_cost else candidate.hardware,
        model=goal.model,
        tensor_parallel=candidate.tensor_parallel,
        data_parallel=candidate.data_parallel,
        expert_parallel=goal.expert_parallel and candidate.data_parallel > 1,
        dtype=None,
        kv_dtype=None,
        kv_capacity=None,
        prefix_hit=0.0,
        no_prefix_caching=False,
        seed=goal.seed,
    )
    if is_cost:
        return calibrated_system(arguments, Path(candidate.hardware))[0]
    return system_of(arguments, Stated(), may_exceed_memory=False)
