"""What the site of a history takes: its bytes, the seconds that writing it takes, and the first paint of two pages.

    python benchmarks/site_size.py 300 365 [--folder DIR]

The history is synthetic, as the names of its hosts say: nothing was measured. Each case has four metrics with 2 % of
noise from night to night; a driver, a compiler and commits change, and every 20th case with them.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, insert

from pytest_npubench.reports.site import site_files
from pytest_npubench.reports.site_folder import write_site
from pytest_npubench.store.fingerprint import DeviceFacts, Fingerprint, HostFacts
from pytest_npubench.store.history import schema
from pytest_npubench.store.history.address import parse_address
from pytest_npubench.store.history.database import write

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from reports.browser import CHROMIUM, Page, browser

LAST = datetime(2026, 11, 20, 2, tzinfo=timezone.utc)
DEVICES = {"nvidia-h100": "H100 SXM 80 GB", "tpu-v5e": "TPU v5e", "cpu": "EPYC, 16 cores"}
SUITES = ("buckets/profile", "buckets/batch", "scheduling/rates", "partition/solver")
METRICS = {"tbt_s": 0.002, "ttft_s": 0.03, "compile_s": 4.0, "e2e_s": 0.4}
EVERY = 20
PAINT = """new Promise((done) => {
  const look = () => {
    const [entry] = performance.getEntriesByName("first-contentful-paint");
    entry ? done(entry.startTime / 1e3) : setTimeout(look, 10);
  };
  look();
})"""
NUM_RED = 12
"""Nights that the gate names a change, until a person accepts it."""


def stack(hardware: str, fraction: float, commit: int) -> Fingerprint:
    """At a fraction of the nights: the driver changes after half of them, the compiler after four fifths."""
    driver, compiler = "570.86" if fraction < 0.5 else "580.12", "0.9.2" if fraction < 0.8 else "0.10.1"
    device = DeviceFacts(
        family="cuda",
        name=hardware,
        device_class=DEVICES[hardware],
        driver=driver,
        runtime=f"jax {compiler}",
        compiler=f"jaxlib {compiler} / XLA",
    )
    host = HostFacts(
        name=f"synthetic-{hardware}",
        cpu_model="synthetic",
        num_cores=16,
        system="Linux",
        python="CPython 3.12.4",
        libraries=(("jax", compiler), ("numpy", "2.4.6")),
        plugin_version="0.1.0",
        git_revision=f"{commit * 0x9E3779B97F4A7C15 % 16**12:012x}",
    )
    return Fingerprint(device=device, host=host)


def fill(connection: Connection, num_cases: int, num_nights: int) -> None:
    """A session a night on each host."""
    schema.prepare(connection, "the synthetic history")
    rng = random.Random(1)
    for place, hardware in enumerate(DEVICES):
        names = [f"{SUITES[n % len(SUITES)]}/{hardware}-b1-case{n}" for n in range(place, num_cases, len(DEVICES))]
        for night in range(num_nights):
            facts = stack(hardware, night / num_nights, night // 3)
            if rng.random() < 0.02:  # a kernel update for one night
                facts = replace(facts, host=replace(facts.host, system="Linux 6.9"))
            sessions = [session_of(number, num_nights, hardware) for number in range(num_nights)]
            _insert(connection, sessions, night, facts, list(_metrics(rng, names, night, sessions)))


def session_of(night: int, num_nights: int, hardware: str) -> str:
    return f"{LAST - timedelta(days=num_nights - 1 - night):%Y%m%dT%H%M%S}-{hardware}"


def _metrics(rng: random.Random, names: list[str], night: int, sessions: list[str]) -> Iterator[dict[str, Any]]:
    """Some cases are slower from the middle on, which a person accepted, and some since the last nights."""
    for number, name in enumerate(names):
        first, slower = {1: (len(sessions) // 2, 1.08), 2: (len(sessions) - 4, 1.3)}.get(number % EVERY, (night + 1, 1))
        for metric, seconds in METRICS.items():
            factor = slower if metric == "tbt_s" and night >= first else 1.0
            value = seconds * (1 + number % 7) * factor * rng.lognormvariate(0, 0.02)
            is_red = factor > 1 and night < first + NUM_RED
            yield {"case": name, "metric": metric, "value": value, "since": sessions[first] if is_red else None}


def _insert(
    connection: Connection, sessions: list[str], night: int, facts: Fingerprint, rows: list[dict[str, Any]]
) -> None:
    session, digest = sessions[night], facts.digest()
    began = LAST - timedelta(days=len(sessions) - 1 - night)
    header = {"id": session, "started_at": began.isoformat(timespec="seconds"), "host": facts.host.name}
    rest = {"git_revision": facts.host.git_revision, "exit_status": 0, "num_records": 1}
    connection.execute(insert(schema.sessions), {**header, **rest})
    if not connection.exec_driver_sql("SELECT 1 FROM npubench_devices WHERE digest = ?", (digest,)).first():
        key = facts.key().to_json()
        parts = {name: key.get(name) for name in schema.KEY_PARTS}
        connection.execute(insert(schema.devices), {"digest": digest, "fingerprint": facts.to_json(), **parts})
    about = {"session": session, "digest": "synthetic000", "device": "0"}
    red = {row["case"] for row in rows if row["since"]}
    cases = [
        {
            **about,
            "case": row["case"],
            "fingerprint": digest,
            "hardware": facts.device.name,
            "verdict": "regressed" if row["case"] in red else "unchanged",
            "resumed": False,
            "is_partly_disturbed": False,
        }
        for row in rows
        if row["metric"] == "tbt_s"
    ]
    connection.execute(insert(schema.cases), cases)
    connection.execute(insert(schema.metrics), [_metric_row(row) | about for row in rows])


def _metric_row(row: dict[str, Any]) -> dict[str, Any]:
    value = row["value"]
    return {
        **row,
        "unit": "s",
        "better": "lower",
        "median": value,
        "num_samples": 3,
        "samples": [value] * 3,
        "gate": "ratio",
        "compared": "regressed" if row["since"] else "unchanged",
    }


def first_paint_s(page: Page, path: Path) -> float:
    """The least of three, as the browser tells it."""
    seconds = []
    for _ in range(3):
        page.open(path, width=1400)
        seconds.append(float(page.value(PAINT)))
    return min(seconds)


def main() -> int:
    parser = argparse.ArgumentParser(allow_abbrev=False, description=__doc__.split("\n", 1)[0])
    parser.add_argument("num_cases", type=int)
    parser.add_argument("num_nights", type=int)
    parser.add_argument("--folder", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as temporary:
        folder = (arguments.folder or Path(temporary)).resolve()
        address = parse_address(str(Path(temporary) / "history.db"))
        write(address, lambda connection: fill(connection, arguments.num_cases, arguments.num_nights), 600.0)
        began = time.perf_counter()
        site = write_site(folder, site_files(address, None, datetime.now(timezone.utc)))
        took_s = time.perf_counter() - began
        print(
            f"{site.num_cases} cases x {arguments.num_nights} nights: {site.num_bytes / 1e6:.2f} MB in {took_s:.0f} s"
        )
        if CHROMIUM:
            with browser(Path(temporary)) as page:
                for path in (site.index, next(folder.glob("cases/*-case1-*.html"))):
                    print(f"first paint of {path.relative_to(folder)} after {first_paint_s(page, path):.2f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
