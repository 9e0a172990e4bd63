"""Journals of made-up nights, written by the real JournalWriter: seeded numbers whose truth is known.

A case's entry of a night is level * exp(shift of the night + residual) * what was planted. Nights differ by 0.3 %,
cases by 0.4 % besides, samples within a night by 0.2 %.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import made_records
import numpy as np
from made_records import H200

from pytest_npubench.store.fingerprint import Fingerprint
from pytest_npubench.store.journal import JournalWriter

NIGHT, RESIDUAL, WITHIN = 0.003, 0.004, 0.002
HOST = replace(made_records.HOST, libraries=(("jax", "0.10.2"), ("jaxlib", "0.10.2")))
CASES = tuple(f"buckets/profile/h200-tiny-b4-bucket{number}" for number in range(12))
CANARIES = tuple(f"buckets/canary/h200-tiny-b4-{kernel}" for kernel in ("matmul", "copy", "dispatch"))


def stack(driver="570.86", *, libraries=HOST.libraries, git_revision="0123456789ab", **device):
    host = replace(HOST, libraries=libraries, git_revision=git_revision)
    return Fingerprint(device=replace(H200, driver=driver, **device), host=host)


def metric(samples, **changes):
    values = [float(value) for value in samples]
    return {"unit": "s", "value": float(np.median(values)), "better": "lower", "samples": values, **changes}


def case_record(fingerprint, case, metrics, **changes):
    return {
        "record": "case",
        "fingerprint": fingerprint,
        "case": case,
        "id": case.rpartition("/")[2],
        "hardware": "h200",
        "device": "cuda:0",
        "digest": "5d41402abc4b",
        "resumed": False,
        "verdict": {"kind": "no-baseline", "reason": "0 accepted sessions"},
        "metrics": metrics,
        **changes,
    }


def night(rng, cases=(*CASES, *CANARIES), planted: Mapping[str, float] | None = None, name="tbt_s"):
    """case -> its metrics of one night; planted: case -> factor, "" for all."""
    shift = rng.normal(0, NIGHT)
    found = {}
    for number, case in enumerate(cases):
        factor = (planted or {}).get(case, (planted or {}).get("", 1.0))
        middle = 0.001 * (1 + number) * np.exp(shift + rng.normal(0, RESIDUAL)) * factor
        own = "kernel_s" if case in CANARIES else name
        found[case] = {own: metric(middle * np.exp(rng.normal(0, WITHIN, 5)))}
    return found


def write_session(path: Path, metrics, fingerprint=None, *, ends=True, worker=None, **changes):
    """One session with these cases; returns its id."""
    fingerprint = fingerprint or stack()
    with JournalWriter.open(path, host=fingerprint.host, settings={"profile": "quick"}, worker=worker) as journal:
        digest = journal.device(fingerprint)
        for case, own in metrics.items():
            record = case_record(digest, case, own, **changes)
            journal.append(record)
            journal.append({"record": "outcome", "case": case, "device": record["device"], "outcome": "passed"})
        if ends:
            journal.append({"record": "end", "exit_status": 0, "counts": {}})
        return journal.session


def write_nights(path: Path, num_nights, *, seed=0, planted=None, fingerprint=None, **options):
    """Several nights under one stack; returns the ids of their sessions."""
    rng = np.random.default_rng(seed)
    return [write_session(path, night(rng, planted=planted, **options), fingerprint) for _ in range(num_nights)]
