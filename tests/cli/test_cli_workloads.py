"""npubench workloads: statistics against Python's own, and against the published figures."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_npubench import workloads
from pytest_npubench.workloads.published import PUBLISHED

from .conftest import Answer

Run = Callable[..., Answer]


def _table(out: str) -> dict[str, dict[str, float]]:
    lines = out.splitlines()
    start = next(index for index, line in enumerate(lines) if line.startswith("tokens"))
    _, *names = lines[start].split()
    rows = (line.split() for line in lines[start + 1 :])
    return {name: dict(zip(names, map(float, values), strict=True)) for name, *values in rows}


def test_the_list_has_every_name_with_kind_and_source(call: Run) -> None:
    header, *lines = call("workloads").out.splitlines()
    assert header.split() == ["NAME", "KIND", "SOURCE"]
    assert tuple(line.split()[0] for line in lines) == workloads.names()


def test_statistics_of_a_trace_file(call: Run, tmp_path: Path) -> None:
    pairs = [(3, 10), (1, 20), (100, 30), (2, 40), (5, 0)]
    path = tmp_path / "mine.csv"
    path.write_text("input_tokens,output_tokens\n" + "".join(f"{a},{b}\n" for a, b in pairs), encoding="utf-8")
    out = call("workloads", path).out
    used = [pair for pair in pairs if pair[1]]
    for place, name in enumerate(("input", "output")):
        lengths = sorted(pair[place] for pair in used)
        row = _table(out)[name]
        assert row["mean"] == pytest.approx(statistics.fmean(lengths), abs=0.05)
        assert row["std"] == pytest.approx(statistics.pstdev(lengths), abs=0.05)
        assert row["median"] == statistics.median_low(lengths)
        assert row["p90"] == lengths[math.ceil(0.9 * len(lengths)) - 1]
    assert "4 requests of the trace; 1 more have no prompt or no answer" in out
    assert f"source  {path} (lengths)" in out


@pytest.mark.parametrize("published", PUBLISHED, ids=lambda row: row.name)
def test_statistics_of_a_rebuilt_workload_are_the_published_ones(
    published: workloads.published.PublishedWorkload,  # type: ignore[name-defined]
    call: Run,
) -> None:
    out = call("workloads", published.name).out
    for name, figures in (("input", published.input), ("output", published.output)):
        row = _table(out)[name]
        assert row["mean"] == pytest.approx(figures.mean, rel=0.01)
        if figures.median is not None:
            assert row["median"] == pytest.approx(figures.median, rel=0.01)
    assert published.source in out


@pytest.mark.parametrize("unit", ["s", "ms"])
def test_what_a_trace_leaves_open_is_told(call: Run, tmp_path: Path, unit: str) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(
        "\n".join(
            f'{{"timestamp": {at}, "input_length": 521, "output_length": 9, "hash_ids": [1, 2]}}' for at in (1.5, 61.5)
        ),
        encoding="utf-8",
    )
    assert "want --time-unit s or ms" in call("workloads", path).error
    words = {"s": "over 60 s", "ms": "over 0.06 s"}[unit]
    assert words in call("workloads", path, "--time-unit", unit).out
    assert "ids of 400 tokens" in call("workloads", path, "--time-unit", unit, "--block-tokens", 400).out


def test_an_unknown_workload_and_a_file_that_holds_none(call: Run, tmp_path: Path) -> None:
    assert "did you mean 'lens-sharegpt'?" in call("workloads", "lens-sharegp").error
    (tmp_path / "bad.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    assert "bad.csv, line 1" in call("workloads", tmp_path / "bad.csv").error
