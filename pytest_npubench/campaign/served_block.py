"""A block of requests that was served, whoever served them: the visit of its point, and how a round keeps it.

Everything that a metric needs is kept raw: the time points of each request and the counters of each iteration, as far
as they were seen. Blocks of several rounds make one run for quantiles, one after the other on one clock. Of the tokens
a checksum of each request's is kept, which tells whether two policies gave the same.

Where requests failed there is a column for each reason, named by it, with their indices, and one with the number of
time points that each request has: when it was dispatched, when it was scheduled, its tokens. Those that a failed one
lacks stand as its arrival in their columns, and are not read.

Worked example: of two requests the second was dispatched at 0.4 s and then lost: request.num_times (5, 1) for three
tokens of the first, "aborted/the engine died" (1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import TypeVar
from zlib import crc32

from pytest_npubench.campaign.visits import DIGITS, Columns, Visit
from pytest_npubench.errors import MeasurementError
from pytest_npubench.serving.disaggregated import DisaggregatedResult
from pytest_npubench.serving.log import IterationLog
from pytest_npubench.serving.metrics import RequestRecord, Slo
from pytest_npubench.serving.result import ServingResult

GAP_S = 1.0
RUN = "run"
"""The column that every block has, and nothing else: when it ran, at which rate, under which limits."""
REQUEST_COLUMNS = ("arrival_s", "dispatched_s", "scheduled_s", "prompt_tokens", "output_tokens", "num_preemptions")
NUM_BEFORE_TOKENS = 2  # time points of a request before its tokens: dispatched, scheduled
ABORTED = "aborted/"  # and the reason

BlockT = TypeVar("BlockT", bound="ServedBlock")


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration(Visit):
    """What rate and limits of a block come from: full_rate_per_s of chunked prefill, decode_step_s of 32 requests, both
    of one load on one device. A round keeps it beside the block."""

    full_rate_per_s: float
    decode_step_s: float

    def columns(self) -> Columns:
        return {"calibration": (self.full_rate_per_s, self.decode_step_s)}

    @classmethod
    def of_columns(cls, columns: Columns) -> tuple[Calibration, ...]:
        values = columns.get("calibration", ())
        return (cls(full_rate_per_s=values[0], decode_step_s=values[1]),) if values else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedBlock(Visit):
    """serving.metrics.served.ServedRun of one block, in seconds on its own clock.

    rate_per_s is what was asked for (0: all at once), slo the limits then, None without any; energy_j is None where
    nothing tells it. handover_s and handover_bytes are those of the requests that moved to another device; tokens_crc
    is a checksum of each request's tokens, () where none was kept.

    Of a server that is loaded from outside there are no iterations. counted_by has a code for each request of how its
    tokens were counted; remarks has the number of requests that each of the client's remarks was made on; stalls_s are
    the median, the 99th percentile and the worst of how late the client's own watch came.
    """

    records: tuple[RequestRecord, ...]
    ended_s: float
    rate_per_s: float
    slo: Slo | None
    started_s: float = 0.0
    num_layers: int = 1
    log: IterationLog = field(default_factory=IterationLog)
    energy_j: float | None = None
    handover_s: tuple[float, ...] = ()
    handover_bytes: tuple[int, ...] = ()
    tokens_crc: tuple[int, ...] = ()
    counted_by: tuple[int, ...] = ()
    remarks: tuple[int, ...] = ()
    stalls_s: tuple[float, ...] = ()
    calibration: Calibration | None = None
    clock: str = "wall"

    @classmethod
    def of_result(
        cls,
        result: ServingResult,
        *,
        rate_per_s: float,
        slo: Slo | None = None,
        energy_j: float | None = None,
        calibration: Calibration | None = None,
    ) -> ServedBlock:
        """What our own schedulers, or vLLM's, served; every request has ended, or was given up and says why."""
        moved = result if isinstance(result, DisaggregatedResult) else None
        has_tokens = any(record.tokens for record in result.records)
        return cls(
            records=result.records,
            log=result.log,
            started_s=result.started_s,
            ended_s=result.ended_s,
            num_layers=result.num_layers,
            rate_per_s=rate_per_s,
            slo=slo,
            energy_j=energy_j,
            handover_s=moved.handover_s if moved else (),
            handover_bytes=moved.handover_bytes if moved else (),
            tokens_crc=tuple(_checksum(record.tokens) for record in result.records) if has_tokens else (),
            calibration=calibration,
        )

    @property
    def limits(self) -> Slo:
        """Raises MeasurementError where it was held to none."""
        if self.slo is None:
            raise MeasurementError("a block without limits on its latencies")
        return self.slo

    @property
    def duration_s(self) -> float:
        return self.ended_s - self.started_s

    @property
    def expert_load_bytes(self) -> int:
        return sum(self.log.expert_load_bytes)

    @property
    def ttfts_s(self) -> list[float]:
        """Returns the TTFT of each request with a first token."""
        return [record.ttft_s for record in self.records if record.token_times_s]

    @property
    def gaps_s(self) -> list[float]:
        """Every TBT of every request."""
        return [gap_s for record in self.records for gap_s in record.tbt_s]

    @property
    def num_output_tokens(self) -> int:
        return sum(record.num_tokens for record in self.records)

    @property
    def num_tokens(self) -> int:
        """Returns the tokens of all prompts and answers."""
        return self.num_output_tokens + sum(record.prompt_tokens or 0 for record in self.records)

    def columns(self) -> Columns:
        """Returns the columns that are not empty; times are rounded to microseconds."""
        records, limits = self.records, () if self.slo is None else (self.slo.ttft_s, self.slo.tbt_s)
        columns: dict[str, Sequence[float]] = {
            f"request.{name}": [_number(getattr(record, name), record) for record in records]
            for name in REQUEST_COLUMNS
            if any(getattr(record, name) is not None for record in records)
        }
        columns |= _aborted(records)
        columns["request.tokens_crc"] = self.tokens_crc
        columns["request.token_times_s"] = [round(at_s, DIGITS) for record in records for at_s in record.token_times_s]
        columns["request.counted_by"] = self.counted_by
        columns["client.remarks"] = self.remarks
        for name, values in self.log.columns().items():
            if name != "energy_j" and None not in values:
                columns[f"iteration.{name}"] = [round(value, DIGITS) for value in values]
        columns[RUN] = [self.started_s, self.ended_s, self.num_layers, self.rate_per_s, *limits]
        columns["energy_j"] = () if self.energy_j is None else (self.energy_j,)
        columns["handover_s"] = [round(value, DIGITS) for value in self.handover_s]
        columns["handover_bytes"] = self.handover_bytes
        columns["client.stalls_s"] = [round(value, DIGITS) for value in self.stalls_s]
        columns |= {} if self.calibration is None else self.calibration.columns()
        return {name: values for name, values in columns.items() if len(values)}

    @classmethod
    def of_columns(cls: type[BlockT], columns: Columns) -> tuple[BlockT, ...]:
        try:
            started_s, ended_s, num_layers, rate_per_s, *limits = columns[RUN]
            records, log = _records(columns), IterationLog()
        except (KeyError, IndexError, ValueError, TypeError) as error:
            raise MeasurementError(f"columns that are no block of requests: {type(error).__name__} {error}") from error
        log.extend(
            {name.removeprefix("iteration."): own for name, own in columns.items() if name.startswith("iteration.")}
        )
        energy = columns.get("energy_j")
        calibration = Calibration.of_columns(columns)
        block = cls(
            records=records,
            log=log,
            started_s=started_s,
            ended_s=ended_s,
            num_layers=int(num_layers),
            rate_per_s=rate_per_s,
            slo=Slo(ttft_s=limits[0], tbt_s=limits[1]) if limits else None,
            energy_j=energy[0] if energy else None,
            handover_s=tuple(columns.get("handover_s", ())),
            handover_bytes=tuple(map(int, columns.get("handover_bytes", ()))),
            tokens_crc=tuple(map(int, columns.get("request.tokens_crc", ()))),
            counted_by=tuple(map(int, columns.get("request.counted_by", ()))),
            remarks=tuple(map(int, columns.get("client.remarks", ()))),
            stalls_s=tuple(columns.get("client.stalls_s", ())),
            calibration=calibration[0] if calibration else None,
        )
        return (block,)


