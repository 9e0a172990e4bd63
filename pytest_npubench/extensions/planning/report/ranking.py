"""What search cases say: what LENS chose, what was best, and what the choice gives up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_npubench.reports import build, number_text
from pytest_npubench.reports.page import Table
from pytest_npubench.verdict.case_record import CaseRecord

RANKED = (
    "The same requests on an engine of each choice, in the same rounds; predictions are from profiles alone (LENS, "
    "section 5.4)."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchDetail:
    """What was chosen from, with predicted and measured output tokens a second of each; the rest as in
    stats.ranking.Ranking."""

    workload: str
    choices: tuple[str, ...]
    predicted_tokens_per_s: tuple[float, ...]
    measured_tokens_per_s: tuple[float, ...]
    chosen: str
    best: str
    is_top1: bool
    regret: float
    kendall_tau: float | None


def search_lines(found: Sequence[CaseRecord[SearchDetail]]) -> list[str]:
    """One for each case: "LENS chooses batch 8 of 4 for lens-sharegpt, the measured best (regret 0.0%, tau 1.00)"."""
    return [_line(case.detail) for case in found]


def search_table(found: Sequence[CaseRecord[SearchDetail]]) -> Table | None:
    """What was chosen from, a row each: predicted and measured throughput."""
    rows = [
        (case.detail, name, predicted, measured)
        for case in found
        for name, predicted, measured in zip(
            case.detail.choices, case.detail.predicted_tokens_per_s, case.detail.measured_tokens_per_s, strict=True
        )
    ]
    if not rows:
        return None
    return build.table(
        "Batch sizes and bucket sets, ranked",
        (
            ("batch size or buckets", lambda row: row[1]),
            ("workload", lambda row: row[0].workload),
            ("predicted tokens/s", lambda row: number_text.plain(row[2])),
            ("measured tokens/s", lambda row: number_text.plain(row[3])),
            ("error, %", lambda row: number_text.percent(row[2] / row[3] - 1, signed=True)),
            ("", lambda row: _mark(row[0], row[1])),
        ),
        rows,
        note=RANKED,
    )


def _mark(detail: SearchDetail, name: str) -> str:
    told = (("predicted best", detail.chosen), ("measured best", detail.best))
    return ", ".join(words for words, place in told if place == name)


def _line(detail: SearchDetail) -> str:
    right = "the measured best" if detail.is_top1 else f"measured best: {detail.best}"
    tau = "" if detail.kendall_tau is None else f", Kendall's tau {detail.kendall_tau:.2f}"
    return (
        f"LENS chooses {detail.chosen} out of {len(detail.choices)} for {detail.workload}, {right} "
        f"(regret {detail.regret:.1%}{tau})"
    )
