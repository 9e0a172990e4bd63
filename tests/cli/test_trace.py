"""npubench show --trace: what a journal's rounds hold stands in the trace, each once, where it was measured."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from reports.journals import make_plan, measure, write_run
from reports.served import made_block, served_journal

from pytest_npubench.campaign.served_block import ServedBlock
from pytest_npubench.campaign.visits import columns_of
from pytest_npubench.reports.served_lanes import served_lanes
from pytest_npubench.serving.log import IterationLog
from pytest_npubench.store.journal import read_journal

from .conftest import Answer

Run = Callable[..., Answer]


def traced(call: Run, journal: Path, target: Path) -> tuple[list[Any], dict[int, str], dict[tuple[int, int], str]]:
    """All events but the names, and the names of processes and threads."""
    answer = call("show", "--trace", journal, "-o", target)
    assert answer.status == 0, answer.err
    events = json.loads(target.read_text(encoding="utf-8"))["traceEvents"]
    spans = sum(event["ph"] == "X" for event in events)
    assert f"{spans:,} spans" in answer.out
    processes = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    threads = {
        (event["pid"], event["tid"]): event["args"]["name"] for event in events if event["name"] == "thread_name"
    }
    return [event for event in events if event["ph"] != "M"], processes, threads


def test_every_sample_of_every_round_is_a_span(call: Run, tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    write_run(path, measure(make_plan()))
    events, processes, threads = traced(call, path, tmp_path / "trace.json")
    kept = [record for record in read_journal(path).records if record["record"] == "round"]
    assert len(processes) == 1
    assert set(threads.values()) == {name for record in kept for name in record["points"]}
    for name in threads.values():
        for record in kept:
            own = [
                event["dur"] / 1e6
                for event in events
                if threads[event["pid"], event["tid"]] == name and event["args"]["round"] == record["round"]
            ]
            assert own == pytest.approx(record["points"][name])
    assert sum(len(values) for record in kept for values in record["points"].values()) == len(events)


def test_spans_of_a_track_never_overlap(call: Run, tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    write_run(path, measure(make_plan()))
    served_journal(tmp_path / "served.jsonl")
    for journal in (path, tmp_path / "served.jsonl"):
        events, _, _ = traced(call, journal, tmp_path / "trace.json")
        by_track: dict[Any, list[Any]] = {}
        for event in events:
            if event["ph"] == "X":
                by_track.setdefault((event["pid"], event["tid"]), []).append(event)
        for own in by_track.values():
            own.sort(key=lambda event: (event["ts"], event["dur"]))
            ends = [event["ts"] + event["dur"] for event in own]
            assert all(end <= event["ts"] + 0.01 for end, event in zip(ends, own[1:], strict=False))


def test_requests_iterations_and_the_queue_of_a_served_block(call: Run, tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    served_journal(path)
    events, processes, threads = traced(call, path, tmp_path / "trace.json")
    (first, *_) = (record for record in read_journal(path).records if record["record"] == "round")
    names = [name.removesuffix("/run") for name in first["points"] if name.endswith("/run")]
    assert names
    for name in names:
        (block,) = ServedBlock.of_columns(columns_of(first["points"], name))
        (process,) = (pid for pid, title in processes.items() if title.endswith(name))
        own = [event for event in events if event["pid"] == process and event["args"].get("round", 0) == first["round"]]
        spans = [event for event in own if event["ph"] == "X"]
        for record in block.records:
            track = [event for event in spans if threads[process, event["tid"]] == f"request {record.id}"]
            assert sum(event["dur"] for event in track) == pytest.approx(
                1e6 * (record.token_times_s[-1] - record.arrival_s)
            )
            assert sum(event["name"].startswith(("prefill", "token")) for event in track) == record.num_tokens


def test_iterations_say_what_they_ran() -> None:
    log = IterationLog()
    log.extend(
        {
            "start_s": [5.0, 5.5],
            "end_s": [5.25, 6.0],
            "num_decode": [0, 3],
            "num_prefill_tokens": [128, 128],
            "num_prefill_layers": [2, 8],
            "num_running": [1, 4],
            "num_waiting": [2, 0],
            "expert_load_bytes": [100, 200],
        }
    )
    block = replace(made_block(0.3), started_s=5.0, log=log)
    (lane,) = served_lanes({f"p/{name}": tuple(values) for name, values in block.columns().items()})
    spans = [span for span in lane.spans if span.track == "iterations"]
    assert [(span.name, span.start_s, span.duration_s) for span in spans] == [
        ("prefill of 128 tokens in 2 of 8 layers", 0.0, 0.25),
        ("prefill of 128 tokens in 8 of 8 layers and decode of 3", 0.5, 0.5),
    ]
    assert [span.figures["expert_load_bytes"] for span in spans] == [100, 200]
    assert [(level.name, level.at_s, level.value) for level in lane.levels] == [
        ("num_running", 0.0, 1),
        ("num_waiting", 0.0, 2),
        ("num_running", 0.5, 4),
        ("num_waiting", 0.5, 0),
    ]


def test_a_trace_is_not_written_over_its_journal(call: Run, tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    write_run(path, measure(make_plan()))
    before = path.read_bytes()
    assert "is the file that is read" in call("show", "--trace", path, "-o", path).error
    assert path.read_bytes() == before
    assert "No such file" in call("show", "--trace", path, "-o", tmp_path / "none" / "trace.json").error
    assert call("show", "--trace", tmp_path / "none.jsonl", "-o", tmp_path / "trace.json").error
