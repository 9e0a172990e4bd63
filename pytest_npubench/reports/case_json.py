"""The cases of a run as JSON: the table's rows, in the units of the journal."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from pytest_npubench.reports.case_lines import case_lines


def case_json(records: Sequence[Mapping[str, Any]]) -> str:
    """A list of objects, one a metric."""
    return json.dumps([asdict(line) for line in case_lines(records)], indent=1) + "\n"
