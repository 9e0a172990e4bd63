"""The summary, annotations and outputs of nights made by hand, what is left out, and pull requests that fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from comparison.made_nights import CASES, case_record, metric, stack, write_session
from engines.http.hostile import Answer, Hostile, head, said

from pytest_npubench.nightly.accepting import accept_waiting
from pytest_npubench.nightly.night import STEPS, Night, Step
from pytest_npubench.nightly.publish import Annotation, code_block, code_cell, publish
from pytest_npubench.nightly.pull_request import open_pull_request
from pytest_npubench.nightly.upload import upload
from pytest_npubench.store.history import upload_journal
from pytest_npubench.store.journal import JournalWriter, read_journal


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


def test_a_case_whose_test_failed_after_measuring_is_named(tmp_path):
    path, fingerprint = tmp_path / "journal.jsonl", stack()
    with JournalWriter.open(path, host=fingerprint.host, settings={}) as journal:
        digest = journal.device(fingerprint)
        for case, outcome, reason in ((CASES[0], "passed", None), (CASES[1], "failed", "failed (assert 3 == 4)")):
            journal.append(case_record(digest, case, {"tbt_s": metric([1.0])}))
            about = {"case": case, "device": "cuda:0", "outcome": outcome, "reason": reason}
            journal.append({"record": "outcome", **about})
        journal.append({"record": "end", "exit_status": 1, "counts": {}})
    (night,) = accept_waiting(read_journal(path), (), tmp_path / "baselines")
    assert (night.num_judgeable, night.num_accepted, night.lost, night.is_settled) == (1, 1, (), True)
    assert night.said.endswith(f"left out: {CASES[1]} was measured by a test that failed (assert 3 == 4)")


TOKEN = "ghp-0123456789"


@pytest.fixture
def serve() -> Iterator[Callable[[Answer], Hostile]]:
    servers = []

    def start(answer: Answer) -> Hostile:
        servers.append(Hostile(said(), answer, list_path="/pulls"))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_the_token_goes_to_no_other_address(serve, status):
    other = serve(said(head("200 OK"), b"[]"))
    server = serve(said(head(f"{status} Moved", f"Location: http://127.0.0.1:{other.port}/pulls?key=secret")))
    found = open_pull_request(
        head="topic",
        base="main",
        title="t",
        body="b",
        environment={"GITHUB_REPOSITORY": "o/r", "GITHUB_TOKEN": TOKEN, "GITHUB_API_URL": server.url},
    )
    assert found.url is None
    assert f"HTTP {status}, which redirects to http://127.0.0.1:{other.port}/pulls" in found.said
    assert "secret" not in found.said
    assert [asked.headers["authorization"] for asked in server.asked] == [f"Bearer {TOKEN}"]
    assert other.asked == []
