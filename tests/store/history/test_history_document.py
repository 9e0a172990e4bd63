"""docs/formats.md names every table and column, and the version that is written."""

import re
from pathlib import Path

import pytest

from pytest_npubench.store.history import schema

DOCUMENT = (Path(__file__).parents[3] / "docs" / "formats.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("table", list(schema.METADATA.tables))
def test_every_column_of_a_table(table):
    (row,) = re.findall(rf"^\| `{table}` \| (.*) \|$", DOCUMENT, flags=re.MULTILINE)
    assert re.findall(r"`(\w+)`", row) == list(schema.METADATA.tables[table].columns.keys())


def test_the_version_is_the_one_written():
    assert f"## The history: schema, version {schema.VERSION}\n" in DOCUMENT
