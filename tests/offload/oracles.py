"""Slow and simple counterparts of what is tested, and graphs for hypothesis to draw."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import strategies as st

from pytest_npubench.offload.graph import Subgraph, SubgraphDag


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
