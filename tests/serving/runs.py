"""Loads, policies and whole runs for the tests here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from pytest_npubench.serving.clock import VirtualClock
from pytest_npubench.serving.disaggregated import serve_disaggregated
from pytest_npubench.serving.load import Load, OpenLoad
from pytest_npubench.serving.loop import serve
from pytest_npubench.serving.request import ServingRequest
from pytest_npubench.serving.result import ServingResult
from pytest_npubench.serving.schedulers import make_scheduler

from .fake_executor import FakeExecutor
from .virtual_pair import VirtualPair

BLOCK = 4

ONE_DEVICE = ("static", "continuous", "chunked", "layered", "hybrid")


def requests(*lengths: tuple[float, int, int]) -> list[ServingRequest]:
    """Of (arrival, prompt, output), with ids from 0."""
    return [
        ServingRequest(id=index, arrival_s=arrival_s, prompt_tokens=prompt, output_tokens=output)
        for index, (arrival_s, prompt, output) in enumerate(lengths)
    ]


@dataclass(frozen=True)
class Served:
    result: ServingResult
    executor: FakeExecutor
    scheduler: Any

    @property
    def plans(self) -> list[Any]:
        return self.executor.plans

    @property
    def tokens(self) -> dict[int, tuple[int, ...]]:
        return {record.id: record.tokens for record in self.result.records}


def run(
    policy: str,
    arriving: Sequence[ServingRequest] | Load,
    *,
    num_layers: int = 4,
    kv_blocks: int = 250,
    until_s: float | None = None,
    state_blocks: int = 0,
    **settings: Any,
) -> Served:
    """The load served to its end on a fake executor with exactly that KV cache, of which each request takes
    state_blocks beside those of its tokens."""
    load = OpenLoad(arriving) if isinstance(arriving, Sequence) else arriving
    scheduler = make_scheduler(policy, num_layers=num_layers, kv_blocks=kv_blocks, block_size_tokens=BLOCK, **settings)
    for batch in [getattr(scheduler, side) for side in ("batch", "decode_batch") if hasattr(scheduler, side)]:
        batch.blocks.state_blocks = state_blocks
    executor = executor_of(num_layers, kv_blocks)
    if scheduler.num_devices == 1:
        return Served(serve(load, scheduler, executor, VirtualClock(), until_s=until_s), executor, scheduler)
    decode = executor_of(num_layers, kv_blocks)
    devices = VirtualPair(executor, decode, transfer_s=lambda num_bytes: 0.001 * num_bytes)
    result = serve_disaggregated(load, scheduler, devices, until_s=until_s)  # type: ignore[arg-type]
    assert not decode.held
    return Served(result, executor, scheduler)


def executor_of(num_layers: int, kv_blocks: int) -> FakeExecutor:
    return FakeExecutor(num_layers=num_layers, kv_capacity_tokens=kv_blocks * BLOCK, block_size_tokens=BLOCK)


@st.composite
def loads(draw: st.DrawFn, *, most: int = 8) -> list[ServingRequest]:
    gaps = draw(st.lists(st.sampled_from([0.0, 0.0, 0.3, 1.0, 4.0, 30.0]), min_size=1, max_size=most))
    lengths = st.tuples(st.integers(1, 30), st.integers(1, 12))
    now_s, drawn = 0.0, []
    for gap_s in gaps:
        now_s += gap_s
        drawn.append((now_s, *draw(lengths)))
    return requests(*drawn)


def fewest_blocks(arriving: Sequence[ServingRequest]) -> int:
    """What the largest of them needs alone."""
    return max(-(-(request.total_tokens - 1) // BLOCK) for request in arriving)


@st.composite
def capacities(draw: st.DrawFn, arriving: Sequence[ServingRequest]) -> int:
    """From hardly enough for one request, so that preemption is common, to enough for all."""
    return fewest_blocks(arriving) + draw(st.sampled_from([0, 0, 1, 2, 4, 8, 16, 200]))


@st.composite
def policies(draw: st.DrawFn, num_layers: int, names: Sequence[str] = ONE_DEVICE) -> tuple[str, dict[str, Any]]:
    """A policy with settings small enough to matter for prompts of a few tokens."""
    name = draw(st.sampled_from(names))
    few = st.integers(1, 40)
    settings: dict[str, st.SearchStrategy[Any]] = {
        "static": st.fixed_dictionaries({"batch_size": st.integers(1, 4), "wait_for_full_batch": st.booleans()}),
        "continuous": st.fixed_dictionaries({"max_prefill_tokens": st.none() | few}),
        "chunked": st.fixed_dictionaries({"chunk_size_tokens": few, "decode_counts": st.booleans()}),
        "layered": st.fixed_dictionaries(
            {
                "num_layer_groups": st.none() | st.integers(1, num_layers),
                "tokens_per_iteration": few,
                "merge_cap_tokens": few,
            }
        ),
        "hybrid": st.fixed_dictionaries(
            {
                "chunk_size_tokens": few,
                "num_layer_groups": st.none() | st.integers(1, num_layers),
                "tokens_per_iteration": few,
            }
        ),
        "disaggregated": st.fixed_dictionaries({"max_prefill_tokens": st.none() | few}),
    }
    return name, {**draw(settings[name]), "max_batch_size": draw(st.sampled_from([4, 5, 256]))}
