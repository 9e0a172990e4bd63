"""What the solver chose, as pictures: a map of operators and lengths with each unit's share, and for each operator its
times beside those that it could have had.

Times are medians of the reporting rounds (partition.regret), so that they can be compared; the predicted one is the
solver's.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace

from pytest_npubench.extensions.pairs.suites.partition.kinds.solver import SolverDetail
from pytest_npubench.reports import number_text
from pytest_npubench.reports.build import chart, marks, table
from pytest_npubench.reports.page import Chart
from pytest_npubench.reports.plot_parts import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    Cell,
    CellGrid,
    category_axis,
    spread_axis,
)
from pytest_npubench.verdict.case_record import CaseRecord, Cases, DetailT

SHARES = (
    "The bar is the share of the outputs that each unit computes; padding is none. Weight-centric cuts the rows of the "
    "weight, activation-centric the tokens, hybrid pads the tokens for the static unit and cuts the rows."
)
TIMES = (
    "Medians of the rounds that chose nothing. The best of all splits was chosen in the other rounds, so it can come "
    "out above the decided one. The prediction was made before any of them ran."
)
Case = CaseRecord[SolverDetail]
TIMED: Sequence[tuple[str, str, str, float, Callable[[Case], float | None]]] = (
    ("best single unit", GREY, "square-open", 9, lambda case: case.detail.single_s),
    ("best of all splits", GREEN, "triangle-up", 9, lambda case: case.detail.best_s),
    ("predicted", ORANGE, "diamond-open", 10, lambda case: case.judgement.predicted_s),
    ("decided, measured", BLUE, "circle", 7, lambda case: case.detail.decided_s),
)


def operator_of(record: CaseRecord[DetailT]) -> str:
    return record.axis("operator") or record.id


def choice_charts(cases: Cases) -> tuple[Chart, ...]:
    """Returns the map of all decisions that were measured, then the times of each operator, which its cases lead to."""
    decided = sorted(cases.of("solver", SolverDetail), key=lambda case: case.detail.shape[2])
    if not decided:
        return ()
    operators = list(dict.fromkeys(operator_of(case) for case in cases.of("solver", SolverDetail)))
    by_operator = {name: [case for case in decided if operator_of(case) == name] for name in operators}
    return _map(by_operator), *(
        replace(_times(name, own), shows=tuple(case.key for case in own)) for name, own in by_operator.items()
    )


def _map(by_operator: dict[str, list[Case]]) -> Chart:
    every = [case for own in by_operator.values() for case in own]
    lengths = sorted({case.detail.shape[2] for case in every})
    by_place = {(name, case.detail.shape[2]): case for name, own in by_operator.items() for case in own}
    weights = {name: f"{own[0].detail.shape[0]} x {own[0].detail.shape[1]}" for name, own in by_operator.items()}
    strategies = [_words(case.detail.strategy) for case in every]
    counts = ", ".join(f"{strategies.count(name)} {name}" for name in dict.fromkeys(strategies))
    title = "What the solver chose"
    return Chart(
        title=title,
        summary=f"{title} for {len(by_operator)} operators at {len(lengths)} lengths: {counts}.",
        notes=(SHARES,),
        answer=f"The solver's splits of {len(every)} operators: {counts}",
        figure=CellGrid(
            rows_title="tokens",
            rows=tuple(map(number_text.count, lengths)),
            columns=tuple(weights.items()),
            cells=tuple(
                tuple(
                    None if (case := by_place.get((name, tokens))) is None else _cell(name, case)
                    for name in by_operator
                )
                for tokens in lengths
            ),
            parts=("GPU, dynamic shapes", "NPU, static shapes"),
        ),
        table=table(
            title,
            (
                ("operator", operator_of),
                ("tokens", lambda case: number_text.count(case.detail.shape[2])),
                ("decided", lambda case: f"{_words(case.detail.strategy)}: {case.detail.split}"),
                ("GPU %", lambda case: number_text.percent(case.detail.gpu_share)),
                ("NPU %", lambda case: number_text.percent(1 - case.detail.gpu_share)),
            ),
            every,
        ),
    )


def _cell(operator: str, case: Case) -> Cell:
    detail = case.detail
    what = f"{operator} x {_tokens(case)}: {_words(detail.strategy)}, {detail.split}"
    timed = [(name, text) for (name, *_), text in zip(TIMED, _texts(case), strict=True) if text != number_text.UNKNOWN]
    times = ", ".join(f"{name} {text}" for name, text in reversed(timed))
    share = f"GPU {number_text.percent(detail.gpu_share)} % of the outputs"
    return Cell(
        text=_words(detail.strategy).removesuffix("-centric"),
        aside=_percents(detail.gpu_share),
        share=detail.gpu_share,
        sentence=f"{what}, {share}; {times}; best split {_words(detail.best_strategy)}, {detail.best_split}",
    )


def _times(operator: str, cases: Sequence[Case]) -> Chart:
    names = [f"{_tokens(case)}, {_words(case.detail.strategy)}" for case in cases]
    all_seconds = [seconds for case in cases for seconds in _seconds(case) if seconds is not None]
    unit = number_text.scale("s", statistics.median(case.detail.decided_s for case in cases))
    regrets = ", ".join(f"{_tokens(case)} {number_text.percent(case.detail.regret, signed=True)} %" for case in cases)
    title = f"Times of the solver's choices: {operator}"
    return chart(
        title,
        f"{operator}, decided over best of all splits: {regrets}.",
        (TIMES,),
        [
            marks(
                name,
                [None if (value := seconds(case)) is None else value * unit.factor for case in cases],
                names,
                f"{{y}}: {{x:.4g}} {unit.name}",
                color=color,
                symbol=symbol,
                size=size,
            )
            for name, color, symbol, size, seconds in TIMED
        ],
        (spread_axis(unit.name, [seconds * unit.factor for seconds in all_seconds]), category_axis(names)),
        table(
            title,
            (
                ("tokens", lambda case: number_text.count(case.detail.shape[2])),
                ("decided", lambda case: f"{_words(case.detail.strategy)}: {case.detail.split}"),
                *((name, lambda case, index=index: _texts(case)[index]) for index, (name, *_) in enumerate(TIMED)),
                ("regret %", lambda case: number_text.percent(case.detail.regret, signed=True)),
            ),
            cases,
        ),
    )


def _seconds(case: Case) -> list[float | None]:
    return [seconds(case) for *_, seconds in TIMED]


def _texts(case: Case) -> list[str]:
    """All times of a decision, in one unit."""
    return number_text.figures(_seconds(case), "s")


def _tokens(case: Case) -> str:
    tokens = case.detail.shape[2]
    return "1 token" if tokens == 1 else f"{number_text.count(tokens)} tokens"


def _words(strategy: str) -> str:
    """ "weight_centric" is "weight-centric", "gpu_only" is "GPU only"."""
    unit, _, only = strategy.partition("_")
    return f"{unit.upper()} only" if only == "only" else strategy.replace("_", "-")


def _percents(share: float) -> str:
    first = round(100 * share)
    return f"{first}:{100 - first}"
