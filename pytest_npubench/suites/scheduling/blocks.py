"""A block of requests that was served, as columns of plain numbers: how a journal keeps it, and back again.

Everything that a metric needs is kept raw: the time points of each request and the counters of each iteration. Blocks
of several rounds make one run for quantiles, one after the other on one clock. Of the tokens a checksum of each
request's is kept, which tells whether two policies gave the same.

Where requests failed there is a column for each reason, named by it, with their indices, and one with the number of
time points that each request has: when it was dispatched, when it was scheduled, its tokens. Those that a failed one
lacks stand as its arrival in their columns, and are not read.

Worked example: of two requests the second was dispatched at 0.4 s and then lost: request.num_times (5, 1) for three
tokens of the first, "aborted/the engine died" (1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import accumulate
from zlib import crc32

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
NUM_BEFORE_TOKENS = 2  # time points of a request before its tokens: dispatched, scheduled
ABORTED = "aborted/"  # and the reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """serving.metrics.ServedRun of one block. rate_per_s is what was asked for (0: all at once), slo the limits then,
    energy_j None where nothing tells it; handover_s and handover_bytes of the requests that moved to another device;
    tokens_crc a checksum of each request's tokens, () where none was kept."""

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
    tokens_crc: tuple[int, ...] = ()
    clock: str = "wall"

    @property
    def expert_load_bytes(self) -> int:
        return sum(self.log.expert_load_bytes)


def to_samples(
    name: str, result: ServingResult, *, rate_per_s: float, slo: Slo, energy_j: float | None
) -> dict[str, list[float]]:
    """The block's columns under `name`, those that hold anything; every request has ended, or was given up and says
    why. Times are seconds from the start of the block."""
    records = result.records
    columns: dict[str, list[float]] = {
        f"request.{column}": [_number(getattr(record, column), record) for record in records]
        for column in REQUEST_COLUMNS
    }
    columns |= _aborted(records)
    if any(record.tokens for record in records):
        columns["request.tokens_crc"] = [_checksum(record.tokens) for record in records]
    columns["request.token_times_s"] = [round(at_s, DIGITS) for record in records for at_s in record.token_times_s]
    for column in ITERATION_COLUMNS:
        columns[f"iteration.{column}"] = [round(value, DIGITS) for value in getattr(result.log, column)]
    columns["run"] = [result.started_s, result.ended_s, result.num_layers, rate_per_s, slo.ttft_s, slo.tbt_s]
    if energy_j is not None:
        columns["energy_j"] = [energy_j]
    if isinstance(result, DisaggregatedResult) and result.handover_s:
        columns["handover_s"] = [round(value, DIGITS) for value in result.handover_s]
        columns["handover_bytes"] = list(result.handover_bytes)
    return {f"{name}/{column}": values for column, values in columns.items() if values}


def whole(result: ServingResult) -> ServingResult:
    """The same. Raises MeasurementError where a request failed: what is left of such a run measures something else."""
    if reason := failures_of(result.records):
        raise MeasurementError(reason)
    return result


def failures_of(records: Sequence[RequestRecord]) -> str:
    """How many requests failed, and why: "2 of 8 requests failed: the engine died"; empty where none did."""
    reasons = [record.aborted for record in records if record.aborted is not None]
    if not reasons:
        return ""
    others = len(set(reasons)) - 1
    more = f" (and {others} other reason{'s' if others > 1 else ''})" if others else ""
    return f"{len(reasons)} of {len(records)} requests failed: {reasons[0]}{more}"


def blocks(measured: Measured, point: CampaignPoint) -> tuple[Block, ...]:
    """The blocks of a point, one a round. Raises MeasurementError with the reason where it failed."""
    return tuple(map(_block, measured.columns(point.name)))


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
    num_times = list(map(int, row.get("request.num_times", [NUM_BEFORE_TOKENS + number for number in num_output])))
    ends = [0, *accumulate(max(0, number - NUM_BEFORE_TOKENS) for number in num_times)]
    times_s = row.get("request.token_times_s", ())
    aborted = {
        int(index): name.removeprefix(ABORTED)
        for name, indices in row.items()
        if name.startswith(ABORTED)
        for index in indices
    }
    records = tuple(
        RequestRecord(
            id=index,
            arrival_s=columns["arrival_s"][index],
            dispatched_s=columns["dispatched_s"][index] if num_times[index] > 0 else None,
            scheduled_s=columns["scheduled_s"][index] if num_times[index] > 1 else None,
            token_times_s=tuple(times_s[ends[index] : ends[index + 1]]),
            prompt_tokens=int(columns["prompt_tokens"][index]),
            output_tokens=num_output[index],
            num_preemptions=int(columns["num_preemptions"][index]),
            aborted=aborted.get(index),
        )
        for index in range(len(num_output))
    )
    log = IterationLog()
    for column in ITERATION_COLUMNS:
        values = row.get(f"iteration.{column}", ())  # no iteration where the engine was lost with what it knew
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
        tokens_crc=tuple(map(int, row.get("request.tokens_crc", ()))),
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
    return replace(
        record,
        arrival_s=record.arrival_s + by_s,
        dispatched_s=None if record.dispatched_s is None else record.dispatched_s + by_s,
        scheduled_s=None if record.scheduled_s is None else record.scheduled_s + by_s,
        token_times_s=tuple(at_s + by_s for at_s in record.token_times_s),
    )


def _number(value: float | None, record: RequestRecord) -> float:
    assert value is not None or record.aborted is not None  # a block is served to its end
    return round(record.arrival_s if value is None else value, DIGITS)


def _aborted(records: Sequence[RequestRecord]) -> dict[str, list[float]]:
    """What is only written where a request failed: in every other block all time points are there."""
    columns: dict[str, list[float]] = {}
    for index, record in enumerate(records):
        if record.aborted is not None:
            columns.setdefault(ABORTED + " ".join(record.aborted.split()), []).append(index)
    if columns:
        columns["request.num_times"] = [_num_times(record) for record in records]
    return columns


def _num_times(record: RequestRecord) -> int:
    """Each is there only where the one before it is: dispatched, scheduled, tokens."""
    if record.dispatched_s is None:
        return 0
    return 1 if record.scheduled_s is None else NUM_BEFORE_TOKENS + record.num_tokens


def _checksum(tokens: Sequence[int]) -> int:
    return crc32(",".join(map(str, tokens)).encode())