def pooled(blocks: Sequence[BlockT]) -> BlockT:
    """All blocks as one run: each is moved behind the one before; stalls are the worst block's."""
    starts_s = [0.0, *accumulate(block.duration_s + GAP_S for block in blocks)]
    moves_s = [start_s - block.started_s for start_s, block in zip(starts_s, blocks, strict=False)]
    records = [_moved(record, by_s) for block, by_s in zip(blocks, moves_s, strict=True) for record in block.records]
    log = IterationLog()
    for block, by_s in zip(blocks, moves_s, strict=True):
        log.extend(block.log.columns(), by_s)
    joules = [block.energy_j for block in blocks if block.energy_j is not None]
    return replace(
        blocks[0],
        records=tuple(replace(record, id=index) for index, record in enumerate(records)),
        log=log,
        started_s=0.0,
        ended_s=blocks[-1].ended_s + moves_s[-1],
        energy_j=sum(joules) if len(joules) == len(blocks) else None,
        handover_s=tuple(value for block in blocks for value in block.handover_s),
        handover_bytes=tuple(value for block in blocks for value in block.handover_bytes),
        tokens_crc=tuple(value for block in blocks for value in block.tokens_crc),
        counted_by=tuple(value for block in blocks for value in block.counted_by),
        remarks=tuple(map(sum, zip(*(block.remarks for block in blocks), strict=True))),
        stalls_s=tuple(map(max, zip(*(block.stalls_s for block in blocks), strict=True))),
    )


