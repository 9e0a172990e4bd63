"""npubench show: the table of a run out of its journal, one case of it, and its other forms."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_npubench.reports import html
from pytest_npubench.reports.case_lines import case_json
from pytest_npubench.reports.terminal import render_run
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
