"""What the section of a campaign that loads a server shows."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_npubench.reports.campaign_sections import sentences
from pytest_npubench.reports.page import Parts
from pytest_npubench.reports.record_fields import Record
from pytest_npubench.suites.server.report.lines import server_lines
from pytest_npubench.suites.server.report.tables import server_tables


def parts(records: Sequence[Record], rounds: Sequence[Record]) -> Parts:
    return (), server_tables(records), sentences(server_lines(records))
