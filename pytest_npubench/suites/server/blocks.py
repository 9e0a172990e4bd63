"""A block of requests that a server was sent, as columns of plain numbers: how a journal keeps it, and back again.

Everything that a metric needs is kept raw: when each request was due and sent, when its tokens came, why it failed. Of
the client's own stalls the median, the 99th percentile and the worst are kept. Blocks of several rounds make one run
for quantiles, one after the other on one clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.protocol import CampaignPoint
from pytest_npubench.engines.http.token_times import EVENTS, LISTED, RUNNING, SPREAD
from pytest_npubench.serving.log import IterationLog
from pytest_npubench.serving.metrics import RequestRecord, Slo
from pytest_npubench.serving.request import ServingRequest
from pytest_npubench.suites.server.failures import code_of, name_of

if TYPE_CHECKING:
    from pytest_npubench.engines.http.load_run import HttpRun

DIGITS = 6  # microseconds: a journal is read by people and kept for years
GAP_S = 1.0
COUNTED_BY = ("", RUNNING, LISTED, SPREAD, EVENTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadBlock:
    """serving.metrics.ServedRun of one block; there are no iterations, as nothing outside a server sees them.

    failures: of each record its failure's code, 0 for none. counted_by: how its tokens were counted. stalls_s: median,
    99th percentile and worst of how late the client's own watch came. slo: None where there are no limits.
    """

    records: tuple[RequestRecord, ...]
    failures: tuple[int, ...]
    counted_by: tuple[str, ...]
    stalls_s: tuple[float, float, float]
    ended_s: float
    rate_per_s: float
    slo: Slo | None
    started_s: float = 0.0
    log: IterationLog = field(default_factory=IterationLog)
    num_layers: int = 1
    clock: str = "wall"


def to_columns(
    run: HttpRun, requests: Sequence[ServingRequest], *, rate_per_s: float, slo: Slo | None
) -> dict[str, list[float]]:
    """Seconds from the start of the block. A column that would be empty is left out."""
    answers = run.answers
    columns: dict[str, list[float]] = {
        "request.arrival_s": [round(answer.request.arrival_s, DIGITS) for answer in answers],
        "request.dispatched_s": [round(answer.dispatched_s, DIGITS) for answer in answers],
        "request.prompt_tokens": [request.prompt_tokens for request in requests],
        "request.output_tokens": [request.output_tokens for request in requests],
        "request.num_tokens": [len(answer.token_times_s) for answer in answers],
        "request.token_times_s": [round(at_s, DIGITS) for answer in answers for at_s in answer.token_times_s],
        "request.failed": [code_of(answer.failed) for answer in answers],
        "request.counted_by": [COUNTED_BY.index(answer.counted_by) for answer in answers],
        "client.stalls_s": [round(value, DIGITS) for value in _stalls_s(run)],
        "run": [run.ended_s, rate_per_s],
        "slo": [] if slo is None else [slo.ttft_s, slo.tbt_s],
    }
    return {name: values for name, values in columns.items() if values}


def of_columns(columns: Mapping[str, Sequence[float]]) -> LoadBlock:
    """What to_columns wrote."""
    counts = list(map(int, columns["request.num_tokens"]))
    times_s = tuple(columns.get("request.token_times_s", ()))
    ends = [0, *accumulate(counts)]
    failures = tuple(map(int, columns["request.failed"]))
    records = tuple(
        RequestRecord(
            id=index,
            arrival_s=columns["request.arrival_s"][index],
            dispatched_s=columns["request.dispatched_s"][index],
            token_times_s=times_s[ends[index] : ends[index + 1]],
            prompt_tokens=int(columns["request.prompt_tokens"][index]),
            output_tokens=int(columns["request.output_tokens"][index]),
            aborted=name_of(failures[index]) if failures[index] else None,
        )
        for index in range(len(counts))
    )
    median_s, p99_s, worst_s = columns["client.stalls_s"]
    ended_s, rate_per_s = columns["run"]
    limits = columns.get("slo")
    return LoadBlock(
        records=records,
        failures=failures,
        counted_by=tuple(COUNTED_BY[int(index)] for index in columns["request.counted_by"]),
        stalls_s=(median_s, p99_s, worst_s),
        ended_s=ended_s,
        rate_per_s=rate_per_s,
        slo=Slo(ttft_s=limits[0], tbt_s=limits[1]) if limits else None,
    )


def blocks(measured: Measured, point: CampaignPoint) -> tuple[LoadBlock, ...]:
    """The blocks of a point, one a round. Raises MeasurementError with the reason where it failed."""
    return tuple(map(of_columns, measured.columns(point.name)))


def pooled(found: Sequence[LoadBlock]) -> LoadBlock:
    """All blocks as one run, each moved to after the one before; the stalls are those of the worst of them."""
    shifts_s = [0.0, *accumulate(block.ended_s + GAP_S for block in found)]
    records = [_moved(record, by_s) for block, by_s in zip(found, shifts_s, strict=False) for record in block.records]
    median_s, p99_s, worst_s = np.max([block.stalls_s for block in found], axis=0).tolist()
    return LoadBlock(
        records=tuple(replace(record, id=index) for index, record in enumerate(records)),
        failures=tuple(code for block in found for code in block.failures),
        counted_by=tuple(name for block in found for name in block.counted_by),
        stalls_s=(median_s, p99_s, worst_s),
        ended_s=shifts_s[-1] - GAP_S,
        rate_per_s=found[0].rate_per_s,
        slo=found[0].slo,
    )


def _moved(record: RequestRecord, by_s: float) -> RequestRecord:
    assert record.dispatched_s is not None  # every request of a block was sent
    return replace(
        record,
        arrival_s=record.arrival_s + by_s,
        dispatched_s=record.dispatched_s + by_s,
        token_times_s=tuple(at_s + by_s for at_s in record.token_times_s),
    )


def _stalls_s(run: HttpRun) -> tuple[float, float, float]:
    if not run.loop_stalls_s:  # over before the watch looked once
        return 0.0, 0.0, 0.0
    stalls_s = np.maximum(run.loop_stalls_s, 0.0)
    median_s, p99_s = np.quantile(stalls_s, (0.5, 0.99))
    return float(median_s), float(p99_s), float(stalls_s.max())
