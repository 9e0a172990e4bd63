"""A sweep: the rate at which the attainment of a server's SLO falls below a target, and latency against throughput.

Two closed loops tell where to look, one request at a time and all requests of a block at once:

    lowest rate    (1 - target) / E2E of a request alone     so many arrivals find the server idle (M/G/1: 1 - rho)
    highest rate   2 x requests a second of a block at once

Below the lowest rate only what fails alone would fail. In between serving.capacity.search chooses the rates, each of
which is one block of new prompts. The knee is the rate with the most requests answered a second for each second of E2E
(Jain 1991, The Art of Computer Systems Performance Analysis, section 3.3; Kleinrock's power).

Worked example: a request alone takes 2 s, 100 at once take 50 s, and 90 % are to attain: rates from 0.05 to 4
requests/s, of which the first is 0.44.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TypeVar

from pytest_npubench.campaign.served_block import pooled
from pytest_npubench.campaign.served_capacity import attained
from pytest_npubench.campaign.visits import Columns, Visit, columns_of
from pytest_npubench.errors import MeasurementError
from pytest_npubench.serving.capacity import Capacity, search
from pytest_npubench.serving.metrics import Slo
from pytest_npubench.serving.request import ServingRequest
from pytest_npubench.suites.server.blocks import LoadBlock, load_block
from pytest_npubench.suites.server.figures import seen_from_outside
from pytest_npubench.suites.server.loader import Loader

NUM_ALONE = 5
NUM_RATES = 10
ABOVE_AT_ONCE = 2.0
MORE_THAN_ANSWERED = 1.25  # a short block's throughput has its first and its last answer in it
ALONE, AT_ONCE = "alone", "at-once"
RowT = TypeVar("RowT", bound="SweptRate")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep(Visit):
    """What was sent: requests one after another, a block at once, and a block at each rate in the order of search."""

    alone: LoadBlock
    at_once: LoadBlock
    blocks: tuple[LoadBlock, ...]

    def columns(self) -> Columns:
        """Puts each block's columns behind its name, which is its number where it has a rate."""
        named = {ALONE: self.alone, AT_ONCE: self.at_once, **dict(zip(map(str, range(99)), self.blocks, strict=False))}
        return {
            f"{name}/{column}": values for name, block in named.items() for column, values in block.columns().items()
        }

    @classmethod
    def of_columns(cls, columns: Columns) -> tuple[Sweep, ...]:
        kept = {name: tuple(values) for name, values in columns.items()}
        names = sorted({int(number) for name in kept if (number := name.partition("/")[0]).isdigit()})
        alone, at_once, *blocks = (
            block
            for name in (ALONE, AT_ONCE, *map(str, names))
            for block in LoadBlock.of_columns(columns_of(kept, name))
        )
        return (cls(alone=alone, at_once=at_once, blocks=tuple(blocks)),)


@dataclass(frozen=True, slots=True, kw_only=True)
class SweptRate:
    """What a block at one rate came to; attainment_interval as of independent requests. What nobody saw is None."""

    rate_per_s: float
    num_arrived: int
    num_failed: int
    attainment: float
    attainment_interval: tuple[float, float]
    answered_per_s: float
    output_tokens_per_s: float
    ttft_mean_s: float | None
    ttft_p99_s: float | None
    tbt_p99_s: float | None
    e2e_mean_s: float | None

    @classmethod
    def of(cls, block: LoadBlock) -> SweptRate:
        metrics = {metric.name: metric for metric in seen_from_outside(block)}
        seen, num_arrived = metrics["slo_attainment"], len(block.records)
        num_failed = sum(record.aborted is not None for record in block.records)
        return cls(
            rate_per_s=block.rate_per_s,
            num_arrived=num_arrived,
            num_failed=num_failed,
            attainment=seen.value or 0.0,
            attainment_interval=seen.interval or (0.0, 1.0),
            answered_per_s=(num_arrived - num_failed) / block.duration_s,
            output_tokens_per_s=metrics["output_tokens_per_s"].value or 0.0,
            **{name: metrics[name].value for name in ("ttft_mean_s", "ttft_p99_s", "tbt_p99_s", "e2e_mean_s")},
        )


