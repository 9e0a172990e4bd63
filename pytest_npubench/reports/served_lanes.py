"""Blocks of served requests as lanes of a trace: the engine's iterations, a track for each request, the queue.

Under a request's track lie its wait (from its arrival until it was scheduled or, where nobody saw that, dispatched),
its prefill until the first token, and each gap between tokens (TBT).
"""

from __future__ import annotations

from collections.abc import Iterator

from pytest_npubench.campaign.served_block import RUN, ServedBlock
from pytest_npubench.campaign.visits import Round, columns_of
from pytest_npubench.errors import MeasurementError
from pytest_npubench.reports.lanes import Lane, Level, TraceSpan
from pytest_npubench.serving.metrics import RequestRecord

ITERATIONS = "iterations"
FIGURES = ("num_decode", "num_prefill_tokens", "num_prefill_layers", "expert_load_bytes")
QUEUES = ("num_running", "num_waiting")


def served_lanes(points: Round) -> Iterator[Lane]:
    """One for each block; columns that are none are left out."""
    behind = f"/{RUN}"
    for name in (column.removesuffix(behind) for column in points if column.endswith(behind)):
        try:
            (block,) = ServedBlock.of_columns(columns_of(points, name))
        except MeasurementError:
            continue
        yield Lane(
            title=name,
            spans=(*_iterations(block), *(span for record in block.records for span in _request(record, block))),
            levels=tuple(_queues(block)),
        )


def _iterations(block: ServedBlock) -> Iterator[TraceSpan]:
    """Each with what it ran: a layered prefill runs some of the layers, any other all of them."""
    log = block.log.columns()
    for index, (start_s, end_s) in enumerate(zip(block.log.start_s, block.log.end_s, strict=True)):
        tokens, layers = log["num_prefill_tokens"][index], log["num_prefill_layers"][index]
        prefill = f"prefill of {tokens} tokens in {layers} of {block.num_layers} layers" if tokens else ""
        decode = f"decode of {number}" if (number := log["num_decode"][index]) else ""
        yield TraceSpan(
            track=ITERATIONS,
            name=" and ".join(filter(None, (prefill, decode))) or "iteration",
            start_s=start_s - block.started_s,
            duration_s=end_s - start_s,
            figures={name: log[name][index] for name in FIGURES},
        )


def _queues(block: ServedBlock) -> Iterator[Level]:
    log = block.log.columns()
    for index, start_s in enumerate(block.log.start_s):
        for name in QUEUES:
            yield Level(name=name, at_s=start_s - block.started_s, value=log[name][index])


def _request(record: RequestRecord, block: ServedBlock) -> Iterator[TraceSpan]:
    track, times_s = f"request {record.id}", record.token_times_s
    marks = [("wait", record.scheduled_s if record.scheduled_s is not None else record.dispatched_s)]
    marks += [("prefill" if not place else f"token {place + 1}", at_s) for place, at_s in enumerate(times_s)]
    before_s = record.arrival_s
    for name, at_s in marks:
        if at_s is not None:
            yield TraceSpan(
                track=track,
                name=name,
                start_s=before_s - block.started_s,
                duration_s=at_s - before_s,
                figures={"prompt_tokens": record.prompt_tokens or 0},
            )
            before_s = at_s
    if record.aborted is not None:
        yield TraceSpan(track=track, name=f"lost: {record.aborted}", start_s=before_s - block.started_s, duration_s=0.0)
