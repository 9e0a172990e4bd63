"""Measuring in shuffled rounds, so that the machine's drift falls on every point alike.

Shared cores drift by several percent over seconds and minutes. Profiling first and judging afterwards puts that drift
into the prediction error; with every point visited in every round, in an order shuffled anew, it cancels
(docs/performance.md: 8.9 % against 2.4 %).
A round visits a short point several times and a long one once, so that all of them get a like share of the time.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from pytest_npubench.campaign.protocol import CampaignPoint
from pytest_npubench.campaign.visits import Visit
from pytest_npubench.core.clock import perf_counter
from pytest_npubench.core.measurement import check_samples
from pytest_npubench.engines.no_collection import no_collection
from pytest_npubench.errors import MeasurementError, NpubenchError


def measure_round(
    points: Sequence[CampaignPoint],
    durations_s: Mapping[str, float],
    sampler: Callable[[CampaignPoint, int], Visit],
    seed: int,
    on_sample: Callable[[], None],
    visits: Mapping[str, int] = MappingProxyType({}),
) -> tuple[dict[str, tuple[float, ...]], dict[str, str], float]:
    """Visit every point in one shuffled order, with no garbage collection in between.

    `sampler(point, seed)` visits a point once. `visits`: how often a round visits a point, by name.
    Returns the samples by name, the reason of each point that failed, and the seconds the round took.
    """
    order = _order([num_visits(point, durations_s, visits) for point in points], random.Random(seed))
    samples: dict[str, dict[str, list[float]]] = {}
    failures: dict[str, str] = {}
    started_s = perf_counter()
    with no_collection():
        for point in map(points.__getitem__, order):
            if point.name not in failures:
                try:
                    visit = sampler(point, seed)
                    for column, values in visit.columns().items():
                        name = f"{point.name}/{column}" if column else point.name
                        check_samples(name, values, signed=visit.signed)
                        samples.setdefault(point.name, {}).setdefault(name, []).extend(values)
                except Exception as error:  # noqa: BLE001 - whatever a vendor's runtime raises ends this point, not the run
                    failures[point.name] = failure_reason(point.name, error)
                    samples.pop(point.name, None)
            on_sample()
    by_name = {name: tuple(values) for found in samples.values() for name, values in found.items()}
    return by_name, failures, perf_counter() - started_s


def _order(nums: Sequence[int], places: random.Random) -> list[int]:
    """Which point each visit of a round is of, by its index. The k-th of n visits of a point has a random place between
    (k - 1) / n and k / n of the round, so that no point has all of them in what may be a slow second."""
    turns = [((turn + places.random()) / num, index) for index, num in enumerate(nums) for turn in range(num)]
    return [index for _, index in sorted(turns)]


def num_visits(point: CampaignPoint, durations_s: Mapping[str, float], visits: Mapping[str, int]) -> int:
    """Returns the number of a point's visits in one round: as `visits` has it, else as the point says."""
    return visits[point.name] if point.name in visits else point.visits(durations_s[point.name])


def failure_reason(name: str, error: Exception) -> str:
    """One line for a verdict: our own errors speak for themselves, a vendor's are named with their type."""
    if isinstance(error, MeasurementError):
        return str(error)
    text = str(error).strip().splitlines()
    kind = "" if isinstance(error, NpubenchError) else f"{type(error).__name__}: "
    return f"{name}: {kind}{text[0] if text else 'no message'}"
