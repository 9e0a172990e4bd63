"""Runs made by hand or by hypothesis, and plain-loop oracles for what is computed on arrays."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields

from hypothesis import strategies as st

from pytest_npubench.serving.metrics import RequestRecord


@dataclass
class MadeLog:
    start_s: list = field(default_factory=list)
    end_s: list = field(default_factory=list)
    num_decode: list = field(default_factory=list)
    num_prefill_tokens: list = field(default_factory=list)
    num_prefill_layers: list = field(default_factory=list)
    expert_activations: list = field(default_factory=list)
    padded_expert_activations: list = field(default_factory=list)
    expert_load_bytes: list = field(default_factory=list)
    kv_bytes: list = field(default_factory=list)
    hidden_bytes: list = field(default_factory=list)
    energy_j: list = field(default_factory=list)
    host_s: list = field(default_factory=list)

    def add(self, **entries):
        for column in fields(self):
            getattr(self, column.name).append(entries.get(column.name, 0))


@dataclass
class MadeRun:
    records: tuple = ()
    log: MadeLog = field(default_factory=MadeLog)
    clock: str = "virtual"
    started_s: float = 0.0
    ended_s: float = 10.0
    num_layers: int = 2


def by_name(metrics):
    names = [metric.name for metric in metrics]
    assert len(set(names)) == len(names)
    return {metric.name: metric for metric in metrics}


# Sixteenths of a second are exact in floats, so that a loop and an array agree to the last bit about limits.
sixteenths = st.integers(0, 64).map(lambda number: number / 16)


@st.composite
def requests(draw, min_size=1, max_size=12):
    """Records in order of arrival: some without a token, some unfinished, some aborted."""
    records, arrival = [], 0.0
    for index in range(draw(st.integers(min_size, max_size))):
        arrival += draw(sixteenths)
        gaps = draw(st.lists(sixteenths, max_size=6))
        times, now = [], arrival
        for gap in gaps:
            now += gap
            times.append(now)
        wanted = len(times) + draw(st.sampled_from([0, 0, 0, 2]))
        records.append(
            RequestRecord(
                id=index,
                arrival_s=arrival,
                token_times_s=tuple(times),
                prompt_tokens=draw(st.integers(1, 9)),
                output_tokens=max(wanted, 1),
                aborted=draw(st.sampled_from([None, None, None, "no memory"])),
            )
        )
    return tuple(records)


def gaps_of(record):
    times = record.token_times_s
    return [times[index + 1] - times[index] for index in range(len(times) - 1)]


def is_finished(record):
    return record.aborted is None and len(record.token_times_s) >= (record.output_tokens or 1)


def percentile(values, percent):
    """Linear between order statistics; the maximum where fewer than 1 in n lie beyond."""
    ordered = sorted(values)
    if len(ordered) * (100 - percent) < 100:
        return ordered[-1]
    place = (len(ordered) - 1) * percent / 100
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def deviation(values):
    mean = sum(values) / len(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))
