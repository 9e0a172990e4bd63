"""What the solver decided for each operator and length, beside the best of all splits; the paper's own decisions.

How well it decided over all shapes is told in a sentence, for the end of a run and the head of a campaign's section.
Worked example: "partition: regret over 10 shapes median 2.1 %, p90 9 %, prediction error median 4.5 %, largest speed-up
1.39 (llama-8b-div4)".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pytest_npubench.extensions.pairs.pair_rounds import other_device
from pytest_npubench.extensions.pairs.suites.partition.kinds.solver import SolverDetail
from pytest_npubench.extensions.pairs.suites.partition.kinds.solver_regret import SolverRegretDetail
from pytest_npubench.extensions.pairs.suites.partition.report.curves import operator_of
from pytest_npubench.reports import number_text
from pytest_npubench.reports.build import ratio, table
from pytest_npubench.reports.page import Table
from pytest_npubench.reports.reported import HETERO_INFER, note, read_paper
from pytest_npubench.verdict.case_record import CaseRecord, Cases

SOLVER = (
    "Every split of every strategy runs in each round. The best is chosen in half of the rounds; all times here are "
    "from the other half, so that regret, decided / best - 1, can come out below 0."
)
UNAVAILABLE = "unavailable"


def solver_tables(cases: Cases) -> tuple[Table, ...]:
    """A row for each decision, also for one that could not be had; and Table 3 of the paper. None without any."""
    decided = {record.key: record for record in cases.of("solver", SolverDetail)}
    own = [record for record in cases.records if record.kind == "solver"]

    def cell(text: Callable[[CaseRecord[SolverDetail]], str]) -> Callable[[CaseRecord[Any]], str]:
        return lambda record: text(decided[record.key]) if record.key in decided else UNAVAILABLE

    def times(record: CaseRecord[SolverDetail]) -> list[str]:
        found = (record.judgement.predicted_s, record.detail.decided_s, record.detail.best_s)
        return number_text.figures(found, "s")

    percent = number_text.percent
    decisions = table(
        "The solver's decisions",
        (
            ("operator", operator_of),
            ("tokens", lambda record: record.axis("tokens")),
            ("predicted", cell(lambda record: times(record)[0])),
            ("measured", cell(lambda record: times(record)[1])),
            ("error %", cell(lambda record: percent(record.judgement.error, signed=True))),
            ("best", cell(lambda record: times(record)[2])),
            ("regret %", cell(lambda record: percent(record.detail.regret, signed=True))),
            ("best unit alone / decided", cell(lambda record: ratio(record.detail.speedup))),
            ("decided", cell(lambda record: f"{record.detail.strategy}: {record.detail.split}")),
            ("best split", cell(lambda record: f"{record.detail.best_strategy}: {record.detail.best_split}")),
        ),
        own,
        note=SOLVER,
    )
    return (decisions, published_decisions()) if decided else ()


def published_decisions() -> Table:
    """Rows of fixed length; times of each unit alone."""
    found = read_paper(HETERO_INFER).table("3")
    return Table(
        caption="Decisions reported by HeteroInfer",
        note=note("3", paper=HETERO_INFER),
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


def regret_line(record: CaseRecord[SolverRegretDetail]) -> str:
    detail = record.detail
    parts = [
        f"partition: regret over {number_text.count(detail.num_shapes)} shapes median {_percent(detail.median_regret)}",
        f"p90 {_percent(detail.p90_regret)}",
        f"prediction error median {_percent(detail.median_prediction_error)}",
        *([] if detail.largest_speedup is None else [f"largest speed-up {detail.largest_speedup:.3g}"]),
    ]
    about = ", ".join(word for word in (record.model, other_device(record)) if word)
    return f"{', '.join(parts)}{f' ({about})' if about else ''}"


def _percent(fraction: float) -> str:
    """One digit behind the point below 10: 0.0213 is "2.1 %", 0.09 is "9 %", 10.2 is "1,020 %"."""
    value = 100 * fraction
    return f"{round(value, 1) + 0.0:g} %" if abs(value) < 10 else f"{value:,.0f} %"  # + 0.0: no "-0"
