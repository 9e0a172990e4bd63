"""Reports of pairs whose records hold what no version of ours writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from reports.test_report_gaps import JUNK_CHANGES, check_report_of_junk, junk_in_any_place

from .test_offload_sections import offload_records
from .test_partition_sections import partition_records


@junk_in_any_place
@example(changes=[(94, 367, [{"a": None}]), (67, 29, 3.5), (99, 965, True)])  # an axis that is a list
@example(changes=[(17, 943, 3.5), (81, 221, []), (41, 162, 0), (30, 480, float("nan"))])  # a stage of 0 tokens
@pytest.mark.parametrize("made", [partition_records, offload_records])
@given(changes=JUNK_CHANGES)
def test_junk_in_any_place_of_a_record_does_not_stop_the_report(
    made: Callable[[], list[dict[str, Any]]], changes: list[tuple[int, int, object]]
) -> None:
    check_report_of_junk(made(), changes)
