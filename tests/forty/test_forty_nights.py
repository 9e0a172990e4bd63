"""A shortened run of the forty nights: from an empty remote to a new driver, every fault once, each verdict held
against the truth. `python benchmarks/forty_nights.py` plays all forty by the same code.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from pytest_npubench.store.history import history_series, history_sessions
from pytest_npubench.store.journal import read_journal

from .play import Played, Stage, long
from .script import CASES, INTENDED, REASON, UPGRADED, Expected, Truth, expected, forty_nights, short_nights
from .tally import POWER, Row, table, tally

pytestmark = pytest.mark.soak  # tests/nightly plays single nights
ONE_FRESH_PROCESS = "--npubench-remeasure=1"  # two by default; each costs more than a second


@dataclass(frozen=True, kw_only=True)
class Season:
    """The nights and what they left."""

    stage: Stage
    truths: tuple[Expected, ...]
    played: tuple[Played, ...]
    rows: Mapping[str, Row]

    def of(self, title: str) -> Played:
        return next(one for one in self.played if one.night.title == title)

    def reason(self, title: str, case: str) -> str:
        return str(self.of(title).records[case]["verdict"]["reason"])


@pytest.fixture(scope="module")
def season(tmp_path_factory: pytest.TempPathFactory) -> Season:
    nights = short_nights()
    truths = tuple(expected(nights))
    stage = Stage(root=tmp_path_factory.mktemp("forty"), options=(ONE_FRESH_PROCESS,))
    played = tuple(stage.play(nights))
    rows = tally(played, truths)
    sys.stdout.write(table(rows))  # pytest shows it with -s, and beside a test that fails
    return Season(stage=stage, truths=truths, played=played, rows=rows)


def test_the_table_counts_every_verdict_once(season: Season) -> None:
    verdicts = [one for played in season.played for one in played.records]
    assert len(verdicts) > 8 * len(CASES)
    last = table(season.rows).splitlines()[-1]
    assert last.startswith(f"| **all** | {len(season.truths)} | {len(verdicts)} verdicts | ")


def test_no_case_that_did_not_change_alarms(season: Season) -> None:
    assert [said for row in season.rows.values() for said in row.alarms] == []


def test_a_slower_case_is_found_as_the_statistics_promise(season: Season) -> None:
    """10 % at once; of 5 % the share that the verdicts themselves promise."""
    tenths = [
        one.kinds[case]
        for one, truth in ((one, season.truths[one.number - 1]) for one in season.played)
        for case, right in truth.truths.items()
        if right is Truth.SLOWER and truth.slower_by[case] > 0.07 and case in one.kinds
    ]
    assert set(tenths) == {"regressed"}
    promised = sum(row.num_promised for row in season.rows.values())
    assert promised >= 4
    assert sum(row.num_found for row in season.rows.values()) >= POWER * promised


def test_every_other_verdict_and_exit_status_is_right(season: Season) -> None:
    rows = season.rows.values()
    assert [said for row in rows for said in (*row.wrong, *row.statuses)] == []


def test_what_is_green_is_on_the_branch_after_its_night_and_nothing_else(season: Season) -> None:
    rows = season.rows.values()
    assert [said for row in rows for said in (*row.lost, *row.strays)] == []
    assert sum(row.num_to_accept for row in rows) > 7 * len(CASES)


def test_each_fault_is_told_by_its_name(season: Season) -> None:
    died = season.reason("+10 %, and a device's process is killed", "far-b2-bucket16")
    assert "the process of far-mini-llama-b2 " in died
    lines = season.of("the disk is full half-way").output.splitlines()
    (full,) = (line for line in lines if line.startswith("measure: exit status 3: pytest failed internally: journal "))
    assert "File too large" in full
    upgraded = season.of("a new driver, and +5 %")
    assert "8 of 12 incomparable: accepted under another key: driver driver 1 -> driver 2" in upgraded.output
    assert "3 of 12 cases were compared with a baseline, want 90%" in upgraded.output


def test_a_change_that_is_meant_begins_anew_with_its_reason(season: Season) -> None:
    (case,) = INTENDED
    files = season.stage.remote.baselines(season.stage.root / "last").files
    (file,) = (file for file in files if long(case) in file.cases)
    assert file.resets[long(case)].reason == REASON
    before = {session for one in season.played[:6] for session in one.sessions}
    for name, accepted in file.cases.items():
        held = {session.session.partition("@")[0] for session in accepted.sessions}
        assert bool(held & before) is (name != long(case)), name


def test_history_and_journals_have_every_session_and_case(season: Season) -> None:
    for name, runner in season.stage.runners.items():
        nights = [one for one in season.played if one.runner == name]
        history = str(runner.state.history)
        assert {row.session for row in history_sessions(history)} == {one for night in nights for one in night.sessions}
        for case in CASES:
            measured = [one for one in nights if "ttft_s" in one.records.get(case, {"metrics": ()})["metrics"]]
            rows = history_series(history, case=long(case), metric="ttft_s")
            assert [row.session for row in rows] == [one.records[case]["session"] for one in measured]


def test_compare_says_the_same_of_the_new_driver_from_journal_history_and_baselines(season: Season) -> None:
    """Journal and history know the same nights; baselines know those that were accepted."""
    state = season.stage.runners["a"].state
    season.stage.remote.baselines(season.stage.root / "compared")
    found = {}
    for source in (str(state.journal), f"history:{state.history}", "compared/baselines"):
        said = season.stage.npubench("compare", source, "--by", "driver", "--json")
        assert said.returncode == 0, said.stderr
        found[source] = {(one["case"], one["metric"]): one for one in json.loads(said.stdout)["cases"]}
    journal, history, baselines = found.values()
    assert history == journal
    assert {name: one["verdict"] for name, one in baselines.items()} == dict.fromkeys(journal, "unchanged")
    upgraded = {long(case) for case in CASES if case.partition("-")[0] in UPGRADED}
    assert {case for case, _ in journal} == upgraded


def test_what_a_killed_night_measured_stays_in_the_journal(season: Season) -> None:
    (session,) = season.of("killed half-way").sessions
    (held,) = (one for one in read_journal(season.stage.runners["a"].state.journal).sessions if one.id == session)
    assert held.end is not None
    assert held.end["exit_status"] == 2  # its pytest was interrupted once the night was gone
    assert sum(record["record"] == "round" for record in held.records) >= 2


def test_the_forty_nights_are_forty_and_hold_each_fault() -> None:
    nights = forty_nights()
    assert len(nights) == 40
    truths = [truth for night in expected(nights) for truth in night.truths.values()]
    assert set(truths) == set(Truth)
    assert any(one.is_green for one in expected(nights))