def rates_of(blocks: Sequence[LoadBlock]) -> tuple[SweptRate, ...]:
    """Lists the rates, the lowest first."""
    return tuple(sorted(map(SweptRate.of, blocks), key=lambda row: row.rate_per_s))


def knee(rows: Sequence[RowT]) -> RowT:
    """Returns the rate with the most requests answered a second for each second of their mean E2E."""
    return max(rows, key=lambda row: row.answered_per_s / row.e2e_mean_s if row.e2e_mean_s else 0.0)


def in_words(capacity: Capacity, rows: Sequence[SweptRate]) -> str:
    """Why a capacity is known or not, and whether blocks were too short for a queue to show."""
    most = max(row.answered_per_s for row in rows)
    if (capacity.rate_per_s or (capacity.interval or (0.0,))[0] or 0.0) <= MORE_THAN_ANSWERED * most:
        return capacity.why
    return f"{capacity.why}; more than the {most:.3g} requests/s that are answered: with more requests it is less"


def sweep(
    loader: Loader,
    workload: str,
    num_requests: int,
    *,
    slo: Slo,
    target: float,
    seed: int = 0,
    num_processes: int = 1,
    seen: Callable[[LoadBlock], None] = lambda block: None,
    watch: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> tuple[Sweep, Capacity]:
    """Finds the capacity of a warm server; `seen` is given each block, which is sent within a `watch` of its own. The
    seed draws lengths and arrivals.

    Raises WorkloadError, and MeasurementError where none of a block's requests was answered, or a process of the client
    was lost.
    """

    def block(requests: Sequence[ServingRequest], name: str, rate_per_s: float) -> LoadBlock:
        run = loader.send(requests, f"{seed}/{name}", num_processes)
        if run.lost:
            raise MeasurementError(run.lost[0])
        return load_block(run, requests, rate_per_s=rate_per_s, slo=slo)

    requests = [replace(item, arrival_s=0.0) for item in loader.requests(workload, num_requests, 1.0, seed)]
    alone = pooled([block([item], f"{ALONE}/{item.id}", 0.0) for item in requests[:NUM_ALONE]])
    at_once = block(requests, AT_ONCE, 0.0)
    blocks: list[LoadBlock] = []

    def at_rate(rate_per_s: float, run_seed: int) -> tuple[int, int, float]:
        sent = loader.requests(workload, num_requests, rate_per_s, run_seed)
        with watch():
            blocks.append(block(sent, f"{len(blocks)}", rate_per_s))
        seen(blocks[-1])
        return round(attained(blocks[-1]) * num_requests), num_requests, blocks[-1].duration_s

    low, high = _bounds(alone, at_once, target)
    num_rates = NUM_RATES if attained(alone) else 1  # what no request attains alone, none attains among others
    capacity = search(at_rate, target=target, low=low, high=high, max_runs=num_rates, seed=seed)
    return Sweep(alone=alone, at_once=at_once, blocks=tuple(blocks)), capacity


def _bounds(alone: LoadBlock, at_once: LoadBlock, target: float) -> tuple[float, float]:
    """Returns the lowest and the highest rate. Raises MeasurementError where no request alone was answered."""
    alone_s = [record.e2e_latency_s for record in alone.records if record.finished]
    if not alone_s:
        raise MeasurementError("none of the requests that were sent alone was answered whole")
    low = (1 - target) / fmean(alone_s)
    num_answered = sum(record.finished for record in at_once.records)
    return low, max(ABOVE_AT_ONCE * num_answered / at_once.duration_s, ABOVE_AT_ONCE * low)
