"""`python benchmarks/workload_table.py [table|refit]`: the statistics in docs/workloads.md, or knots fitted anew."""

from __future__ import annotations

import argparse
import json

from pytest_npubench.workloads.fitting import fit
from pytest_npubench.workloads.length_statistics import LengthStatistics, workload_statistics
from pytest_npubench.workloads.published import PUBLISHED, PublishedLengths
from pytest_npubench.workloads.quantiles import LEVELS, QuantileCurve
from pytest_npubench.workloads.rebuilt import rebuilt_workload


def markdown_table() -> str:
    """Published and rebuilt statistics of every shipped rebuilt workload, in tokens."""
    rows = ["| workload | length | mean | median | p90 | std |", "|---|---|---|---|---|---|"]
    for published in PUBLISHED:
        reached = workload_statistics(rebuilt_workload(published.name))
        rows.append(_row(published.name, "input", published.input, reached.input))
        rows.append(_row(published.name, "output", published.output, reached.output))
    return "\n".join(rows) + "\n"


def _row(name: str, length: str, published: PublishedLengths, reached: LengthStatistics) -> str:
    cells = (
        _cell(published.mean, f"{reached.mean:,.1f}"),
        _cell(published.median, f"{reached.median:,.0f}"),
        _cell(published.p90, f"{reached.p90:,.0f}"),
        _cell(published.std, f"{reached.std:,.0f}"),
    )
    return f"| {name} | {length} | " + " | ".join(cells) + " |"


def _cell(published: float | None, reached: str) -> str:
    return f"- / {reached}" if published is None else f"{published:,.0f} / {reached}"


def fitted_knots_json() -> str:
    """All published rows fitted anew, as the text of the shipped knots file: lengths in tokens at each level."""
    fitted = {row.name: {"input": _knots(fit(row.input)), "output": _knots(fit(row.output))} for row in PUBLISHED}
    lines = [f'"{name}": {json.dumps(knots)}' for name, knots in fitted.items()]
    body = ",\n    ".join(lines)
    return f'{{\n  "levels": {json.dumps(LEVELS)},\n  "workloads": {{\n    {body}\n  }}\n}}\n'


def _knots(curve: QuantileCurve) -> list[float]:
    return [float(f"{length:.7g}") for length in curve.knots]  # 7 digits: far below a token


TEXTS = {"table": markdown_table, "refit": fitted_knots_json}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("text", nargs="?", choices=TEXTS, default="table")
    print(TEXTS[parser.parse_args().text](), end="")
