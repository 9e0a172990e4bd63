"""Journals to upload, and what must then stand in a history, read from the file's lines by plain JSON."""

import json
import statistics
from dataclasses import replace
from pathlib import Path

from made_records import H200, HOST
from store.journal_lines import read_lines, write_lines

from pytest_npubench.store.fingerprint import Fingerprint
from pytest_npubench.store.journal import JournalWriter


def stack(driver="570.86", host="bench-1", device_class="H200 SXM 141 GB"):
    device = replace(H200, device_class=device_class, driver=driver, compiler=None)
    return Fingerprint(device=device, host=replace(HOST, name=host))


def case_record(fingerprint, number=0, samples=(0.002, 0.0021, 0.0022), **changes):
    return {
        "record": "case",
        "fingerprint": fingerprint,
        "case": f"buckets/profile/h200-tiny-b4-bucket{number}",
        "id": f"h200-tiny-b4-bucket{number}",
        "hardware": "h200",
        "model": "tiny",
        "batch_size": 4,
        "device": "cuda:0",
        "digest": "5d41402abc4b",
        "duration_s": 8.5 + number,
        "resumed": False,
        "verdict": {"kind": "passed", "reason": "error 0.01 <= 0.1", "ratio": None},
        "measured_s": 0.5,
        "predicted_s": 0.49,
        "error": -0.02,
        "metrics": {
            "tbt_s": {"unit": "s", "value": 0.0021, "better": "lower", "samples": list(samples)},
            "padding_fraction": {"unit": "", "value": 0.25, "better": "lower", "samples": []},
        },
        "detail": {"bucket": number},
        **changes,
    }


def write_session(path, *, num_cases=3, driver="570.86", host="bench-1", samples=(0.002, 0.0021, 0.0022), ends=True):
    """One whole session; returns its id."""
    found = stack(driver, host)
    with JournalWriter.open(path, host=found.host, settings={"profile": "quick"}) as journal:
        digest = journal.device(found)
        for number in range(num_cases):
            journal.append(case_record(digest, number, samples))
        if ends:
            journal.append({"record": "end", "exit_status": 0, "counts": {"passed": num_cases}})
        return journal.session


def redated(path, dates):
    """The journal with its sessions begun at these dates, in their order."""
    dates = iter(dates)
    lines = read_lines(path)
    for line in lines:
        if line["record"] == "session":
            line["started_at"] = next(dates)
    write_lines(path, lines)


def expected_rows(*paths):
    """{"sessions": {id: exit status}, "cases": {key: verdict}, "metrics": {key + metric: (value, median, n)}}."""
    sessions, cases, metrics = {}, {}, {}
    for path in paths:
        for line in map(json.loads, Path(path).read_text().splitlines()):
            session = line["session"]
            if line["record"] == "session":
                sessions[session] = None
            elif line["record"] == "end":
                sessions[session] = line["exit_status"]
            elif line["record"] == "case":
                key = (session, line["case"], line["digest"], line["device"])
                cases[key] = line["verdict"]["kind"]
                metrics = {name: row for name, row in metrics.items() if name[:4] != key}
                for name, entry in line["metrics"].items():
                    middle = statistics.median(entry["samples"]) if entry["samples"] else entry["value"]
                    metrics[(*key, name)] = (entry["value"], middle, len(entry["samples"]))
    return {"sessions": sessions, "cases": cases, "metrics": metrics}
