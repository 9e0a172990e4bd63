"""SLO attainment by rate as a chart, and the rate at which 90 % attain as a table, layered beside chunked prefill."""

from __future__ import annotations

from pytest_npubench.reports import number_text
from pytest_npubench.reports.build import chart, line, marks, plain, table
from pytest_npubench.reports.page import Chart, Table
from pytest_npubench.reports.plot_parts import BLUE, ORANGE, DrawnSeries, axis, percents
from pytest_npubench.suites.scheduling.kinds.attainment import AttainmentDetail
from pytest_npubench.suites.scheduling.report.policy import available
from pytest_npubench.verdict.case_record import CaseRecord

ATTAINMENT = (
    "SLO attainment: requests whose TTFT and every TBT keep their limits, over arrived requests: the thick lines. Thin "
    "and dashed, marks open: those whose TTFT does; thin and dotted, marks a cross: those whose every TBT does. A "
    "block is short, so its queue is not that of a lasting service: for comparing policies only."
)
CAPACITY = (
    "Capacity: the rate at which 90 % of the arrived requests attain their SLO, from a curve through all blocks, with "
    "its 95 % interval where there are enough blocks near it."
)
PARTS = ("TTFT and TBT", "TTFT", "TBT")
HOVER = "{x:.3g} req/s: {y:.1f} %"
UNKNOWN = (None, None)
"""The capacity of a policy that a record lacks, and its interval."""
STYLES = {"layered": (BLUE, "circle"), "chunked": (ORANGE, "square")}
SPLIT = ((1, "dash", "-open"), (2, "dot", None))
"""Of each limit alone: its place in a row, the dashes of its line, and what makes its marks of the policy's."""
CROSSES = {"layered": "x", "chunked": "cross"}


def attainment_chart(case: CaseRecord[AttainmentDetail]) -> Chart:
    """SLO attainment of both policies by the rate, and thinner that of each limit alone."""
    detail, workload = case.detail, case.axis("workload")
    title, rates = f"SLO attainment by rate, {workload}", detail.rate_per_s
    attained = {policy: detail.attainment[policy] for policy in STYLES if detail.attainment.get(policy)}
    spans = (f"{name} {rows[0][0]:.0%} to {rows[-1][0]:.0%}" for name, rows in attained.items())
    columns = [(policy, part) for policy in attained for part in range(len(PARTS))]
    return chart(
        title,
        f"Share of requests that attain their SLO under {workload} at {rates[0]:.3g} to {rates[-1]:.3g} req/s: "
        f"{', '.join(spans)}.",
        (ATTAINMENT, _in_words(detail)),
        [
            *(
                line(
                    policy,
                    rates,
                    percents(both for both, _, _ in rows),
                    HOVER,
                    color=STYLES[policy][0],
                    symbol=STYLES[policy][1],
                    width=2.5,
                )
                for policy, rows in attained.items()
            ),
            *(
                line(
                    f"{policy}, {PARTS[part]} alone",
                    rates,
                    percents(row[part] for row in rows),
                    HOVER,
                    color=STYLES[policy][0],
                    symbol=f"{STYLES[policy][1]}{ending}" if ending else CROSSES[policy],
                    dash=dash,
                    width=1.2,
                    size=6,
                )
                for policy, rows in attained.items()
                for part, dash, ending in SPLIT
            ),
            *(_capacity_mark(policy, *detail.capacity.get(policy, UNKNOWN)) for policy in attained),
        ],
        (axis("rate, requests/s", from_zero=True), axis("attainment, %", span=(0, 105))),
        table(
            title,
            [
                ("requests/s", lambda index: f"{rates[index]:.3g}"),
                ("times the load's rate", lambda index: f"{detail.factors[index]:.3g}"),
                *(
                    (
                        f"{policy}, {PARTS[part]} %",
                        lambda index, policy=policy, part=part: number_text.percent(attained[policy][index][part]),
                    )
                    for policy, part in columns
                ),
            ],
            range(len(rates)),
        ),
        horizontals=(90,),
    )


def capacity_table(case: CaseRecord[AttainmentDetail]) -> Table:
    """Returns the rate at which 90 % attain, by policy, and the ratio of the two."""
    detail = case.detail
    rows = [(policy, *capacity, detail.why.get(policy, "")) for policy, capacity in detail.capacity.items()]
    ratio = ("layered / chunked", detail.capacity_ratio, detail.capacity_ratio_interval, "")
    return table(
        f"Capacity: {case.axis('workload')}",
        (
            ("policy", lambda row: row[0]),
            ("capacity at 90 % attainment, req/s", lambda row: available(row[1])),
            ("95 % interval", lambda row: " to ".join(map(plain, row[2])) if row[2] else number_text.UNKNOWN),
            ("why", lambda row: row[3]),
        ),
        [*rows, ratio],
        note=CAPACITY,
    )


def _capacity_mark(policy: str, rate: float | None, interval: tuple[float | None, float | None] | None) -> DrawnSeries:
    """The mark lies on the line of 90 %; a policy without a capacity has none."""
    color, capacities = STYLES[policy][0], [] if rate is None else [rate]
    low, high = interval or (None, None)
    return marks(
        f"{policy}, capacity",
        capacities,
        [90.0] * len(capacities),
        "capacity {x:.3g} req/s",
        color=color,
        symbol="diamond-open",
        size=12,
        x_ends=() if low is None or high is None else [(low, high)] * len(capacities),
    )


def _in_words(detail: AttainmentDetail) -> str:
    """What the curves come to."""
    if detail.capacity_ratio is None:
        return "The dotted line is 90 %; no capacity is known, since not both curves surely cross it."
    low_high = detail.capacity_ratio_interval
    interval = f" (95 % interval {low_high[0]:.3g} to {low_high[1]:.3g})" if low_high else ""
    return (
        "The dotted line is 90 %: a curve crosses it at its capacity, layered / chunked "
        f"{detail.capacity_ratio:.3g}{interval}."
    )
