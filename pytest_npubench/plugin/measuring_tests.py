"""What became of the tests that measure cases: set-up, call, tear-down and every try of them together.

A case may become a baseline only where its test passed (store/accept_run.py). When the last phase of a test is reported
its outcome goes to the journal. A test that was tried several times, as by pytest-rerunfailures, has the outcome of its
worst try: the first fault that was seen stays. A fixture of several tests, of a file or the whole session, ends with
the last of them: where its tear-down fails, all tests that used it have a fault.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pytest

from pytest_npubench.errors import JournalError
from pytest_npubench.plain_text import plain

if TYPE_CHECKING:
    Fixture = pytest.FixtureDef[Any]

Record = Mapping[str, Any]
Fault = tuple[str, str]
"""An outcome that is not "passed", and what the test did, as words that follow "a test that"."""
MOST_CHARACTERS = 200
WHEN = {"setup": " at set-up", "call": "", "teardown": " at tear-down"}


class MeasuringTests:
    """The tests that measure, by node id. `append` writes a record to the journal; `note` says that this failed."""

    def __init__(self, append: Callable[[Record], None], note: Callable[[str], None]) -> None:
        self._append = append
        self._note = note
        self._faults: dict[str, Fault] = {}
        self._measured: dict[str, dict[tuple[str, str], None]] = {}
        self._ended: dict[str, tuple[tuple[str, str], ...]] = {}
        self._shared: dict[str, list[Fixture]] = {}

    def measured(self, node: str, record: Record) -> None:
        """A test measured the case of this record."""
        self._measured.setdefault(node, {})[record["case"], record["device"]] = None

    def fault(self, node: str, outcome: str, what: str) -> None:
        self._faults.setdefault(node, (outcome, what))

    def see(self, report: pytest.TestReport) -> None:
        """The report of a phase, as it was made or as it is shown: some plugins change it in between."""
        if _is_rerun(report):
            self._faults[report.nodeid] = "failed", f"failed at a try{_why(report)}: the worst try counts"
        elif (fault := _fault_of(report)) is not None:
            self.fault(report.nodeid, *fault)

    def words(self, node: str) -> str:
        """What is wrong with the test so far; empty where nothing is."""
        return self._faults.get(node, ("", ""))[1]

    def end(self, report: pytest.TestReport) -> None:
        """Write the test's outcome once nothing more comes of it."""
        if report.when != "teardown" or _is_rerun(report):
            return
        self._ended[report.nodeid] = tuple(self._measured.pop(report.nodeid, ()))
        self._write(report.nodeid, *self._faults.get(report.nodeid, ("passed", None)))

    def share(self, item: pytest.Item, report: pytest.TestReport) -> None:
        """Note what the test shares with others while it lives; write a fault of the others where that ended badly."""
        fixtures = self._shared.setdefault(item.nodeid, _wide_fixtures(item))
        if report.when != "teardown" or not report.failed:
            return
        ended = [fixture for fixture in fixtures if fixture.cached_result is None]
        for node, used in self._shared.items():
            fixture = next((fixture for fixture in ended if fixture in used), None)
            if fixture is not None and node != item.nodeid:
                what = f"shares the fixture {fixture.argname}, which failed at tear-down{_why(report)}"
                self._write(node, "failed", what)

    def _write(self, node: str, outcome: str, reason: str | None) -> None:
        for case, device in self._ended.get(node, ()):
            try:
                self._append(
                    {"record": "outcome", "case": case, "device": device, "outcome": outcome, "reason": reason}
                )
            except JournalError as error:  # without it the case is accepted by nobody
                self._note(f"error: {error}")


def _wide_fixtures(item: pytest.Item) -> list[Fixture]:
    """The fixtures that a test shares with others."""
    table = getattr(getattr(item, "_fixtureinfo", None), "name2fixturedefs", {})
    return [fixture for fixtures in table.values() for fixture in fixtures if fixture.scope != "function"]


def _fault_of(report: pytest.TestReport) -> Fault | None:
    expected = getattr(report, "wasxfail", None)
    if report.failed:
        return "failed", f"failed{WHEN.get(report.when, '')}{_why(report)}"
    if expected is not None:
        marked = f"(xfail{f': {expected}' if expected else ''})"
        as_expected = "xfailed", f"failed as expected {marked}"
        return as_expected if report.skipped else ("xpassed", f"passed and was to fail {marked}")
    return ("skipped", f"was skipped{_why(report)}") if report.skipped else None


def _is_rerun(report: pytest.TestReport) -> bool:
    """Whether pytest-rerunfailures tries the test again after this phase."""
    return str(report.outcome) == "rerun"


def _why(report: pytest.TestReport) -> str:
    reason: Any = report.longrepr
    if isinstance(reason, tuple):
        reason = reason[2]
    elif crash := getattr(reason, "reprcrash", None):
        reason = crash.message
    first_line = next(iter(str(reason or "").splitlines()), "").strip()
    return f" ({plain(first_line)[:MOST_CHARACTERS]})" if first_line else ""
