"""Reports of pairs whose records hold what no version of ours writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from reports.test_scheduling_charts import JUNK_CHANGES, check_report_of_junk, junk_in_any_place

from .test_offload_sections import offload_records
from .test_partition_sections import partition_records


@junk_in_any_place
@pytest.mark.parametrize("made", [partition_records, offload_records])
@given(changes=JUNK_CHANGES)
def test_junk_in_any_place_of_a_record_does_not_stop_the_report(
    made: Callable[[], list[dict[str, Any]]], changes: list[tuple[int, int, object]]
) -> None:
    check_report_of_junk(made(), changes)
