"""How good an order of subgraphs could be: a lower bound for any graph, the exact optimum for a small one.

    bound = max( longest path, for each unit: earliest start + its work + shortest way on from any of its nodes )

The optimum is found by branch and bound over active schedules (Giffler & Thompson 1960, 10.1287/opre.8.4.487): of the
nodes that could come next, the one that could end first at e on its unit names the branches: all nodes of that unit
that could begin before e. Some optimal schedule is active, for none leaves room for a node to come forward.

Worked number: NPU 1 s, GPU 1 s, NPU 1 s in a row, in two chunks: NPU work 4 s from second 0, nothing after it:
bound 4 s, and 4 s is reached.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from pytest_npubench.errors import ConfigError
from pytest_npubench.extensions.pairs.offload.graph import SubgraphDag
from pytest_npubench.extensions.pairs.offload.schedules import Schedule, policy_names, simulate
from pytest_npubench.extensions.pairs.partition.matmul import ROLES

MAX_NODES = 18
EPSILON = 1e-12
"""A saving below this share of the makespan is rounding."""


def lower_bound_s(dag: SubgraphDag) -> float:
    """No schedule of `dag` ends earlier."""
    heads, tails = dag.heads_s(), dag.tails_s()
    bounds = [max(head + tail for head, tail in zip(heads, tails, strict=True))]
    for unit in ROLES:
        nodes = dag.of(unit)
        if nodes:
            first = min(heads[index] for index in nodes)
            after = min(tails[index] - dag.nodes[index].duration_s for index in nodes)
            bounds.append(first + dag.busy_s(unit) + after)
    return max(bounds)


def optimum(dag: SubgraphDag) -> Schedule:
    """Returns a schedule of least makespan. Raises ConfigError above MAX_NODES subgraphs."""
    if len(dag) > MAX_NODES:
        raise ConfigError(f"{len(dag)} subgraphs; the exact optimum is searched for at most {MAX_NODES}")
    best = min((simulate(dag, name) for name in policy_names()), key=lambda schedule: schedule.makespan_s)
    search = _OptimumSearch(dag=dag, tails=dag.tails_s(), bound_s=lower_bound_s(dag), best_s=best.makespan_s)
    search.descend(_State(starts={}, free=dict.fromkeys(ROLES, 0.0)))
    return Schedule(policy="optimum", dag=dag, starts_s=search.starts or best.starts_s)


@dataclass(slots=True)
class _State:
    """What has been placed: starts by node, and when each unit is free again."""

    starts: dict[int, float]
    free: dict[str, float]


@dataclass(slots=True)
class _OptimumSearch:
    dag: SubgraphDag
    tails: tuple[float, ...]
    bound_s: float
    best_s: float
    starts: tuple[float, ...] = field(default=())

    def descend(self, state: _State) -> None:
        if len(state.starts) == len(self.dag):
            self.best_s = max(start + self.dag.nodes[index].duration_s for index, start in state.starts.items())
            self.starts = tuple(state.starts[index] for index in range(len(self.dag)))
            return
        earliest = self._earliest(state)
        for index in self._branches(earliest):
            if self.best_s <= self.bound_s * (1 + EPSILON):
                return
            node = self.dag.nodes[index]
            after = _State(
                starts={**state.starts, index: earliest[index]},
                free={**state.free, node.unit: earliest[index] + node.duration_s},
            )
            if self._least_s(after) < self.best_s * (1 - EPSILON):
                self.descend(after)

    def _earliest(self, state: _State) -> dict[int, float]:
        """When each node whose needs are placed could begin."""
        earliest_s = {}
        for index, node in enumerate(self.dag.nodes):
            if index not in state.starts and all(need in state.starts for need in node.needs):
                ends = [state.starts[need] + self.dag.nodes[need].duration_s for need in node.needs]
                earliest_s[index] = max([state.free[node.unit], *ends])
        return earliest_s

    def _branches(self, earliest: dict[int, float]) -> list[int]:
        """Returns the nodes of one unit of which one must come next, the most urgent first."""
        nodes = self.dag.nodes
        first = min(earliest, key=lambda index: (earliest[index] + nodes[index].duration_s, index))
        end_s = earliest[first] + nodes[first].duration_s
        rivals = [
            index
            for index, start_s in earliest.items()
            if nodes[index].unit == nodes[first].unit and (start_s < end_s or index == first)
        ]
        return sorted(rivals, key=lambda index: (-self.tails[index], earliest[index], index))

    def _least_s(self, state: _State) -> float:
        """No completion of `state` ends earlier: the longest way on from any node left, and each unit's work left."""
        heads: dict[int, float] = {}
        least = max((start + self.tails[index] for index, start in state.starts.items()), default=0.0)
        work: dict[str, list[int]] = {unit: [] for unit in ROLES}
        for index, node in enumerate(self.dag.nodes):
            if index in state.starts:
                heads[index] = state.starts[index]
                continue
            ends = [heads[need] + self.dag.nodes[need].duration_s for need in node.needs]
            heads[index] = max([state.free[node.unit], *ends])
            least = max(least, heads[index] + self.tails[index])
            work[node.unit].append(index)
        for nodes in work.values():
            if nodes:
                first = min(heads[index] for index in nodes)
                total = math.fsum(self.dag.nodes[index].duration_s for index in nodes)
                after = min(self.tails[index] - self.dag.nodes[index].duration_s for index in nodes)
                least = max(least, first + total + after)
        return least
