"""The exit statuses that pytest has none for (its own begin at 0): what kept a run from being green.

A run in which a case failed a limit or regressed, or a test failed for another reason, ends with pytest's 1 whatever
else is the matter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any

import pytest

from pytest_npubench.verdict import VerdictKind
from pytest_npubench.verdict.case_record import Cases


class ExitStatus(IntEnum):
    """INVALID: cases could not be measured, or not well, and nothing else is wrong. DISTURBED: the same, and all of
    them because others used the machine. NOT_JUDGED: green, and too few cases were compared with a baseline."""

    INVALID = 10
    DISTURBED = 11
    NOT_JUDGED = 12


def exit_status(status: int, records: Sequence[Mapping[str, Any]], *, has_other_failures: bool) -> int:
    """What becomes of pytest's status. has_other_failures: a test failed that is no case, or a case not invalid."""
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED) or has_other_failures:
        return status
    invalid = [
        one.judgement for one in Cases.read(records).records if one.judgement.verdict.kind is VerdictKind.INVALID
    ]
    if not invalid:
        return status
    return ExitStatus.DISTURBED if all(one.is_disturbed for one in invalid) else ExitStatus.INVALID
