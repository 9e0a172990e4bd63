"""Every number and text of what a case says beyond its verdict is on the report page.

details.json holds one stored detail or more of each kind, as journals keep them. Numbers are looked for in the digits
and units in which a report may print them: 0.00233 of "ttft_s" as "2.33" (ms), 3.19e9 of "expert_load_bytes" as "3.19"
(GB), 0.0371 of "half_width" as "3.71" (%).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from reports.page import read

from pytest_npubench.reports import html
from pytest_npubench.store.journal import Journal
from pytest_npubench.suites import shown

Json = dict[str, Any]
Path_ = tuple[str, ...]

STORED: list[Json] = json.loads(Path(__file__).with_name("details.json").read_text(encoding="utf-8"))
KINDS = sorted({f"{row['suite']}/{row['kind']}" for row in STORED})
FACTORS = {
    "s": (1.0, 1e3, 1e6, 1e9),
    "bytes": (1.0, 1e-3, 1e-6, 1e-9),
    "flops": (1.0, 1e-6, 1e-9, 1e-12),
    "": (1.0, 100.0),
}
"""What turns a stored number into the units of a report, by the unit that ends the field's name."""
NOT_SHOWN = {
    "buckets/profile": re.compile(r"points_s\..*"),
    "buckets/steps": re.compile("jumps"),
    "scheduling/policy": re.compile(r"figures\.(ttft|tbt|e2e)_.*\.definition|figures\..*\.unit"),
}
"""By kind, the figures that its own pictures leave out: what TTFT and TBT of a bucket are reckoned from, the ratios of
neighbouring lengths, and what the note of a table defines."""


def case_of(row: Json) -> Json:
    """The case record in which a journal keeps the detail."""
    return {
        "case": f"{row['suite']}/{row['kind']}/{'-'.join(map(str, row['axes'].values()))}",
        "id": "-".join(map(str, row["axes"].values())),
        "hardware": "cpu",
        "model": "small",
        "batch_size": 1,
        "axes": row["axes"],
        "device": "cpu:0",
        "fingerprint": None,
        "campaign": "c",
        "metrics": {},
        "detail": row["detail"],
        **{name: row.get(name) for name in ("measured_s", "predicted_s", "error", "repeat_error")},
        "what": row["kind"],
        "verdict": {"kind": "passed", "reason": "", "ratio": None, "interval": None, "mde": None},
    }


def leaves(value: Any, path: Path_ = ()) -> Iterator[tuple[Path_, Any]]:
    """Each number and text with the names that lead to it."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from leaves(inner, (*path, name))
    elif isinstance(value, list):
        for inner in value:
            yield from leaves(inner, path)
    elif value not in (None, "") and not isinstance(value, bool):
        yield path, value


def factors(path: Path_) -> tuple[float, ...]:
    """Of the innermost name that ends in a unit."""
    for name in reversed(path):
        if name == "seconds":
            return FACTORS["s"]
        for ending in (name.partition("_per_")[0].rpartition("_")[2], name.rpartition("_")[2]):
            if ending in FACTORS:
                return FACTORS[ending]
    return FACTORS[""]


def printed(value: float, path: Path_) -> set[str]:
    """What a report may print the number as."""
    scaled = [value * factor for factor in factors(path)]
    texts = {f"{number:{digits}}" for number in scaled for digits in (".4g", ".3g", ".2f", "+.2f")}
    return texts | {f"{number:,.0f}" for number in scaled if abs(number) >= 100 or number == round(number)}


def is_shown(value: Any, path: Path_, text: str, words: frozenset[str]) -> bool:
    if isinstance(value, str):
        return any(value.replace("_", between).casefold() in text for between in "_- ")
    return not words.isdisjoint(printed(value, path))


@pytest.mark.parametrize("kind", KINDS)
def test_every_leaf_of_a_detail_is_on_the_page(kind: str) -> None:
    rows = [row for row in STORED if f"{row['suite']}/{row['kind']}" == kind]
    journal = Journal(path=Path("j"), sessions=(), records=(), torn=())
    page = read(html.render_html([case_of(row) for row in rows], journal, shown))
    section = " ".join(part.text for part in page.all("section") if part.attributes.get("class") == "campaign")
    words = frozenset(re.findall(r"[-+]?[\d.,]*\d(?:e[-+]?\d+)?", section))
    left_out = NOT_SHOWN.get(kind, re.compile(""))
    missing = [
        f"{'.'.join(path)} = {value}"
        for row in rows
        for path, value in leaves(row["detail"])
        if not left_out.fullmatch(".".join(path)) and not is_shown(value, path, section.casefold(), words)
    ]
    assert not missing
