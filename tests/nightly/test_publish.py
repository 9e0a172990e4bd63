"""The summary, annotations and outputs of nights made by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from comparison.made_nights import metric, write_session

from pytest_npubench.nightly.night import STEPS, Night, Step
from pytest_npubench.nightly.publish import Annotation, code_block, code_cell, publish
from pytest_npubench.nightly.upload import upload
from pytest_npubench.store.history import upload_journal
from pytest_npubench.store.journal import read_journal


def test_green_is_all_steps_done(night: Night) -> None:
    for name in STEPS:
        assert not publish(night, {}).is_green
        night.record(Step(name=name, outcome="done", lines=("fine",)))
    assert publish(night, {}).is_green
    assert (night.out / "summary.md").read_text().startswith("## Nightly tpu: green\n")


def test_a_step_that_never_ran_is_an_error(night: Night) -> None:
    for name in STEPS[:2]:
        night.record(Step(name=name, outcome="done", lines=("fine",)))
    done = publish(night, {})
    assert [str(one) for one in done.annotations] == [
        "error: nightly measure: did not run, or was killed",
        "error: nightly promote: did not run, or was killed",
        "error: nightly upload: did not run, or was killed",
        "error: nightly site: did not run, or was killed",
    ]


@pytest.mark.parametrize(("outcome", "is_green"), [("done", True), ("warning", True), ("failed", False)])
def test_a_warning_is_green(night: Night, outcome: str, is_green: bool) -> None:
    for name in STEPS:
        night.record(Step(name=name, outcome=outcome if name == "promote" else "done", lines=("a | b", "c")))
    assert publish(night, {}).is_green is is_green
    assert "| a \\| b; c |" in (night.out / "summary.md").read_text()


def test_outputs_are_one_line_each(night: Night, tmp_path: Path) -> None:
    facts = {"where": "branch x\nat 1", "num_accepted": 3, "pull_request": None}
    night.record(Step(name="promote", outcome="done", lines=("fine",), facts=facts))
    publish(night, {"GITHUB_OUTPUT": str(tmp_path / "outputs")})
    assert (tmp_path / "outputs").read_text().splitlines() == [
        "green=false",
        f"out={night.out}",
        "where=branch x at 1",
        "num_accepted=3",
    ]


def test_what_others_wrote_is_text_to_github(night: Night, tmp_path: Path) -> None:
    foreign = "x\x1b[2J\n::error::y `a` | <img src=x> [b](http://c) @d"
    night.record(Step(name="measure", outcome="failed", lines=(foreign,), facts={"where": foreign}))
    shown = publish(night, {"GITHUB_OUTPUT": str(tmp_path / "outputs")}).annotations[0]
    assert shown.command() == (
        "::error title=nightly measure::x\\x1b[2J%0A\\u003a:error::y `a` | <img src=x> [b](http://c) @d"
    )
    assert str(shown).count("\n") == 0
    (row,) = (line for line in (night.out / "summary.md").read_text().splitlines() if line.startswith("| measure"))
    assert row == (r"| measure | **failed** | x\\x1b\[2J \\u003a:error::y \`a\` \| \<img src=x\> \[b\](http://c) @d |")


def test_code_ends_where_it_is_meant_to() -> None:
    assert code_cell("a[b]") == "`a[b]`"
    assert code_cell("a`b``|c") == "``` a`b``\\|c ```"
    assert code_block(["@ann", "```", "a\nb"]) == "````text\n@ann\n```\na b\n````"


def test_an_annotation_keeps_its_signs_apart() -> None:
    """As GitHub's toolkit escapes them: % CR LF in the text, : and , too in a property."""
    made = Annotation(level="error", title="a,b:c%", text="50 %\nmore: x, y", file="suites/x.py")
    assert made.command() == "::error file=suites/x.py,title=a%2Cb%3Ac%25::50 %25%0Amore: x, y"
    assert Annotation(level="warning", title="t", text="x").command() == "::warning title=t::x"


def test_what_is_in_doubt_among_the_parts_of_a_night_is_said(night: Night, tmp_path: Path) -> None:
    """Another runner's part is in the history already."""
    history, other = str(tmp_path / "history.db"), tmp_path / "other.jsonl"
    write_session(other, {"s/k/two": {"tbt_s": metric([1.0], verdict={"kind": "unchanged", "reason": ""})}})
    upload_journal(history, read_journal(other))
    night.state.path.mkdir()
    red = {"kind": "regressed", "reason": "", "alarms_among": 1}
    write_session(night.state.journal, {"s/k/one": {"tbt_s": metric([1.0], verdict=red)}}, verdict=red)
    upload(night, history)
    publish(night, {})
    assert "in doubt: s/k/one" in (night.out / "summary.md").read_text(encoding="utf-8").replace("\\", "")
