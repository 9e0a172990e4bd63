"""A serving campaign on the cost model and its virtual clock: a stand-in for a device, for these tests alone."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest
from serving.virtual_pair import VirtualPair

from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.rounds import measure_round
from pytest_npubench.campaign.watch import Watched
from pytest_npubench.core.hardware_reader import default_directory
from pytest_npubench.extensions.planning.virtual.cost import handover_s
from pytest_npubench.extensions.planning.virtual.executor import VirtualExecutor
from pytest_npubench.serving.clock import VirtualClock
from pytest_npubench.suites import case_kind
from pytest_npubench.suites.hardware_files import load_all
from pytest_npubench.suites.scheduling import bench as bench_module
from pytest_npubench.suites.scheduling.bench import ServingBench
from pytest_npubench.suites.scheduling.pair import kv_tokens
from pytest_npubench.suites.scheduling.plan import ServingPlan
from pytest_npubench.suites.scheduling.reference_serving import TorchServing
from pytest_npubench.suites.scheduling.spec import LoadSpec, ServingSize, ServingSpec

SPECS = load_all([default_directory()])
KINDS = (
    "attainment",
    "burstiness",
    "chunk_rate",
    "chunk_sweep",
    "dense_control",
    "disaggregated",
    "energy",
    "expert_coverage",
    "expert_loads",
    "group_sweep",
    "policy",
    "relaxed_slo",
    "simulated_coverage",
    "timeline",
)
OF_TENSORS = ("answers", "identical_tokens")
"""Kinds that need tokens, which the cost model does not make."""
OF_FILES = ("step_cost",)
"""Kinds that judge by a file of the user's."""
RATES = {"qwen3-30b-a3b": 1.3, "qwen3-8b": 1.0}


def serving_plan(model: str = "qwen3-30b-a3b", **changes) -> ServingPlan:
    """The paper's model and work an iteration, at a rate that the virtual device bears."""
    serving = ServingSpec(
        models=tuple(RATES),
        dtype="bf16",
        max_batch_size=32,
        kv_capacity=400_000,
        block_size_tokens=16,
        tokens_per_iteration=512,
        step_costs=dict.fromkeys(RATES, "cost.json"),
        loads=tuple(LoadSpec(model=name, workload="layered-arxiv", rate_per_s=rate) for name, rate in RATES.items()),
        profiles=(),
    )
    size = ServingSize(
        name="quick",
        models=tuple(RATES),
        experiments=(*KINDS, *OF_TENSORS, *OF_FILES),
        policies=("static", "continuous", "chunked", "layered", "hybrid"),
        num_requests=10,
        min_rounds=2,
        max_rounds=2,
        budget_s=1.0,
    )
    return ServingPlan(
        spec=SPECS["nvidia-h100"],
        model=model,
        batch_size=serving.max_batch_size,
        serving=serving,
        size=replace(size, **changes),
    )


def kept(point, visit):
    """A visit as a round keeps it."""
    return {f"{point.name}/{name}": tuple(values) for name, values in visit.columns().items()}


@pytest.fixture
def make_bench(monkeypatch):
    """A bench whose engine is the cost model of two H100; returns it loaded for some points, and what failed."""

    def executor(plan, device):
        return VirtualExecutor(
            plan.shape,
            plan.spec,
            tensor_parallel=2,
            dtype=plan.serving.dtype,
            kv_capacity_tokens=plan.serving.kv_capacity_tokens,
            block_size_tokens=plan.serving.block_size_tokens,
        )

    def pair(plan, device):
        """An H100 each, with a link between them."""
        halves = [
            VirtualExecutor(
                plan.shape,
                plan.spec,
                tensor_parallel=1,
                dtype=plan.serving.dtype,
                kv_capacity_tokens=kv_tokens(plan),
                block_size_tokens=plan.serving.block_size_tokens,
            )
            for _ in range(2)
        ]
        return nullcontext(
            VirtualPair(*halves, transfer_s=lambda sent: handover_s(plan.spec, sent, senders=1, receivers=1))
        )

    monkeypatch.setattr(TorchServing, "executor", lambda self, plan, runtime: executor(plan, str(runtime.devices[0])))
    monkeypatch.setattr(bench_module.pair, "open_pair", pair)
    monkeypatch.setattr(bench_module, "WallClock", VirtualClock)

    def make(plan, points, earlier=(), frozen=None):
        made = ServingBench(SimpleNamespace(devices=["virtual"]), plan, frozen=frozen)
        return made, made.load(points, earlier, lambda text: None)

    return make


@pytest.fixture
def measure(make_bench):
    """Rounds of all points that a kind's cases ask for."""

    def measured(plan, name, num_rounds=2):
        kind = case_kind(name, ("scheduling",))
        cases = [plan.case(kind.suite, name, axes) for axes in kind.axes(plan)]
        points = list(dict.fromkeys(point for case in cases for point in kind.points(case, plan)))
        bench, failures = make_bench(plan, points)

        def sample(point, index):
            bench._executor._iteration = 0  # or the sampled experts of a visit would hang on those before it
            return bench.sample(point, index)

        found = Measured(failures=dict(failures))
        for index in range(num_rounds):
            samples, failed, _ = measure_round(
                points, dict.fromkeys((point.name for point in points), 1.0), sample, index, lambda: None
            )
            assert failed == {}
            found.add(samples, Watched())
        return kind, cases, found

    return measured
