"""What the HTML report of many cases takes: a journal's records multiplied, the page's size and how long it takes to
write it and to paint it first.

    python benchmarks/report_size.py JOURNAL 10000 [PAGE.html] [--chromium /usr/bin/chromium]

Every copy has an id of its own; each copy of all cases is a model of its own, so that campaigns multiply as well. First
paint is Chromium's first-contentful-paint of the file, from its own performance entries.
"""

from __future__ import annotations

import argparse
import itertools
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pytest_npubench.reports.html import render_html
from pytest_npubench.store.journal_reader import read_journal
from pytest_npubench.store.journal_runs import chosen_sessions
from pytest_npubench.suites import shown

PAINT = """<script>new PerformanceObserver((list) => {
  const entry = list.getEntries().find((one) => one.name === "first-contentful-paint");
  if (entry) document.documentElement.dataset.paint = entry.startTime;
}).observe({ type: "paint", buffered: true });</script>"""


def multiplied(records: list[Mapping[str, Any]], number: int) -> Iterator[dict[str, Any]]:
    for place, record in zip(range(number), itertools.cycle(records), strict=False):
        copy = place // len(records)
        yield {**record, **{name: f"{record[name]}-{copy}" for name in ("case", "id", "model")}}


def first_paint_s(chromium: str, page: Path) -> float:
    """Raises RuntimeError where the browser told no paint."""
    watched = page.with_name("watched.html")
    watched.write_text(page.read_text(encoding="utf-8").replace("</title>", f"</title>{PAINT}", 1), encoding="utf-8")
    with tempfile.TemporaryDirectory() as profile:
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--virtual-time-budget=20000"]
        command = [chromium, *options, f"--user-data-dir={profile}", "--dump-dom", watched.as_uri()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    watched.unlink()
    found = re.search(r'data-paint="([\d.]+)"', done.stdout)
    if found is None:
        raise RuntimeError(f"{chromium} told no first paint of {page}")
    return float(found[1]) / 1e3


def main() -> int:
    parser = argparse.ArgumentParser(allow_abbrev=False, description=__doc__.split("\n", 1)[0])
    parser.add_argument("journal", type=Path)
    parser.add_argument("number", type=int)
    parser.add_argument("page", type=Path, nargs="?")
    parser.add_argument("--chromium")
    arguments = parser.parse_args()
    journal = read_journal(arguments.journal)
    records = [one for session in chosen_sessions(journal, None) for one in session.records if one["record"] == "case"]
    many = list(multiplied(records, arguments.number))
    began = time.perf_counter()
    text = render_html(many, journal, shown)
    print(f"{len(many)} cases: {len(text.encode()) / 1e6:.2f} MB in {time.perf_counter() - began:.1f} s")
    with tempfile.TemporaryDirectory() as folder:
        page = (arguments.page or Path(folder) / "report.html").resolve()
        page.write_text(text, encoding="utf-8")
        if arguments.chromium:
            print(f"first paint after {first_paint_s(arguments.chromium, page):.2f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
