"""The cases of a run as CSV, one line a metric, in the units of the journal: seconds, bytes, fractions (RFC 4180)."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

from pytest_npubench.reports.case_lines import CaseLine, case_lines

HEADER = tuple(CaseLine.__dataclass_fields__)


def case_csv(records: Sequence[Mapping[str, Any]]) -> str:
    """A header, then the lines; a case without any metric has one line. A field that is not known is empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADER)
    for line in case_lines(records):
        writer.writerow("" if (value := getattr(line, name)) is None else value for name in HEADER)
    return text.getvalue()
