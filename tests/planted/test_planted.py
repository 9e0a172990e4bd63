"""Every fault of the catalogue is found and not accepted; no harmless change alarms or is refused."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest
from plugin.project import Project

from . import play
from .catalogue import FAULTS, HARMLESS, PAGE, REFUSED, Fault, Harmless, page

RED = frozenset({"regressed", "failed", "invalid"})


class Nights:
    """Each project on its first nights, those before it accepted."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def copy(self, row: Fault | Harmless, folder: Path) -> Project:
        """A row's project on its night."""
        return self._before(row.project, row.first_night).copy(folder)

    @cache  # noqa: B019 - a module's
    def _before(self, name: str, number: int) -> Project:
        root = self._folder / f"{name}-{number}"
        if number == 1:
            return getattr(play, name)(root)
        project = self._before(name, number - 1).copy(root)
        result = project.run(*play.ACCEPT, env=play.environment())
        assert result.ret == 0, result.stdout.str()
        return project


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> Nights:
    return Nights(tmp_path_factory.mktemp("planted"))


def rows(table: Sequence[Fault] | Sequence[Harmless]) -> list[object]:
    soak = [pytest.mark.soak]
    return [pytest.param(row, id=row.plant or row.title, marks=soak if row.is_soak else ()) for row in table]


@pytest.mark.parametrize("fault", rows(FAULTS))
def test_a_fault_is_found_and_not_accepted(fault: Fault, nights: Nights, tmp_path: Path) -> None:
    played = play.play(nights.copy(fault, tmp_path / "project"), fault)
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
    played = play.play(nights.copy(change, tmp_path / "project"), change)
    assert played.result.ret == 0, played.output
    assert played.records
    assert set(played.kinds.values()) <= set(change.verdicts), played.output
    assert played.accepted.keys() == played.records.keys()


def test_the_page_is_that_of_the_catalogue() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "python tests/planted/catalogue.py writes docs/trust.md anew"
