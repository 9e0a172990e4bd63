"""Slow and simple counterparts of what is tested, and graphs for hypothesis to draw."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

from hypothesis import strategies as st

from pytest_npubench.engines.chunk_layout import ChunkLayout
from pytest_npubench.extensions.pairs.offload.decoder import DecoderSize
from pytest_npubench.extensions.pairs.offload.graph import Subgraph, SubgraphDag
from pytest_npubench.extensions.pairs.partition.matmul import ROLES


def topological_orders(dag: SubgraphDag, begun: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    if len(begun) == len(dag.nodes):
        yield begun
    for index, node in enumerate(dag.nodes):
        if index not in begun and set(node.needs) <= set(begun):
            yield from topological_orders(dag, (*begun, index))


def brute_force_makespan_s(dag: SubgraphDag) -> float:
    """Over all orders, every node as early as its needs and its unit allow: some optimal schedule is among these."""
    best = float("inf")
    for order in topological_orders(dag):
        ends: dict[int, float] = {}
        free = {"gpu": 0.0, "npu": 0.0}
        for index in order:
            node = dag.nodes[index]
            start = max([free[node.unit]] + [ends[need] for need in node.needs])
            ends[index] = free[node.unit] = start + node.duration_s
        best = min(best, max(ends.values()))
    return best


@st.composite
def dags(draw: st.DrawFn, max_nodes: int = 12) -> SubgraphDag:
    count = draw(st.integers(1, max_nodes))
    nodes = []
    for index in range(count):
        needs = draw(st.sets(st.integers(0, index - 1), max_size=3)) if index else set()
        nodes.append(
            Subgraph(
                stage=f"s{index}",
                chunk=0,
                layer=0,
                unit=draw(st.sampled_from(("gpu", "npu"))),
                duration_s=draw(st.integers(0, 5)) / 4,
                needs=tuple(sorted(needs)),
            )
        )
    return SubgraphDag(nodes)


PAPER_LAYOUT = ChunkLayout(prompt_tokens=1024, chunk_tokens=256, num_layers=24)
"""The one that llm.npu counts: prompt 1024, chunk 256, and 144 subgraphs, which 24 layers of six make."""


def layer_elements(size: DecoderSize) -> int:
    """Elements of the matrices of one layer."""
    return sum(math.prod(shape) for shape in size.weight_shapes().values())


def check_schedule(dag: SubgraphDag, starts_s: Sequence[float], *, tolerance_s: float = 1e-12) -> None:
    """Raises AssertionError where a subgraph never begins, begins before its needs have ended, or shares its unit."""
    if len(starts_s) != len(dag) or not all(map(math.isfinite, starts_s)):
        raise AssertionError(f"{len(starts_s)} starts for {len(dag)} subgraphs; want a finite one for each")
    ends = [start + node.duration_s for start, node in zip(starts_s, dag.nodes, strict=True)]
    for index, node in enumerate(dag.nodes):
        late = [need for need in node.needs if ends[need] > starts_s[index] + tolerance_s]
        if late or starts_s[index] < -tolerance_s:
            raise AssertionError(
                f"{node.name} begins at {starts_s[index]} s, before {dag.nodes[late[0]].name} ends"
                if late
                else f"{node.name} begins at {starts_s[index]} s, before the start"
            )
    for unit in ROLES:
        line = sorted(dag.of(unit), key=lambda index: (starts_s[index], ends[index]))
        for first, second in pairwise(line):
            if ends[first] > starts_s[second] + tolerance_s:
                raise AssertionError(f"{dag.nodes[first].name} and {dag.nodes[second].name} share the {unit}")
