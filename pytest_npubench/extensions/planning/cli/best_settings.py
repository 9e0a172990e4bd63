"""The best of many settings, without simulating most of them: a search by branch and bound, exact.

What a setting carries is the highest of the rates up to which, from the lowest on, it attains everywhere. Before
anything is known of a setting it may carry the highest rate; each rate that it does not attain puts it below that rate.
Its rank by the rate that it may carry is thus at least as good as the one that it has. Settings are tested in the order
of these ranks, the best first, and one that is settled (every rate up to the one that it carries attains) ahead of all
that are not is the next best.

Worked example: rates 2, 4 and 8, one device at the price of 1. Setting a does not attain 8 and attains 4 and 2: it
carries 4. Setting b does not attain 4: it ranks behind a, and whether it attains 2 is never asked. Two devices may at
the best carry 8 at the price of 2, as good as a: they are tested at 8, and no longer once they do not attain that.

Twins differ in their max_batch_size alone. As long as fewer requests were admitted than either allows they do the same,
so that one of them is simulated.
"""

from __future__ import annotations

import heapq
from bisect import insort
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field, replace
from typing import Any

from pytest_npubench.extensions.planning.cli.search_pools import Pool
from pytest_npubench.extensions.planning.cli.searched_settings import Candidate, Goal, Outcome, evaluate

Rank = Callable[["Contender"], tuple[Any, ...] | None]
"""The better the smaller; None: out of the running. What rules a rate out never makes it smaller."""


@dataclass(slots=True, eq=False)
class Contender:
    """A setting, its price an hour, and what is known of it. rates_per_s from the lowest on."""

    candidate: Candidate
    price: float
    rates_per_s: tuple[float, ...]
    outcomes: dict[float, Outcome] = field(default_factory=dict)

    @property
    def rate_per_s(self) -> float | None:
        """The highest that it may carry by what is known; None: none."""
        highest = None
        for rate_per_s in self.rates_per_s:
            outcome = self.outcomes.get(rate_per_s)
            if outcome is not None and not outcome.attains:
                break
            highest = rate_per_s
        return None if self.why else highest

    @property
    def why(self) -> str:
        return next((outcome.why for outcome in self.outcomes.values() if outcome.why), "")

    @property
    def cost(self) -> float | None:
        """Of 1,000 requests at that rate."""
        rate_per_s = self.rate_per_s
        return None if rate_per_s is None else 1000 * self.price / (3600 * rate_per_s)

    def next_rate(self, guess: float | None) -> float | None:
        """To be tested; None: it is settled. guess: a rate that it may well not attain."""
        most = self.rate_per_s
        if most is None:
            return None
        if most not in self.outcomes:
            return guess if guess is not None and guess < most and guess not in self.outcomes else most
        return next((rate for rate in reversed(self.tried_up_to(most)) if rate not in self.outcomes), None)

    def tried_up_to(self, rate_per_s: float) -> tuple[float, ...]:
        return tuple(rate for rate in self.rates_per_s if rate <= rate_per_s)


def by_cost(contender: Contender) -> tuple[Any, ...] | None:
    """What 1,000 requests cost."""
    return None if contender.cost is None else (contender.cost, contender.candidate.name)


def by_devices(contender: Contender) -> tuple[Any, ...] | None:
    """The fewest devices, and among those the highest rate."""
    return (
        None
        if contender.rate_per_s is None
        else (contender.candidate.num_devices, -contender.rate_per_s, contender.candidate.name)
    )


def by_goodput(contender: Contender) -> tuple[Any, ...] | None:
    """The most requests a second and device that attain."""
    if contender.rate_per_s is None:
        return None
    attained = contender.outcomes[contender.rate_per_s].attainment if contender.next_rate(None) is None else 1.0
    return -contender.rate_per_s * attained / contender.candidate.num_devices, contender.candidate.name


OBJECTIVES: Mapping[str, Rank] = {"cost": by_cost, "devices": by_devices, "goodput": by_goodput}


