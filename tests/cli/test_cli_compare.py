"""npubench compare: exit status, what it prints, and one line for what cannot be compared."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from comparison.made_nights import CASES, night, stack, write_nights, write_session
from store.history.made_journals import redated

from pytest_npubench.store.accept_run import accept_run
from pytest_npubench.store.history import upload_journal
from pytest_npubench.store.journal import read_journal

from .conftest import Answer

Run = Callable[..., Answer]
SLOW = CASES[4]


@pytest.fixture
def old(tmp_path: Path) -> Path:
    path = tmp_path / "old.jsonl"
    write_nights(path, 8, seed=1)
    return path


@pytest.fixture
def new(tmp_path: Path) -> Path:
    """One case is 10 % slower, on another driver."""
    path = tmp_path / "new.jsonl"
    write_nights(path, 3, seed=2, planted={SLOW: 1.1}, fingerprint=stack("580.12"))
    return path


@pytest.fixture
def both(tmp_path: Path) -> Path:
    """Eight nights and three, the driver changed in between; one journal."""
    path = tmp_path / "both.jsonl"
    write_nights(path, 8, seed=1)
    write_nights(path, 3, seed=2, planted={SLOW: 1.1}, fingerprint=stack("580.12"))
    redated(path, [f"2026-11-{day:02}T03:00:00+00:00" for day in range(1, 12)])
    return path


def test_the_margin_is_that_of_runs_here_unless_another_is_named(
    call: Run, old: Path, new: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = tmp_path / "pyproject.toml"
    settings.write_text("[tool.pytest.ini_options]\n[tool.npubench]\nmargin = 0.2\n", encoding="utf-8")
    assert call("compare", old, new).status == 0
    assert call("compare", old, new, "--margin", 0.01).status == 1
    settings.write_text("[tool.pytest.ini_options]\n[tool.npubench]\nmargin = 20\n", encoding="utf-8")
    assert "--margin: '20': want a fraction from 0 to below 1, such as 0.01, in the settings of" in call(
        "compare", old, new
    ).err.replace("\n", " ")


def test_a_regression_is_exit_status_1_and_is_said(call: Run, old: Path, new: Path) -> None:
    answer = call("compare", old, new)
    assert (answer.status, answer.err) == (1, "")
    assert f"A  {old} (8 sessions)" in answer.out
    assert "driver 570.86 -> 580.12" in answer.out
    assert "canary kernels: " in answer.out
    assert "regressed (1)" in answer.out
    row = answer.out.partition("regressed (1)")[2].splitlines()[2]
    assert row.split()[0] == SLOW
    assert "x1.1" in row or "x1.09" in row
    assert answer.out.splitlines()[-1].startswith("12 metrics: 1 regressed")
    assert CASES[0] not in answer.out  # what did not change is counted, not listed


def test_no_regression_is_exit_status_0(call: Run, old: Path, tmp_path: Path) -> None:
    same = tmp_path / "same.jsonl"
    write_nights(same, 3, seed=5)
    answer = call("compare", old, same)
    assert answer.status == 0
    assert "nothing that is known" in answer.out
    assert "regressed (" not in answer.out


def test_too_much_undecided_is_exit_status_3(call: Run, tmp_path: Path, new: Path) -> None:
    path = tmp_path / "two.jsonl"
    write_nights(path, 2)
    answer = call("compare", path, new)
    assert answer.status == 3
    assert "12 metrics: 12 no-baseline; 12 of 12 undecided" in answer.out
    assert call("compare", path, new, "--inconclusive-share", 1).status == 0


def test_one_journal_split_by_the_driver(call: Run, both: Path) -> None:
    answer = call("compare", both, "--by", "driver")
    assert answer.status == 1
    assert "A  driver 570.86 (8 sessions)" in answer.out
    assert "B  driver 580.12 (3 sessions)" in answer.out
    assert call("compare", both, both, "--by", "driver").out == answer.out
    turned = call("compare", both, "--by", "driver", "--from", "580.12", "--to", "570.86")
    assert turned.status == 0
    assert "improved (1)" in turned.out


def test_baselines_and_history_are_sides_too(call: Run, both: Path, new: Path, tmp_path: Path) -> None:
    journal = read_journal(both)
    for session in journal.sessions[:8]:
        accept_run(journal, [session], tmp_path / "baselines")
    answer = call("compare", tmp_path / "baselines", new)
    assert answer.status == 1
    assert "B / A" in answer.out
    assert f"A  {tmp_path / 'baselines'} (8 sessions)" in answer.out
    everything = call("compare", tmp_path / "baselines", both)
    assert everything.status == 1
    assert "on both sides, counted in A: 8 sessions" in everything.out
    assert f"B  {both} (3 sessions)" in everything.out
    url = tmp_path / "history.db"
    upload_journal(str(url), journal)
    assert "(8 sessions)" in call("compare", f"history:{url}?driver=570.86", f"history:{url}?driver=580.12").out
    assert "B  driver 580.12 (3 sessions)" in call("compare", f"history:{url}", "--by", "driver").out
    mixed = call("compare", f"history:{url}?driver=570.86", f"{new}@{read_journal(new).sessions[0].id}")
    assert "(1 session)" in mixed.out


def test_json_and_page(call: Run, old: Path, new: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    answer = call("compare", old, new, "--json", "-o", page)
    found = json.loads(answer.out)
    assert answer.status == found["exit_status"] == 1
    assert found["stack"] == ["driver 570.86 -> 580.12"]
    began = [session.header["started_at"] for session in read_journal(old).sessions]
    assert found["a"] == {"label": str(old), "num_sessions": 8, "first_at": min(began), "last_at": max(began)}
    (slow,) = [row for row in found["cases"] if row["verdict"] == "regressed"]
    assert (slow["case"], slow["metric"], slow["unit"], slow["with_suite"]) == (SLOW, "tbt_s", "s", False)
    assert slow["interval"][0] < slow["ratio"] < slow["interval"][1]
    assert slow["ratio"] == pytest.approx(1.1, abs=0.02)
    assert len(found["canaries"]) == 3
    assert found["canary"]["verdict"] == "unchanged"
    assert found["suites"][0]["verdict"] == "unchanged"
    _, _, rest = page.read_text(encoding="utf-8").partition('<ol class="failing"')
    assert f"<li>{SLOW} tbt_s " in rest.partition("</ol>")[0]
    assert "(8 sessions, 20" in page.read_text(encoding="utf-8")
    text = page.read_text(encoding="utf-8")
    assert "all cases (s): unchanged" in text
    assert re.findall(r"<strong>\d+</strong> (\w+)", text)[0] == "regressed"
    assert text.index(">regressed</td>") < text.index(">unchanged</td>")
    assert "No such file" in call("compare", old, new, "--json", "-o", tmp_path / "none" / "p.html").err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{old}"], "one side is compared with itself: name another as B"),
        (["{old}", "{old}"], "one side is compared with itself"),
        (["{old}", "{new}", "--from", "1"], "--from and --to go with one side and one --by PART"),
        (["{old}", "{new}", "--margin", "2"], "'2': want a fraction from 0 to below 1"),
        (["{old}", "{new}", "--margin", "nan"], "'nan': want a fraction"),
        (["{old}", "{new}", "--q", "0"], "'0': want a fraction between 0 and 1"),
        (["{old}", "{new}", "--inconclusive-share", "x"], "'x': want a fraction from 0 to 1"),
        ([], "the following arguments are required: A"),
    ],
)
def test_usage_errors(call: Run, old: Path, new: Path, arguments: list[str], message: str) -> None:
    answer = call("compare", *(text.format(old=old, new=new) for text in arguments))
    assert answer.status == 2
    assert message in answer.err


def test_one_line_for_what_cannot_be_compared(call: Run, old: Path, new: Path, tmp_path: Path) -> None:
    none = tmp_path / "none.jsonl"
    assert f"journal {none}: No such file" in call("compare", none, new).error
    (tmp_path / "empty.jsonl").touch()
    assert "A, " in call("compare", tmp_path / "empty.jsonl", new).error
    assert "no finished session with cases" in call("compare", old, tmp_path / "empty.jsonl").error
    copy = tmp_path / "copy.jsonl"
    copy.write_bytes(old.read_bytes())
    assert "hold the same sessions" in call("compare", old, copy).error
    other = tmp_path / "other.jsonl"
    write_session(
        other, {"buckets/profile/other": {"tbt_s": {"unit": "s", "value": 1.0, "better": "lower", "samples": [1.0]}}}
    )
    assert "no case is on both sides: A has 15 cases, B 1" in call("compare", old, other).error
    assert "every session has driver 570.86" in call("compare", old, "--by", "driver").error
    assert "--by drivr: no such part" in call("compare", old, "--by", "drivr").error
    assert "differ in runtime alone: so does driver" in call("compare", old, new, "--by", "runtime").error
    assert "--metric x: neither side has it" in call("compare", old, new, "--metric", "x").error
    (tmp_path / "damaged.jsonl").write_text("{}\n")
    assert "is not a journal" in call("compare", tmp_path / "damaged.jsonl", new).error


def test_names_from_journals_are_no_markup(call: Run, tmp_path: Path) -> None:
    """rich reads [red] as a colour; a case may be called so."""
    rng = np.random.default_rng(0)
    paths = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    for path, factor in zip(paths, (1.0, 1.3), strict=True):
        for _ in range(4):
            write_session(path, night(rng, cases=["own/callable/[red]test[/red]"], planted={"": factor}))
    answer = call("compare", *paths)
    assert answer.status == 1
    assert "own/callable/[red]test[/red]" in answer.out
