"""JSON, TOML and CSV of others: whatever stands in a file, each reader names the file and says what is wrong."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pytest_npubench
from pytest_npubench.core.documents import MAX_DEPTH, csv_rows, json_value, toml_table
from pytest_npubench.engines.hf_config import read_config
from pytest_npubench.errors import NpubenchError
from pytest_npubench.extensions.pairs.partition.profile_file import read_profile
from pytest_npubench.extensions.planning.cli import search_results
from pytest_npubench.extensions.planning.cli.search_buckets import _costs
from pytest_npubench.extensions.planning.measured_run import measured_run
from pytest_npubench.extensions.planning.virtual.cost_file import read_cost_file
from pytest_npubench.extensions.planning.virtual.table import read_table
from pytest_npubench.nightly.state import StateFolder
from pytest_npubench.plugin.settings import _table
from pytest_npubench.store.journal import read_journal
from pytest_npubench.suites.hardware_files import load_hardware
from pytest_npubench.workloads.loading import load

WIDE = "x" * 200_000
HOSTILE = {
    "lists in lists": "[" * 100_000,
    "objects in objects": '{"a":' * 100_000,
    "closed": "[" * 5_000 + "]" * 5_000,
    "in an object": '{"format": ' + "[" * 400 + "]" * 400 + "}",
    "a wide cell": f"prefill_tokens,decode_rows,context_tokens,seconds\n1,2,3,{WIDE}\n",
    "a wide name": f"{WIDE},b\n1,2\n",
    "tables in tables": f"[{'a.' * 5_000}b]\nc = 1\n",
    "keys in keys": f"{'a.' * 5_000}b = 1\n",
    "inline": "a = " + "{b = " * 3_000,
    "many digits": '{"format": ' + "9" * 10_000 + "}",
    "no text": "\udcff\udcfe",
    "signs": '\0\x1b[2J\n"',
}


def _of_state(path: Path) -> object:
    path.rename(path.with_name("state.json"))
    return StateFolder(path=path.parent).read()


READERS = {
    "hardware.toml": load_hardware,
    "pyproject.toml": _table,
    "cost.json": read_cost_file,
    "cost.csv": lambda path: read_table(path, 4),
    "requests.jsonl": measured_run,
    "run.json": measured_run,
    "costs.csv": _costs,
    "results.jsonl": search_results.read,
    "pair.json": read_profile,
    "config.json": read_config,
    "trace.csv": load,
    "trace.jsonl": load,
    "trace.json": load,
    "state": _of_state,
    "journal.jsonl": read_journal,
}


@pytest.mark.parametrize("what", HOSTILE)
@pytest.mark.parametrize("name", READERS)
def test_a_hostile_text_is_an_error_of_ours_that_names_the_file(name: str, what: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(HOSTILE[what].encode("utf-8", "surrogateescape") + b"\n")
    with pytest.raises((NpubenchError, pytest.UsageError)) as caught:
        READERS[name](path)
    assert str(tmp_path) in str(caught.value)
    assert len(str(caught.value)) < 2_000


values = st.recursive(
    st.none() | st.integers() | st.text('a[{"\\]}'),
    lambda inner: st.lists(inner) | st.dictionaries(st.text("b["), inner),
)


@given(values, st.integers(0, 2 * MAX_DEPTH))
def test_json_is_refused_by_its_depth_alone(value: object, num_levels: int) -> None:
    for _ in range(num_levels):
        value = [value]
    if _depth(value) <= MAX_DEPTH:
        assert json_value(json.dumps(value)) == json_value(json.dumps(value).encode()) == value
    else:
        with pytest.raises(ValueError, match="nested deeper than 32 levels"):
            json_value(json.dumps(value))


def _depth(value: object) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(_depth, inner), default=0)


@pytest.mark.parametrize("num_keys", [MAX_DEPTH, MAX_DEPTH + 1, 3_000])
def test_toml_is_refused_by_its_depth(num_keys: int) -> None:
    text = f"{'a.' * (num_keys - 1)}a = 1"
    if num_keys <= MAX_DEPTH:
        assert toml_table(text)["a"]
    else:
        with pytest.raises(ValueError, match="nested deeper than 32 levels"):
            toml_table(text)


def test_a_wide_cell_is_named_by_its_line() -> None:
    with pytest.raises(ValueError, match=r"^line 2: no valid CSV: field larger than"):
        list(csv_rows(["a,b\n", f"{WIDE},1\n"]))


def test_no_file_is_parsed_past_it() -> None:
    package = Path(pytest_npubench.__file__).parent
    parsing = re.compile(r"json\.load\(|json\.loads\(.*(read_text|read_bytes)|tomllib\.|csv\.(reader|DictReader)\(")
    parsers = {path.name for path in package.rglob("*.py") if parsing.search(path.read_text(encoding="utf-8"))}
    assert parsers == {
        "documents.py",
        "sharegpt.py",  # 0.7 GB, of which a copy is too much; its error is named there
        "sessions.py",  # what a vendor's compiler has just written
    }
