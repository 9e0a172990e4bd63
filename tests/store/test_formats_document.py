"""docs/formats.md shows what the store reads: its examples are read back, and its versions are today's."""

import re
from dataclasses import MISSING, fields
from pathlib import Path

import pytest

from pytest_npubench.store import aliases, baseline_format, journal_format
from pytest_npubench.store.baselines import Baselines
from pytest_npubench.store.journal import read_journal
from pytest_npubench.store.json_text import decode, layout

DOCUMENT = (Path(__file__).parents[2] / "docs" / "formats.md").read_text(encoding="utf-8")


def examples(language):
    return re.findall(rf"```{language}\n(.*?)```", DOCUMENT, flags=re.DOTALL)


def test_the_journal_example_shows_every_kind_and_is_read(tmp_path):
    path = tmp_path / "journal.jsonl"
    path.write_text(*examples("jsonl"))
    journal = read_journal(path)
    (session,) = journal.sessions
    assert {"session", *(record["record"] for record in session.records)} == journal_format.KINDS.keys()
    (device,) = (record for record in session.records if record["record"] == "device")
    assert journal.fingerprint(device["digest"]).digest() == device["digest"]
    assert len(journal.rounds("h200-tiny-b4", "9b74c9897bac", device["digest"])) == 1
    assert len(journal.cases(device["digest"])) == 1


def test_the_baseline_example_is_a_file_as_we_write_it(tmp_path):
    text = next(text for text in examples("json") if '"aliases"' not in text)
    content = decode(text.encode())
    assert layout(content) + "\n" == text
    file = baseline_format.BaselineFile.from_json(content)
    path = tmp_path / file.relative_path
    path.parent.mkdir()
    path.write_text(text)
    (case,) = file.cases
    assert Baselines.load(tmp_path).sessions(case, "tbt_s", file.key, digest=file.cases[case].digest) == [
        [[0.00211, 0.00209, 0.0021], [0.00213, 0.00212, 0.00212]]
    ]


def test_the_example_of_aliases_is_a_file_as_we_write_it():
    text = next(text for text in examples("json") if '"aliases"' in text)
    read = aliases.Aliases.from_json(decode(text.encode()))
    assert len(read.entries) == 1
    assert layout(read.to_json()) + "\n" == text


@pytest.mark.parametrize("kind", list(journal_format.KINDS))
def test_the_document_names_every_required_field(kind):
    (row,) = re.findall(rf"^\| `{kind}` \| (.*) \|$", DOCUMENT, flags=re.MULTILINE)
    required = {field.name for field in fields(journal_format.KINDS[kind]) if field.default is MISSING}
    assert required <= set(re.findall(r"`(\w+)`", row))


@pytest.mark.parametrize("written", [journal_format, baseline_format, aliases])
def test_the_document_names_the_version_written(written):
    assert f"`{written.FORMAT}`, version {written.VERSION}\n" in DOCUMENT
