"""What the solver decided for each operator and length, beside the best of all splits; the paper's own decisions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pytest_npubench.reports import number_text
from pytest_npubench.reports.page import Table
from pytest_npubench.reports.pair_cells import milliseconds, operator_of, percent, ratio
from pytest_npubench.reports.record_fields import Record, kind_of, number, table, text
from pytest_npubench.reports.reported import HETERO_INFER, conditions, read_paper
from pytest_npubench.reports.reported import label as reported_label
from pytest_npubench.suites.partition.report import notes as partition_notes

UNAVAILABLE = "unavailable"
HEADER = (
    "operator",
    "tokens",
    "predicted ms",
    "measured ms",
    "error %",
    "best ms",
    "regret %",
    "best unit alone / decided",
    "decided",
    "best",
)


def solver_tables(records: Iterable[Record]) -> list[Table]:
    """A row for each decision, also for one that could not be had; and Table 3 of the paper. None without any."""
    own = [record for record in records if kind_of(record) == "solver"]
    if not any(table(record, "detail") for record in own):
        return []
    decisions = Table(
        caption="The solver's decisions",
        note=partition_notes.SOLVER,
        header=HEADER,
        rows=tuple(_row(record) for record in own),
    )
    return [decisions, published_decisions()]


def published_decisions() -> Table:
    """Rows of fixed length; times of each unit alone."""
    found = read_paper(HETERO_INFER).table("3")
    return Table(
        caption="Decisions reported by HeteroInfer",
        note=reported_label(conditions("3", paper=HETERO_INFER), paper=HETERO_INFER),
        header=("weight", "tokens", "GPU alone ms", "NPU alone ms", "decided", "rows GPU : NPU"),
        rows=tuple(
            (
                f"[{rows}, {cols}]",
                str(tokens),
                *(f"{float(alone_us) / 1e3:g}" for alone_us in (gpu_us, npu_us)),
                str(strategy),
                str(share),
            )
            for rows, cols, tokens, gpu_us, npu_us, strategy, share in found.rows
        ),
    )


def _row(record: Record) -> tuple[str, ...]:
    detail = table(record, "detail")
    tokens = number(table(record, "axes"), "tokens")
    cells = _cells(record, detail) if detail else [UNAVAILABLE] * (len(HEADER) - 2)
    return (operator_of(record), number_text.count(tokens), *cells)


def _cells(record: Record, detail: Record) -> Sequence[str]:
    return (
        milliseconds(record, "predicted_s"),
        milliseconds(detail, "decided_s"),
        percent(record, "error", signed=True),
        milliseconds(detail, "best_s"),
        percent(detail, "regret", signed=True),
        ratio(number(detail, "speedup")),
        _split(detail, ""),
        _split(detail, "best_"),
    )


def _split(detail: Record, which: str) -> str:
    strategy, split = text(detail, f"{which}strategy"), text(detail, f"{which}split")
    return f"{strategy}: {split}" if strategy and split else strategy or number_text.UNKNOWN
