"""npubench show: the table of a run out of its journal, one case of it, and its other forms, the page among them."""

from __future__ import annotations

import csv
import io
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from reports.journals import judge, make_fingerprint, make_plan, measure, open_journal, write_run
from reports.page import read, rows

from pytest_npubench.core.run_folders import baselines_of
from pytest_npubench.reports import html
from pytest_npubench.reports.case_lines import case_json
from pytest_npubench.reports.terminal import render_run
from pytest_npubench.store.baselines import Baselines
from pytest_npubench.store.journal_reader import read_journal
from pytest_npubench.store.journal_runs import chosen_sessions
from pytest_npubench.suites import shown

from .conftest import Answer

Run = Callable[..., Answer]


def test_it_is_the_text_of_the_runs_end(journal: Path, call: Run) -> None:
    sessions = chosen_sessions(read_journal(journal), None)
    records = [record for one in sessions for record in one.records if record["record"] == "case"]
    for options, verbosity in (((), 0), (("-q",), -1), (("--verbose",), 1)):
        text = render_run(records, shown, journal=journal, width=160, color=False, verbosity=verbosity)
        assert call("show", journal, *options).out.startswith(f"{text}next:\n")


def test_baselines_are_those_of_the_runs_that_write_the_journal(
    journal: Path, call: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "runs" / ".npubench").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    copied = Path(shutil.copy(journal, tmp_path / "runs" / ".npubench" / "journal.jsonl"))
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert baselines_of(copied) == Path("../runs/baselines")
    assert baselines_of(journal) is None
    asked: list[Path] = []
    monkeypatch.setattr(Baselines, "load", lambda path, **_: asked.append(path))
    assert call("show", copied, "--html", "-o", "page.html").status == 0
    assert asked == [Path("../runs/baselines")]


def test_a_case_by_its_key_its_id_and_its_name_in_the_table(journal: Path, call: Run) -> None:
    lines = list(csv.DictReader(io.StringIO(call("show", journal, "--csv").out)))
    one = lines[-1]
    texts = {call("show", journal, "--case", name).out for name in (one["case"], one["name"])}
    assert len(texts) == 1
    assert one["case"] in next(iter(texts))
    assert {row["case"] for row in call("show", journal, "--json", "--case", one["name"]).json} == {one["case"]}
    assert len({line["name"] for line in lines}) == len({line["case"] for line in lines})


def test_the_other_forms_have_every_case(journal: Path, call: Run) -> None:
    keys = {row["case"] for row in call("show", journal, "--json").json}
    assert len(keys) == 9
    names = {row["name"] for row in call("show", journal, "--json").json}
    markdown = call("show", journal, "--markdown").out.replace("\\", "")
    assert all(f"| {name} |" in markdown for name in names)


@pytest.mark.parametrize(
    ("wanted", "said"),
    [("profil/bucket4", "; did you mean 'buckets/profile/cpu-tiny-llama-b"), ("profile", "may be buckets/profile/")],
)
def test_a_case_that_is_not_there_or_not_one(journal: Path, call: Run, wanted: str, said: str) -> None:
    assert said in call("show", journal, "--case", wanted).error


def test_what_a_case_did_is_shown_in_full_views(journal: Path) -> None:
    found = read_journal(journal)
    first, *others = [record for record in found.records if record["record"] == "case"]
    records = [{**first, "work": {"decode steps": 33, "FLOP": 1.25e12}}, *others]
    words = "decode steps 33, FLOP 1.25e+12"
    brief, full = (
        render_run(records, shown, journal=journal, width=160, color=False, verbosity=number) for number in (0, 1)
    )
    assert words not in brief
    assert full.count(f"did: {words}") == full.count("did:") == 1
    assert next(row["work"] for row in json.loads(case_json(records)) if row["case"] == first["case"]) == words
    assert html.render_html(records, found, shown).count(f"<summary>did</summary>{words}</details>") == 1


def test_no_colour_reaches_a_pipe(journal: Path, call: Run) -> None:
    assert "\x1b" not in call("show", journal).out


def _ids(path: Path) -> set[str]:
    page = read(path.read_text(encoding="utf-8"))
    return {row[0] for row in rows(page.all("table")[0])[1:]}


def test_the_latest_session_with_cases(journal: Path, call: Run, tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    answer = call("show", "--html", journal, "-o", target)
    assert answer.status == 0
    assert answer.out.startswith(f"wrote {target}: 9 cases of session ")
    assert all("-b4" in name for name in _ids(target))


def test_a_session_without_cases_is_passed_over(call: Run, tmp_path: Path) -> None:
    path, target = tmp_path / "journal.jsonl", tmp_path / "report.html"
    session = write_run(path, measure(make_plan()))
    with open_journal(path) as writer:
        empty = writer.session
    assert session in call("show", "--html", path, "-o", target).out
    error = call("show", "--html", path, "-o", target, "--session", empty).error
    assert f"no session {empty!r} has cases; sessions with cases: {session}" in error


def test_a_session_by_its_id(call: Run, tmp_path: Path) -> None:
    path, target = tmp_path / "journal.jsonl", tmp_path / "report.html"
    first = write_run(path, measure(make_plan(1)))
    write_run(path, measure(make_plan(4)))
    assert call("show", "--html", path, "-o", target, "--session", first).status == 0
    assert all("-b1" in name for name in _ids(target))


def test_the_workers_of_one_run_are_one_report(call: Run, tmp_path: Path) -> None:
    """gw0 and gw1 write at the same time; an earlier gw1 had ended before."""
    path, target = tmp_path / "journal.jsonl", tmp_path / "report.html"
    write_run(path, measure(make_plan(2)), worker="gw1")
    with open_journal(path, "gw0", "run") as left, open_journal(path, "gw1", "run") as right:
        sides = [(left, judge_with(left, 1)), (right, judge_with(right, 4))]
        for one, other in zip(*(records for _, records in sides), strict=True):
            left.append({"record": "case", **one})
            right.append({"record": "case", **other})
    answer = call("show", "--html", path, "-o", target)
    assert "18 cases" in answer.out
    assert {name.split("-")[3] for name in _ids(target)} == {"b1", "b4"}


def judge_with(writer: object, batch_size: int) -> list[dict[str, object]]:
    digest = writer.device(make_fingerprint())  # type: ignore[attr-defined]
    return [judged.to_json() for judged in judge(measure(make_plan(batch_size)), fingerprint=digest)]


def test_what_cannot_be_reported(call: Run, tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    assert "No such file" in call("show", "--html", tmp_path / "none.jsonl", "-o", target).error
    (tmp_path / "empty.jsonl").touch()
    assert call("show", "--html", tmp_path / "empty.jsonl", "-o", target).error.endswith("no session has cases\n")
    path = tmp_path / "journal.jsonl"
    write_run(path, measure(make_plan()))
    (tmp_path / "cut.jsonl").write_bytes(path.read_bytes()[:1500])
    assert "no session has cases; line " in call("show", tmp_path / "cut.jsonl").error
    assert "their writer was killed" in call("show", tmp_path / "cut.jsonl").error
    assert (
        f"{tmp_path / 'none' / 'r.html'}: No such file"
        in call("show", "--html", path, "-o", tmp_path / "none" / "r.html").error
    )
    assert f"{tmp_path}: Is a directory" in call("show", "--html", path, "-o", tmp_path).error
    assert not target.exists()


def test_without_the_extra_it_says_what_to_install(
    journal: Path, call: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "pytest_npubench.reports.html", raising=False)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    error = call("show", "--html", journal, "-o", tmp_path / "report.html").error
    assert "jinja2 is not installed: pip install pytest-npubench[report]" in error
