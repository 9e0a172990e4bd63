"""npubench show --html: which session it takes, and what it says where it cannot."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from reports.journals import judge, make_fingerprint, make_plan, measure, open_journal, write_run
from reports.page import read, rows

from .conftest import Answer

Run = Callable[..., Answer]


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
    assert (
        "no session has cases; sessions with cases: none"
        in call("show", "--html", tmp_path / "empty.jsonl", "-o", target).error
    )
    path = tmp_path / "journal.jsonl"
    write_run(path, measure(make_plan()))
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
