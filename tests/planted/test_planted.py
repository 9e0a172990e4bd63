"""Every fault of the catalogue is found and not accepted; no harmless change alarms or is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from plugin.project import Project

from .catalogue import FAULTS, HARMLESS, PAGE, REFUSED, Fault, Harmless, page
from .play import ACCEPT, environment, first_night, play

RED = frozenset({"regressed", "failed", "invalid"})
NUM_NIGHTS = 3


class Nights:
    """The project on each of its first nights, those before it accepted."""

    def __init__(self, folder: Path) -> None:
        self._projects = [first_night(folder)]

    def copy(self, number: int, folder: Path) -> Project:
        """The project on a night, the first of which is 1."""
        while len(self._projects) < number:
            project = self._projects[-1].copy(self._projects[0].root.with_name(f"night{len(self._projects) + 1}"))
            result = project.run(*ACCEPT, env=environment())
            assert result.ret == 0, result.stdout.str()
            self._projects.append(project)
        return self._projects[number - 1].copy(folder)


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> Nights:
    return Nights(tmp_path_factory.mktemp("planted") / "night1")


def rows(table: tuple[Fault, ...] | tuple[Harmless, ...]) -> list[object]:
    return [
        pytest.param(
            row,
            id=row.plant or row.title,
            marks=[pytest.mark.xfail(reason=row.waits_for, strict=True)] if row.waits_for else [],
        )
        for row in table
    ]


@pytest.mark.parametrize("fault", rows(FAULTS))
def test_a_fault_is_found_and_not_accepted(fault: Fault, nights: Nights, tmp_path: Path) -> None:
    played = play(nights.copy(fault.first_night, tmp_path / "project"), fault)
    if fault.verdict == REFUSED:
        assert (played.result.ret, played.records) == (pytest.ExitCode.USAGE_ERROR, {})
        assert re.search(fault.reason, played.output)
        return
    suspects = {case: record for case, record in played.records.items() if re.search(fault.cases, case)}
    others = {case: kind for case, kind in played.kinds.items() if case not in suspects}
    assert {played.kinds[case] for case in suspects} == {fault.verdict}, played.output
    assert {case for case, kind in others.items() if kind in RED and not re.search(fault.also_red, case)} == set()
    assert (played.result.ret != 0) is not RED.isdisjoint(played.kinds.values()), played.output
    for record in suspects.values():
        assert re.search(fault.reason, record["verdict"]["reason"]) or re.search(fault.reason, played.output)
        if fault.metric:
            assert record["metrics"][fault.metric]["verdict"]["kind"] == fault.verdict
    entered = {case: beside for case, beside in played.accepted.items() if case in suspects}
    if fault.verdict == "incomparable":  # it may begin an entry of its own, and joins no other
        assert set(entered.values()) <= {0}
    else:
        assert not entered, played.output


@pytest.mark.parametrize("change", rows(HARMLESS))
def test_a_harmless_change_is_passed_and_accepted(change: Harmless, nights: Nights, tmp_path: Path) -> None:
    played = play(nights.copy(NUM_NIGHTS + 1, tmp_path / "project"), change)
    assert played.result.ret == 0, played.output
    assert played.records
    assert set(played.kinds.values()) <= set(change.verdicts), played.output
    assert played.accepted.keys() == played.records.keys()


def test_the_page_is_that_of_the_catalogue() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "python tests/planted/catalogue.py writes docs/trust.md anew"
