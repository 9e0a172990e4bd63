"""What a calibrated simulation predicted, by figure and policy, and what its bands held."""

from __future__ import annotations

from pytest_npubench.reports.build import table
from pytest_npubench.reports.page import Table
from pytest_npubench.suites.scheduling.kinds.simulated_coverage import SimulatedCoverageDetail
from pytest_npubench.suites.scheduling.report.cells import UNAVAILABLE, load_name, reason
from pytest_npubench.verdict.case_record import CaseRecord

BANDS = (
    "Each round was predicted with its own arrivals by a step cost that was calibrated on the iterations of the other "
    "rounds; the band holds what the machine's speed does between rounds. Error: predicted over measured - 1; half "
    "width: of the band, over what was measured; both are means over the blocks. p99 error: over the requests."
)


def bands_table(case: CaseRecord[SimulatedCoverageDetail]) -> Table:
    detail = case.detail
    return table(
        f"Simulated against served: {load_name(case, detail.rate_per_s)}, {detail.coverage:.0%} bands",
        (
            ("figure", lambda row: f"mean {row.figure.upper()}"),
            ("policy", lambda row: row.policy),
            ("held", lambda row: f"{row.num_covered} of {row.num_blocks}"),
            ("error", lambda row: f"{row.error:+.1%}"),
            ("p99 error", lambda row: UNAVAILABLE if row.p99_error is None else f"{row.p99_error:+.1%}"),
            ("half width", lambda row: f"{row.half_width:.1%}"),
        ),
        detail.rows,
        note=f"{reason(case)}{_together(detail)}{BANDS}",
    )


def _together(detail: SimulatedCoverageDetail) -> str:
    """ "All requests together: TTFT +1.0 % (p99 +4.7 %), .... "; empty in journals from before errors were told."""
    if not detail.errors:
        return ""
    told = ", ".join(
        f"{name.upper()} {one.mean_error:+.1%} (p99 {one.p99_error:+.1%})" for name, one in detail.errors.items()
    )
    return f"All requests together: {told}. "
