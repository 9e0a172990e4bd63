"""A run as a trace that Perfetto (https://ui.perfetto.dev) opens: requests, iterations, units, every visit of a point.

A campaign's rounds stand one after the other. Within a round every point begins where the round does, so that policies
that served the same requests stand below each other; in which order the points were visited is not kept. Durations are
those measured; what began when is as far as a suite knows it, and its lanes say so.

The form is the JSON of Chrome's Trace Event Format: complete events ("X") and counters ("C"), in microseconds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, BinaryIO

from pytest_npubench.reports.drift import campaign_rounds
from pytest_npubench.reports.lanes import Lane, Lanes
from pytest_npubench.reports.page import Rounds
from pytest_npubench.store.journal_reader import Journal
from pytest_npubench.verdict.case_record import Cases

MICROSECONDS = 1e6
GAP_S = 0.001  # between rounds, to be seen


def write_trace(
    file: BinaryIO, cases: Cases, journal: Journal, sessions: Collection[str], lanes_of: Callable[[str], Lanes]
) -> int:
    """Every campaign of these cases; returns the number of spans. `lanes_of` knows what a suite's rounds become,
    `sessions` are those whose rounds may be shown."""
    file.write(b'{"displayTimeUnit":"ms","traceEvents":[')
    num_spans = 0
    for index, event in enumerate(_events(_campaigns(cases, journal, sessions), lanes_of)):
        file.write(f"{',' if index else ''}\n{json.dumps(event, separators=(',', ':'))}".encode())
        num_spans += event["ph"] == "X"
    file.write(b"\n]}\n")
    return num_spans


def _campaigns(cases: Cases, journal: Journal, sessions: Collection[str]) -> Iterator[tuple[str, str, Rounds]]:
    """The suite, the campaign and its rounds, each campaign of a device once."""
    campaigns = cases.by(lambda record: (record.suite, record.campaign, record.fingerprint))
    for campaign in campaigns.values():
        first = campaign.records[0]
        if first.campaign:
            rounds = campaign_rounds(journal, first.campaign, first.fingerprint, sessions)
            where = f" on {first.device}" if first.device else ""
            yield first.suite, f"{first.campaign}{where}", rounds


def _events(campaigns: Iterable[tuple[str, str, Rounds]], lanes_of: Callable[[str], Lanes]) -> Iterator[dict[str, Any]]:
    """A process for each title of a campaign, a thread for each track of it."""
    threads: dict[tuple[str, str], tuple[int, int]] = {}
    processes: dict[str, int] = {}
    for suite, campaign, rounds in campaigns:
        start_s = 0.0
        for record in rounds:
            lanes = tuple(lanes_of(suite)(record["points"]))
            for lane in lanes:
                title = f"{campaign}: {lane.title}"
                if title not in processes:
                    processes[title] = len(processes) + 1
                    yield _named("process_name", processes[title], 0, title)
                for track in dict.fromkeys(span.track for span in lane.spans):
                    if (title, track) not in threads:
                        threads[title, track] = (processes[title], len(threads) + 1)
                        yield _named("thread_name", *threads[title, track], track)
                yield from _of_lane(lane, record["round"], start_s, processes[title], threads, title)
            start_s += max([record.get("duration_s") or 0.0, *(lane.end_s for lane in lanes)]) + GAP_S


def _of_lane(
    lane: Lane, index: int, start_s: float, process: int, threads: Mapping[tuple[str, str], tuple[int, int]], title: str
) -> Iterator[dict[str, Any]]:
    for span in lane.spans:
        pid, tid = threads[title, span.track]
        yield {
            "ph": "X",
            "name": span.name,
            "pid": pid,
            "tid": tid,
            "ts": (start_s + span.start_s) * MICROSECONDS,
            "dur": span.duration_s * MICROSECONDS,
            "args": {"round": index, **span.figures},
        }
    for level in lane.levels:
        at_us = (start_s + level.at_s) * MICROSECONDS
        yield {"ph": "C", "name": level.name, "pid": process, "ts": at_us, "args": {"value": level.value}}


def _named(what: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}}
