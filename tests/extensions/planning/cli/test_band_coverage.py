"""The 90 % band of a calibrated simulation holds what servers whose cost is known do: in nine of ten cases."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from cli.conftest import Answer
from scipy.stats import binom

from pytest_npubench.cli.run_files import requests_text
from pytest_npubench.engines.shapes import decoder_shape
from pytest_npubench.extensions.planning.replicas import Replica, serve_replicas
from pytest_npubench.extensions.planning.virtual.calibration import prior_of
from pytest_npubench.extensions.planning.virtual.executor import VirtualExecutor
from pytest_npubench.extensions.planning.virtual.step_cost import StepCost, StepWork
from pytest_npubench.serving.arrivals import load_of, poisson
from pytest_npubench.serving.schedulers import make_scheduler
from pytest_npubench.suites.hardware_files import known_folders, load_all

MODEL, HARDWARE, KV_TOKENS = "llama-3.2-1b", "nvidia-h100", 100_000
METRICS = ("ttft_mean_s", "tpot_mean_s", "e2e_mean_s")
NUM_SERVERS, NUM_REQUESTS, RATE_PER_S = 20, 24, 12.0
CHUNK_TOKENS = 1024
UNEVEN = 0.02  # what an iteration takes more or less than its cost, as a standard deviation of logarithms
LEAST_LIKELY = 0.01


@dataclasses.dataclass
class Uneven:
    """A cost that no form explains to the end."""

    cost: StepCost
    random: np.random.Generator

    def seconds(self, work: StepWork) -> float:
        return self.cost.seconds(work) * float(np.exp(self.random.normal(0.0, UNEVEN)))


def served(cost: StepCost, seed: int) -> str:
    """What a server leaves behind of one load."""
    shape, random = decoder_shape(MODEL), np.random.default_rng(seed)
    lengths = [(int(random.integers(50, 1500)), int(random.integers(2, 120))) for _ in range(NUM_REQUESTS)]
    executor = VirtualExecutor(shape, None, tensor_parallel=1, dtype="bf16", kv_capacity_tokens=KV_TOKENS, cost=cost)
    scheduler = make_scheduler(
        "chunked",
        num_layers=shape.num_layers,
        kv_blocks=KV_TOKENS // 16,
        block_size_tokens=16,
        chunk_size_tokens=CHUNK_TOKENS,
        max_batch_size=256,
    )
    load = load_of(poisson(RATE_PER_S, NUM_REQUESTS, seed), lengths)
    return requests_text(serve_replicas(load, [Replica(scheduler, executor)], is_asynchronous=True).records)


@pytest.mark.soak
def test_the_band_holds_what_it_says(call: Callable[..., Answer], tmp_path: Path) -> None:
    """Servers are drawn as the prior has them; each is calibrated on one load, and serves another one. The three
    metrics of one server are not independent, so each is counted by itself."""
    shape, spec = decoder_shape(MODEL), load_all(known_folders())[HARDWARE]
    prior = prior_of(shape, spec, tensor_parallel=1, dtype="bf16")
    random = np.random.default_rng(0)
    held = dict.fromkeys(METRICS, 0)
    system = ["--model", MODEL, "--kv-capacity", KV_TOKENS, "--chunk-size", CHUNK_TOKENS]
    for number in range(NUM_SERVERS):
        cost = prior.cost(shape, random.multivariate_normal(prior.mean, prior.covariance))
        known, later = (tmp_path / f"{number}-{name}.jsonl" for name in ("known", "later"))
        for place, path in enumerate((known, later)):
            path.write_text(served(Uneven(cost, random), 2 * number + place), encoding="utf-8")
        file = tmp_path / f"{number}.json"
        done = call("calibrate", known, *system, "--hardware", HARDWARE, "--seed", number, "-o", file)
        assert done.status == 0, done.err
        answer = call("simulate", *system, "--cost", file, "--run", later, "--against", later, "--json").json
        for metric in answer["runs"][0]["metrics"]:
            if metric["name"] in METRICS:
                held[metric["name"]] += metric["low"] <= metric["measured"] <= metric["high"]
    for name, number in held.items():
        assert binom.cdf(number, NUM_SERVERS, 0.9) > LEAST_LIKELY, (name, number)
