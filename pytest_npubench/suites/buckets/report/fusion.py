"""What fusion cases say of the device's compiler."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_npubench.reports import build, number_text
from pytest_npubench.reports.page import Table
from pytest_npubench.suites.buckets.kinds.fusion import WORDS, FusionDetail
from pytest_npubench.verdict.case_record import CaseRecord

PAPER = (
    "Hidden: the product's and the operator's seconds less those of both compiled together, over the operator's. On "
    "the NPUs of LENS, Fig. 3, the operator after a product is nearly hidden; on its GPUs its latency is only partly "
    "reduced, by the memory access that is saved (Fig. 4)."
)


def fusion_table(found: Sequence[CaseRecord[FusionDetail]]) -> Table | None:
    """A row for each operator; None without any."""
    if not found:
        return None
    return build.table(
        "Matrix product and the operator after it",
        (
            ("operator", lambda detail: detail.operator),
            ("product, ms", lambda detail: number_text.milliseconds(detail.matmul_s)),
            ("operator, ms", lambda detail: number_text.milliseconds(detail.operator_s)),
            ("together, ms", lambda detail: number_text.milliseconds(detail.together_s)),
            ("hidden", lambda detail: _share(detail)),
            ("kept traffic explains", lambda detail: f"{detail.traffic_share:.0%}"),
            ("", lambda detail: WORDS[detail.what]),
        ),
        [case.detail for case in found],
        note=PAPER,
    )


def _share(detail: FusionDetail) -> str:
    low, high = detail.interval or (None, None)
    return f"{detail.hidden:.0%}" + ("" if low is None else f" ({low:.0%} to {high:.0%})")
