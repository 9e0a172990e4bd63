"""What the child serves: requests by step, so that a run needs no clock. Prompts are seeded; policies as the suites
name them."""

from __future__ import annotations

import random
from typing import Any

VOCABULARY = 512

LAYERED = [["tokens_per_iteration", 64], ["merge_cap_tokens", 1024]]
HYBRID = [["tokens_per_iteration", 64], ["chunk_size_tokens", 128]]
POLICIES: dict[str, tuple[str, list[list[Any]]]] = {
    "chunked 32": ("chunked", [["chunk_size_tokens", 32]]),
    "chunked 1024": ("chunked", [["chunk_size_tokens", 1024]]),
    "layered": ("layered", LAYERED),
    "hybrid": ("hybrid", HYBRID),
}
STAGGERED = ((45, 12, 0), (130, 8, 1), (20, 16, 2), (77, 6, 5), (200, 10, 6), (9, 14, 9), (64, 5, 12))
"""Prompt tokens, output tokens, step of arrival."""

TIGHT_CAPACITY = 320
TIGHT = ((90, 40, 0), (100, 40, 1), (70, 40, 2), (110, 30, 3), (60, 40, 4))
"""In a cache of 320 tokens not all fit: the first three fill its 10 blocks of 32, and their answers need more."""

IN_FLIGHT = ((62, 40, 0), (250, 8, 3))
"""The first one's third block is needed while the second one, in 8 blocks, is between two of its four stages."""

NAMED = ("tiny-llama", "small-moe")
SHORT = ((40, 10, 0), (7, 6, 0))
"""The named shapes of both suites, Llama and Qwen3-MoE, and what transformers is asked too."""


def random_lengths(num_requests: int) -> tuple[tuple[int, int, int], ...]:
    """Prompts of one token to several blocks, alone, in pairs and in crowds."""
    drawn, step, lengths = random.Random(5), 0, []
    for _ in range(num_requests):
        step += drawn.choice((0, 0, 1, 2, 5, 20))
        lengths.append((drawn.choice((1, 2, 5, 33, 64, 100, 190, 240)), drawn.randint(1, 40), step))
    return tuple(lengths)


def requests(lengths: tuple[tuple[int, int, int], ...], **sampling: Any) -> list[dict[str, Any]]:
    return [
        {
            "id": index,
            "prompt": random.Random(index).choices(range(2, VOCABULARY), k=prompt_tokens),
            "output_tokens": output_tokens,
            "at_step": step,
            "sampling": sampling,
        }
        for index, (prompt_tokens, output_tokens, step) in enumerate(lengths)
    ]


def run(name: str, policy: str, served: list[dict[str, Any]], **changes: Any) -> dict[str, Any]:
    kind, settings = POLICIES[policy]
    return {"name": name, "policy": kind, "settings": settings, "requests": served, "aborts": {}, **changes}


def all_runs() -> list[dict[str, Any]]:
    """With "capacity" and "aborts" (step: request) where they matter, "model" as the name of a shape."""
    runs = [run(policy, policy, requests(STAGGERED)) for policy in POLICIES]
    runs += [
        run(f"dense {policy}", policy, requests(STAGGERED), model="dense") for policy in ("chunked 1024", "layered")
    ]
    runs += [
        run(f"tight {policy}", policy, requests(TIGHT), capacity=TIGHT_CAPACITY)
        for policy in ("chunked 1024", "layered", "hybrid")
    ]
    runs.append(run("roomy", "chunked 1024", requests(TIGHT)))
    runs += [run(name, "chunked 32", requests(SHORT), model=name) for name in NAMED]
    deep = [["tokens_per_iteration", 32]]
    runs.append(run("in flight", "layered", requests(IN_FLIGHT), capacity=TIGHT_CAPACITY, settings=deep))
    runs.append(run("in flight, chunked", "chunked 1024", requests(IN_FLIGHT)))
    crowd = requests(random_lengths(40))
    small_chunk = [["tokens_per_iteration", 16], ["chunk_size_tokens", 48]]
    runs.append(run("random chunked", "chunked 1024", crowd))
    runs.append(run("random layered", "layered", crowd, capacity=TIGHT_CAPACITY, settings=deep))
    runs.append(run("random hybrid", "hybrid", crowd, capacity=TIGHT_CAPACITY, settings=small_chunk))
    runs.append(run("abort", "layered", requests(STAGGERED), aborts={"3": 1}, settings=deep))
    seeded = requests(STAGGERED, seed=7, temperature=1.0)
    scored = requests(STAGGERED, prompt_logprobs=0)
    for policy in ("chunked 1024", "layered"):
        runs.append(run(f"seeded {policy}", policy, seeded))
        runs.append(run(f"scored {policy}", policy, scored))
    return runs
