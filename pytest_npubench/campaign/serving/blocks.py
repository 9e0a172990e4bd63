"""A block of requests that was served, as columns of plain numbers: how a journal keeps it, and back again.

Everything that a metric needs is kept raw: the time points of each request and the counters of each iteration. Blocks
of several rounds make one run for quantiles, one after the other on one clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import accumulate

from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.protocol import CampaignPoint
from pytest_npubench.errors import MeasurementError
from pytest_npubench.serving.disaggregated import DisaggregatedResult
from pytest_npubench.serving.log import IterationLog
from pytest_npubench.serving.metrics import RequestRecord, Slo
from pytest_npubench.serving.result import ServingResult

DIGITS = 6  # microseconds: a journal is read by people and kept for years
REQUEST_COLUMNS = ("arrival_s", "dispatched_s", "scheduled_s", "prompt_tokens", "output_tokens", "num_preemptions")
ITERATION_COLUMNS = tuple(column.name for column in fields(IterationLog) if column.name != "energy_j")
GAP_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """serving.metrics.ServedRun of one block. rate_per_s is what was asked for (0: all at once), slo the limits then,
    energy_j None where nothing tells it; handover_s and handover_bytes of the requests that moved to another device."""

    records: tuple[RequestRecord, ...]
    log: IterationLog
    started_s: float
    ended_s: float
    num_layers: int
    rate_per_s: float
    slo: Slo
    energy_j: float | None = None
    handover_s: tuple[float, ...] = ()
    handover_bytes: tuple[int, ...] = ()
    clock: str = "wall"

    @property
    def expert_load_bytes(self) -> int:
        return sum(self.log.expert_load_bytes)


def to_samples(
    name: str, result: ServingResult, *, rate_per_s: float, slo: Slo, energy_j: float | None
) -> dict[str, list[float]]:
    """The block's columns under `name`; every request has ended. Times are seconds from the start of the block."""
    records = result.records
    columns: dict[str, list[float]] = {
        f"request.{column}": [_number(getattr(record, column)) for record in records] for column in REQUEST_COLUMNS
    }
    columns["request.token_times_s"] = [round(at_s, DIGITS) for record in records for at_s in record.token_times_s]
    for column in ITERATION_COLUMNS:
        columns[f"iteration.{column}"] = [round(value, DIGITS) for value in getattr(result.log, column)]
    columns["run"] = [result.started_s, result.ended_s, result.num_layers, rate_per_s, slo.ttft_s, slo.tbt_s]
    if energy_j is not None:
        columns["energy_j"] = [energy_j]
    if isinstance(result, DisaggregatedResult) and result.handover_s:
        columns["handover_s"] = [round(value, DIGITS) for value in result.handover_s]
        columns["handover_bytes"] = list(result.handover_bytes)
    return {f"{name}/{column}": values for column, values in columns.items()}


def blocks(measured: Measured, point: CampaignPoint) -> tuple[Block, ...]:
    """The blocks of a point, one a round. Raises MeasurementError with the reason where it failed."""
    measured.check(point.name)
    prefix = f"{point.name}/"
    rounds = [
        {name.removeprefix(prefix): values for name, values in row.items() if name.startswith(prefix)}
        for row in measured.rounds
    ]
    if not any(rounds):
        raise MeasurementError(f"{point.name}: no block was served")
    return tuple(_block(row) for row in rounds if row)


def pooled(found: Sequence[Block]) -> Block:
    """All blocks as one run, each moved to after the one before."""
    spans = [block.ended_s - block.started_s + GAP_S for block in found]
    shifts = [0.0, *accumulate(spans)]
    moved = [_moved(block, shift - block.started_s) for block, shift in zip(found, shifts, strict=False)]
    log = IterationLog()
    for column in ITERATION_COLUMNS:
        for block in moved:
            getattr(log, column).extend(getattr(block.log, column))
    log.energy_j.extend([None] * len(log))
    records = [record for block in moved for record in block.records]
    joules = [block.energy_j for block in found if block.energy_j is not None]
    return Block(
        records=tuple(replace(record, id=index) for index, record in enumerate(records)),
        log=log,
        started_s=moved[0].started_s,
        ended_s=moved[-1].ended_s,
        num_layers=found[0].num_layers,
        rate_per_s=sum(block.rate_per_s for block in found) / len(found),
        slo=found[0].slo,
        energy_j=sum(joules) if len(joules) == len(found) else None,
        handover_s=tuple(value for block in found for value in block.handover_s),
        handover_bytes=tuple(value for block in found for value in block.handover_bytes),
    )


def _block(row: Mapping[str, Sequence[float]]) -> Block:
    started_s, ended_s, num_layers, rate_per_s, ttft_s, tbt_s = row["run"]
    columns = {name: row[f"request.{name}"] for name in REQUEST_COLUMNS}
    num_output = list(map(int, columns["output_tokens"]))
    ends = [0, *accumulate(num_output)]
    times_s = row["request.token_times_s"]
    records = tuple(
        RequestRecord(
            id=index,
            arrival_s=columns["arrival_s"][index],
            dispatched_s=columns["dispatched_s"][index],
            scheduled_s=columns["scheduled_s"][index],
            token_times_s=tuple(times_s[ends[index] : ends[index + 1]]),
            prompt_tokens=int(columns["prompt_tokens"][index]),
            output_tokens=num_output[index],
            num_preemptions=int(columns["num_preemptions"][index]),
        )
        for index in range(len(num_output))
    )
    log = IterationLog()
    for column in ITERATION_COLUMNS:
        values = row[f"iteration.{column}"]
        getattr(log, column).extend(values if column.endswith("_s") else map(int, values))
    log.energy_j.extend([None] * len(log))
    energy = row.get("energy_j")
    return Block(
        records=records,
        log=log,
        started_s=started_s,
        ended_s=ended_s,
        num_layers=int(num_layers),
        rate_per_s=rate_per_s,
        slo=Slo(ttft_s=ttft_s, tbt_s=tbt_s),
        energy_j=energy[0] if energy else None,
        handover_s=tuple(row.get("handover_s", ())),
        handover_bytes=tuple(map(int, row.get("handover_bytes", ()))),
    )


def _moved(block: Block, by_s: float) -> Block:
    log = IterationLog()
    for column in ITERATION_COLUMNS:
        values = getattr(block.log, column)
        getattr(log, column).extend([value + by_s for value in values] if column.endswith("_s") else values)
    return replace(
        block,
        records=tuple(_record_moved(record, by_s) for record in block.records),
        log=log,
        started_s=block.started_s + by_s,
        ended_s=block.ended_s + by_s,
    )


def _record_moved(record: RequestRecord, by_s: float) -> RequestRecord:
    assert record.dispatched_s is not None
    assert record.scheduled_s is not None
    return replace(
        record,
        arrival_s=record.arrival_s + by_s,
        dispatched_s=record.dispatched_s + by_s,
        scheduled_s=record.scheduled_s + by_s,
        token_times_s=tuple(at_s + by_s for at_s in record.token_times_s),
    )


def _number(value: float | None) -> float:
    assert value is not None  # a block is served to its end
    return round(value, DIGITS)
