"""What kept a run from being green, told apart by its exit status."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_npubench.plugin.outcome import ExitStatus, exit_status

OK, FAILED = 0, 1


def case(kind: str, *, is_disturbed: bool = False) -> dict[str, Any]:
    return {
        "case": f"s/k/{kind}",
        "id": kind,
        "hardware": "cpu",
        "fingerprint": None,
        "verdict": {"kind": kind, "reason": "why"},
        "metrics": {},
        **({"is_disturbed": True} if is_disturbed else {}),
    }


GREEN, INVALID, DISTURBED = case("no-baseline"), case("invalid"), case("invalid", is_disturbed=True)


@pytest.mark.parametrize(
    ("status", "records", "others", "wanted"),
    [
        (OK, [GREEN], False, OK),
        (FAILED, [GREEN, INVALID], False, ExitStatus.INVALID),
        (FAILED, [INVALID, DISTURBED], False, ExitStatus.INVALID),
        (FAILED, [GREEN, DISTURBED], False, ExitStatus.DISTURBED),
        pytest.param(OK, [GREEN, DISTURBED], False, ExitStatus.DISTURBED, id="marked: the test was skipped"),
        pytest.param(FAILED, [INVALID, case("regressed")], True, FAILED, id="a regression is worse"),
        pytest.param(FAILED, [DISTURBED], True, FAILED, id="another test failed"),
        pytest.param(2, [DISTURBED], False, 2, id="interrupted"),
        pytest.param(4, [], False, 4, id="usage"),
    ],
)
def test_the_status_says_what_is_wrong(status: int, records: list[Any], others: bool, wanted: int) -> None:
    assert exit_status(status, records, has_other_failures=others) == wanted


def test_no_status_of_ours_is_pytests() -> None:
    assert not {int(one) for one in ExitStatus} & {int(one) for one in pytest.ExitCode}
