"""Energy a token by both denominators, above idle, and the power behind it."""

from __future__ import annotations

from pytest_npubench.reports.page import Table
from pytest_npubench.reports.reported import conditions, label, model_of
from pytest_npubench.suites.scheduling.kinds.energy import EnergyDetail
from pytest_npubench.suites.scheduling.report.cells import UNAVAILABLE, available, load_name, reason
from pytest_npubench.suites.scheduling.report.comparison import (
    POLICIES,
    FigureRow,
    by_policy,
    comparison_table,
    ratio_of,
    reported_by_policy,
)
from pytest_npubench.verdict.case_record import CaseRecord

ENERGY = (
    "Energy of the device's counter around each block, idle power included, over prompt and output tokens together and "
    "over output tokens alone. A processor's counter is that of its whole packages, whoever used them. Idle power is "
    "measured beside the blocks with the weights loaded; only the row that says so has it taken off."
)
REPORTED = "its energy is a prompt and output token, though its text calls it an output token"


def energy_table(case: CaseRecord[EnergyDetail]) -> Table:
    detail, model = case.detail, model_of("8", case.model)
    rate = 1.3 if model == "qwen3-30b-a3b" else 2.1  # at which Table 8 has both policies
    theirs = reported_by_policy("8", "energy", model=model, rate=rate)
    ratio, by_all = ratio_of(case, "energy_ratio"), by_policy(case, "{}_mj_per_prompt_and_output_token")
    rows = [
        FigureRow("energy per prompt and output token, mJ", by_all, ratio, theirs),
        FigureRow("energy per output token, mJ", by_policy(case, "{}_mj_per_output_token"), ratio),
    ]
    above = by_policy(case, "{}_mj_above_idle_per_prompt_and_output_token")
    if above != [UNAVAILABLE, UNAVAILABLE]:
        rows.append(FigureRow("above idle power, per prompt and output token, mJ", above))
    if detail.power_w:
        rows.append(FigureRow("mean power, W", [available(detail.power_w.get(policy)) for policy in POLICIES]))
    if detail.idle_power_w is not None:
        rows.append(FigureRow("idle power, W", [available(detail.idle_power_w)] * 2))
    why = "" if ratio else reason(case)
    note = f"{why}{ENERGY} {label(conditions('8', model=model, rate=rate), REPORTED)}"
    return comparison_table(f"Energy: {load_name(case, detail.rate_per_s)}", note, rows)