class Simulations:
    """Simulations of contenders in a pool. learnt: is told of each outcome as it comes."""

    def __init__(self, pool: Pool, goal: Goal, learnt: Callable[[Contender, Outcome], None]) -> None:
        self.pool, self.goal, self._learnt = pool, goal, learnt
        self._twins: dict[tuple[Candidate, float], list[tuple[int, Outcome]]] = defaultdict(list)
        self._running: set[tuple[Candidate, float]] = set()
        self._failed: dict[tuple[str, int, int, int], float] = {}  # on the same devices, the last time

    def next_rate(self, contender: Contender) -> float | None:
        return contender.next_rate(self._failed.get(_devices(contender.candidate)))

    def start(self, contender: Contender, rate_per_s: float) -> Future[Outcome] | None:
        """None: not now, a twin is being simulated."""
        twin, most_admitted = _twin(contender.candidate)
        for most, outcome in self._twins[twin, rate_per_s]:
            if outcome.most_admitted is not None and outcome.most_admitted < min(most, most_admitted):
                done: Future[Outcome] = Future()
                done.set_result(outcome)
                return done
        if (twin, rate_per_s) in self._running:
            return None
        self._running.add((twin, rate_per_s))
        return self.pool.submit(evaluate, contender.candidate, self.goal, rate_per_s)

    def ended(self, contender: Contender, outcome: Outcome) -> None:
        self.add(contender, outcome)
        self._running.discard((_twin(contender.candidate)[0], outcome.rate_per_s))
        self._learnt(contender, outcome)

    def add(self, contender: Contender, outcome: Outcome) -> None:
        """What is known without a simulation."""
        twin, most_admitted = _twin(contender.candidate)
        contender.outcomes[outcome.rate_per_s] = outcome
        self._twins[twin, outcome.rate_per_s].append((most_admitted, outcome))
        if not outcome.attains:
            self._failed[_devices(contender.candidate)] = outcome.rate_per_s


def best(contenders: Sequence[Contender], rank: Rank, number: int, simulations: Simulations) -> list[Contender]:
    """The first so many by rank, in order; fewer where fewer carry anything."""
    waiting = [(ranked, position) for position, one in enumerate(contenders) if (ranked := rank(one)) is not None]
    heapq.heapify(waiting)
    settled: list[tuple[tuple[Any, ...], int]] = []
    running: dict[Future[Outcome], int] = {}
    while True:
        blocked = []
        while waiting and len(running) < simulations.pool.width:
            if len(settled) >= number and settled[number - 1] < waiting[0]:
                break
            entry = heapq.heappop(waiting)
            contender = contenders[entry[1]]
            rate_per_s = simulations.next_rate(contender)
            if rate_per_s is None:
                insort(settled, entry)
            elif (future := simulations.start(contender, rate_per_s)) is None:
                blocked.append(entry)
            else:
                running[future] = entry[1]
        for entry in blocked:
            heapq.heappush(waiting, entry)
        if not running:
            return [contenders[position] for _, position in settled[:number]]
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            position = running.pop(future)
            simulations.ended(contenders[position], future.result())
            if (ranked := rank(contenders[position])) is not None:
                heapq.heappush(waiting, (ranked, position))


def best_at_each_price(contenders: Sequence[Contender], simulations: Simulations) -> Iterator[Contender]:
    """From the lowest price on, each carries more than all that cost less."""
    carried = 0.0
    for price in sorted({contender.price for contender in contenders}):

        def rank(contender: Contender, above: float = carried) -> tuple[Any, ...] | None:
            rate_per_s = contender.rate_per_s
            return None if rate_per_s is None or rate_per_s <= above else (-rate_per_s, contender.candidate.name)

        for cheapest in best([contender for contender in contenders if contender.price == price], rank, 1, simulations):
            carried = cheapest.rate_per_s or carried
            yield cheapest


def closest(
    contenders: Sequence[Contender], rate_per_s: float, simulations: Simulations
) -> tuple[Contender, Outcome] | None:
    """Which of them attains most at this rate, that none of them attains; None: none of them can be served."""
    nearest: tuple[Contender, Outcome] | None = None
    waiting = sorted(
        (contender for contender in contenders if not contender.why),
        key=lambda contender: contender.candidate.name,
        reverse=True,
    )
    running: dict[Future[Outcome], Contender] = {}
    while waiting or running:
        while waiting and len(running) < simulations.pool.width:
            at_least = nearest[1].attainment if nearest else 0.0
            arguments = waiting[-1].candidate, simulations.goal, rate_per_s, at_least
            running[simulations.pool.submit(evaluate, *arguments)] = waiting.pop()
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            contender, outcome = running.pop(future), future.result()
            if outcome.is_whole and (nearest is None or _closer(contender, outcome) < _closer(*nearest)):
                nearest = contender, outcome
    return nearest


def _closer(contender: Contender, outcome: Outcome) -> tuple[float, str]:
    return -outcome.attainment, contender.candidate.name


def _devices(candidate: Candidate) -> tuple[str, int, int, int]:
    return candidate.hardware, candidate.tensor_parallel, candidate.pipeline_parallel, candidate.data_parallel


def _twin(candidate: Candidate) -> tuple[Candidate, int]:
    """What it has in common with its twins, and how many requests it admits; 0: it has none."""
    settings = dict(candidate.settings)
    most_admitted = settings.pop("max_batch_size", 0)
    assert isinstance(most_admitted, int)
    return replace(candidate, settings=tuple(settings.items())), most_admitted
