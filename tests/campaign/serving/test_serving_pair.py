"""The pair of processes on torch: the same tokens as one engine, half the hardware each, and what ends a block."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.served_block import pooled
from pytest_npubench.errors import DeviceError, DeviceUnavailableError
from pytest_npubench.serving.two_devices import ServingSide
from pytest_npubench.suites.scheduling import pair
from pytest_npubench.suites.scheduling.bench import ServingBench
from pytest_npubench.suites.scheduling.figures import blocks
from pytest_npubench.suites.scheduling.plan import ServingPlan
from pytest_npubench.suites.scheduling.policies import served
from pytest_npubench.suites.scheduling.spec import LoadSpec

from .conftest import SPECS, kept, serving_plan

MODEL = "small-gpt-oss"
LOAD = LoadSpec(model=MODEL, workload="layered-arxiv-div64", rate_per_s=50)


def torch_plan(**changes) -> ServingPlan:
    plan = serving_plan(MODEL)
    serving = replace(
        plan.serving,
        models=(MODEL,),
        step_costs={},
        dtype="fp32",
        max_batch_size=4,
        kv_capacity=2056,
        tokens_per_iteration=32,
        loads=(LOAD,),
        **changes,
    )
    return replace(plan, spec=SPECS["cpu"], serving=serving, size=replace(plan.size, num_requests=5))


PLAN = torch_plan()
APART, CHUNKED = (served(policy, PLAN, LOAD) for policy in (pair.POLICY, "chunked"))


@pytest.fixture
def torch_bench(monkeypatch):
    """A bench with an engine and the parts of a pair, wherever there are two processors.

    The engine is said to have two threads and has one: two that spin are slow on a machine that does other work.
    """
    torch = pytest.importorskip("torch", reason="torch is not installed")
    from pytest_npubench.engines.torch_moe import executor

    if not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2:
        pytest.skip("two processes want a processor each")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    monkeypatch.setattr(executor, "num_threads", lambda: 2)
    made = ServingBench(SimpleNamespace(devices=["cpu"]), PLAN)
    assert made.load([APART, CHUNKED], [], lambda text: None) == {}
    yield made
    torch.set_num_threads(before)


def results(bench, point):
    requests = bench._requests(point, 0)
    with bench._server(point) as serve_them:
        return requests, serve_them(requests)


def test_the_same_tokens_from_two_processes_as_from_one(torch_bench):
    requests, apart = results(torch_bench, APART)
    _, chunked = results(torch_bench, CHUNKED)
    assert {record.id: record.tokens for record in apart.records} == {
        record.id: record.tokens for record in chunked.records
    }
    moved = [request for request in requests if request.output_tokens > 1]
    per_token = PLAN.shape.kv_bytes_per_token(4)
    assert sorted(apart.handover_bytes) == sorted(request.prompt_tokens * per_token for request in moved)
    assert all(seconds > 0 for seconds in apart.handover_s)
    assert apart.clock == "wall"


@pytest.mark.soak
def test_a_process_that_dies_fails_its_block_and_the_next_one_is_served(torch_bench, monkeypatch):
    opened, open_pair = [], pair.open_pair
    monkeypatch.setattr(pair, "open_pair", lambda *given: opened.append(open_pair(*given)) or opened[-1])

    def serve_and_kill():
        with torch_bench._server(APART) as serve_them:
            pids = [child.pid for child in opened[0]._children.values()]
            os.kill(opened[0]._children[ServingSide.DECODE].pid, signal.SIGKILL)
            killed.extend(pids)
            serve_them(torch_bench._requests(APART, 0))

    killed: list[int] = []
    with pytest.raises(DeviceError, match=r"the decode process .* was lost: killed by signal 9"):
        serve_and_kill()
    assert len(killed) == 2
    assert not any(Path(f"/proc/{pid}").exists() for pid in killed)
    block = torch_bench.sample(APART, 0)
    assert len(block.handover_s) == len(block.handover_bytes) > 0


@pytest.mark.parametrize(
    ("threads", "halves"), [(2, ((3,), (5,))), (3, ((3, 5), (6,))), (4, ((3, 5), (6, 9))), (1, None), (5, None)]
)
def test_the_processors_are_shared_out(monkeypatch, threads, halves):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {9, 3, 6, 5}, raising=False)
    if halves is not None:
        assert pair.split_cores(threads) == halves
        return
    message = f"the engine computes with {threads} threads on 4 processors; two processes over the same hardware want"
    with pytest.raises(DeviceUnavailableError, match=message):
        pair.split_cores(threads)


def test_a_system_that_cannot_pin(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    with pytest.raises(DeviceUnavailableError, match="this system cannot pin a process to processors"):
        pair.split_cores(2)


def test_one_gpu_is_no_pair():
    with pytest.raises(DeviceUnavailableError, match="compared over equal hardware: on cuda:0"):
        pair.open_pair(PLAN, "cuda:0")


def test_the_kv_cache_is_shared_out_in_whole_blocks():
    assert PLAN.serving.block_size_tokens == 16
    assert pair.kv_tokens(PLAN) == 1024  # 2,056 / 2 = 1,028


def test_the_handover_comes_back_from_the_journal(make_bench):
    plan = serving_plan()
    point = served(pair.POLICY, plan, plan.loads[0])
    bench, failures = make_bench(plan, [point])
    assert failures == {}
    row, other = (kept(point, bench.sample(point, index)) for index in range(2))
    found = blocks(Measured(rounds=[row, other]), point)
    assert found[0].handover_s == tuple(row[f"{point.name}/handover_s"])
    assert pooled(found).handover_bytes == found[0].handover_bytes + found[1].handover_bytes
    prompts = [record.prompt_tokens for record in found[0].records if record.num_tokens > 1]
    assert sorted(found[0].handover_bytes) == sorted(98_304 * prompt for prompt in prompts)