def failures_of(records: Sequence[RequestRecord]) -> str:
    """How many requests failed, and why: "2 of 8 requests failed: the engine died"; empty where none did."""
    reasons = [record.aborted for record in records if record.aborted is not None]
    if not reasons:
        return ""
    others = len(set(reasons)) - 1
    more = f" (and {others} other reason{'s' if others > 1 else ''})" if others else ""
    return f"{len(reasons)} of {len(records)} requests failed: {reasons[0]}{more}"


def _records(columns: Columns) -> tuple[RequestRecord, ...]:
    """Raises KeyError, IndexError or ValueError where the columns do not fit together."""
    requests = {name: columns.get(f"request.{name}", ()) for name in REQUEST_COLUMNS}
    num_output = list(map(int, columns["request.output_tokens"]))
    num_times = list(map(int, columns.get("request.num_times", [NUM_BEFORE_TOKENS + number for number in num_output])))
    ends = [0, *accumulate(max(0, number - NUM_BEFORE_TOKENS) for number in num_times)]
    times_s = columns.get("request.token_times_s", ())
    if ends[-1] != len(times_s) or not {len(values) for values in requests.values()} <= {0, len(num_output)}:
        raise ValueError(f"{len(times_s)} token times of {len(num_output)} requests; want {ends[-1]} of as many")
    reasons = {
        int(index): name.removeprefix(ABORTED)
        for name, indices in columns.items()
        if name.startswith(ABORTED)
        for index in indices
    }
    return tuple(
        RequestRecord(
            id=index,
            arrival_s=requests["arrival_s"][index],
            dispatched_s=requests["dispatched_s"][index] if requests["dispatched_s"] and num_times[index] > 0 else None,
            scheduled_s=requests["scheduled_s"][index] if requests["scheduled_s"] and num_times[index] > 1 else None,
            token_times_s=tuple(times_s[ends[index] : ends[index + 1]]),
            prompt_tokens=int(requests["prompt_tokens"][index]),
            output_tokens=num_output[index],
            num_preemptions=int(requests["num_preemptions"][index]),
            aborted=reasons.get(index),
        )
        for index in range(len(num_output))
    )


def _moved(record: RequestRecord, by_s: float) -> RequestRecord:
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


def _aborted(records: Sequence[RequestRecord]) -> dict[str, Sequence[float]]:
    """What is only written where a request failed: in every other block all time points are there."""
    columns: dict[str, list[float]] = {}
    for index, record in enumerate(records):
        if record.aborted is not None:
            columns.setdefault(ABORTED + " ".join(record.aborted.split()), []).append(index)
    counts: dict[str, Sequence[float]] = {"request.num_times": [_num_times(record) for record in records]}
    return {**columns, **counts} if columns else {}


def _num_times(record: RequestRecord) -> int:
    """Returns the number of known times; each needs the one before. A server does not report its scheduling."""
    if record.dispatched_s is None:
        return 0
    return 1 if record.scheduled_s is None and not record.num_tokens else NUM_BEFORE_TOKENS + record.num_tokens


def _checksum(tokens: Sequence[int]) -> int:
    return crc32(",".join(map(str, tokens)).encode())
