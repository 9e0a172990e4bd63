"""Who runs next: orders of subgraphs on two units, simulated (llm.npu, section 3.4).

One subgraph a unit at a time, never interrupted. `in_order` keeps program order on each unit and waits for the head of
its line, overlapping what it can. All others take a subgraph from the unit's ready queue whenever the unit is free:

    fifo           the one that has been ready longest
    chunk_order    the earliest chunk's
    contribution   the largest C(g): the sum of T over the subgraphs newly ready when g ends, + where g is on the CPU
                   or GPU, - where it is on the NPU (llm.npu, section 3.4)
    critical_path  the longest way to the end
    random         any, seeded

bubble = (makespan - NPU work) / makespan: the share of the time in which the NPU, the faster unit, does nothing.

Worked number: NPU 1 s, GPU 1 s, NPU 1 s in a row, two independent chunks: in order 1+1+1 twice = 6 s and bubble
(6 - 4) / 6 = 33 %; with a ready queue 4 s + nothing idle.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pytest_npubench.errors import RegistryError
from pytest_npubench.extensions.pairs.offload.graph import SubgraphDag
from pytest_npubench.extensions.pairs.partition.matmul import NPU, ROLES

IN_ORDER = "in_order"


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """When each subgraph begins, in seconds from the start of all, by node."""

    policy: str
    dag: SubgraphDag
    starts_s: tuple[float, ...]

    @property
    def makespan_s(self) -> float:
        return max(start + node.duration_s for start, node in zip(self.starts_s, self.dag.nodes, strict=True))

    @property
    def bubble_fraction(self) -> float:
        """Returns the NPU's idle fraction; 0 where nothing takes time."""
        return max(0.0, 1.0 - self.dag.busy_s(NPU) / self.makespan_s) if self.makespan_s else 0.0  # rounding

    def order(self, unit: str) -> tuple[int, ...]:
        """Returns the unit's nodes as they begin."""
        return tuple(sorted(self.dag.of(unit), key=lambda index: (self.starts_s[index], index)))


@dataclass(frozen=True, slots=True)
class ReadyQueue:
    """What a unit may choose from: `ready` in the order in which they became so, `done` what has ended."""

    dag: SubgraphDag
    ready: tuple[int, ...]
    done: frozenset[int]


Policy = Callable[[ReadyQueue], int]
"""Returns one node of `ready`."""


def policy_names() -> tuple[str, ...]:
    """Every order that `simulate` knows."""
    return (IN_ORDER, "fifo", "chunk_order", "contribution", "critical_path", "random")


def make_policy(name: str, dag: SubgraphDag, *, seed: int = 0) -> Policy:
    """Returns a fresh policy for one run of `dag`. Raises RegistryError for an unknown name, and for in_order, which
    has no ready queue."""
    if name == "fifo":
        return lambda queue: queue.ready[0]
    if name == "chunk_order":
        return lambda queue: min(queue.ready)
    if name == "contribution":
        return lambda queue: max(queue.ready, key=lambda index: contribution_s(queue, index))
    if name == "critical_path":
        tails = dag.tails_s()
        return lambda queue: max(queue.ready, key=tails.__getitem__)
    if name == "random":
        chance = random.Random(seed)
        return lambda queue: chance.choice(queue.ready)
    raise RegistryError(f"no ready-queue policy {name!r}; known: {', '.join(policy_names()[1:])}")


def contribution_s(queue: ReadyQueue, index: int) -> float:
    """C(g) of a ready subgraph: the NPU has little to gain from what it makes ready itself, the other unit much."""
    dag, done = queue.dag, queue.done | {index}
    newly = (fed for fed in dag.feeds[index] if done.issuperset(dag.nodes[fed].needs))
    total = math.fsum(dag.nodes[fed].duration_s for fed in newly)
    return -total if dag.nodes[index].unit == NPU else total


def simulate(dag: SubgraphDag, policy: str, *, seed: int = 0) -> Schedule:
    """Run `dag` in simulated time. `seed` is for `random` alone. Raises RegistryError for an unknown policy."""
    if policy == IN_ORDER:
        return Schedule(policy=policy, dag=dag, starts_s=placed(dag, range(len(dag))))
    return Schedule(policy=policy, dag=dag, starts_s=_listed(dag, make_policy(policy, dag, seed=seed)))


def placed(dag: SubgraphDag, order: Iterable[int]) -> tuple[float, ...]:
    """Starts where each node begins as soon as its needs and its unit allow, the units in this feasible order."""
    starts = [math.nan] * len(dag)
    free = dict.fromkeys(ROLES, 0.0)
    for index in order:
        node = dag.nodes[index]
        starts[index] = max([free[node.unit], *(starts[need] + dag.nodes[need].duration_s for need in node.needs)])
        free[node.unit] = starts[index] + node.duration_s
    return tuple(starts)


def _listed(dag: SubgraphDag, policy: Policy) -> tuple[float, ...]:
    """Returns a list schedule: at every end of a subgraph, free units choose from what is ready."""
    starts = [math.nan] * len(dag)
    missing = [len(node.needs) for node in dag.nodes]
    ready = {unit: [index for index in dag.of(unit) if not missing[index]] for unit in ROLES}
    running: dict[str, tuple[float, int]] = {}
    done: set[int] = set()
    now_s = 0.0
    while len(done) < len(dag):
        for unit in ROLES:
            if unit not in running and ready[unit]:
                chosen = policy(ReadyQueue(dag, tuple(ready[unit]), frozenset(done)))
                ready[unit].remove(chosen)
                starts[chosen] = now_s
                running[unit] = (now_s + dag.nodes[chosen].duration_s, chosen)
        now_s = min(end_s for end_s, _ in running.values())
        ended = sorted(index for end_s, index in running.values() if end_s <= now_s)
        running = {unit: pair for unit, pair in running.items() if pair[0] > now_s}
        done.update(ended)
        for index in sorted({fed for node in ended for fed in dag.feeds[node]}):
            missing[index] -= sum(need in ended for need in dag.nodes[index].needs)
            if not missing[index]:
                ready[dag.nodes[index].unit].append(index)
    return tuple(starts)
