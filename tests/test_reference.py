"""The reference of the site is written from the code (docs/reference.py): nothing that users can name is missing."""

from __future__ import annotations

import re
import runpy
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from pytest_npubench.plugin.options import GONE

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parent.parent
HARDWARE = sorted((ROOT / "hardware").glob("*.toml"))


@pytest.fixture(scope="module")
def pages() -> Iterator[Mapping[str, str]]:
    with pytest.MonkeyPatch.context() as environment:
        for name in ("COLUMNS", "NO_COLOR", "TERM"):  # the script sets them
            environment.setenv(name, "100")
        made = runpy.run_path(str(ROOT / "docs" / "reference.py"))["pages"]()
        yield {name.removeprefix("reference/").removesuffix(".md"): text for name, text in made.items()}


def _keys(table: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """The dotted keys of a file; `[]` is an entry of a list of tables."""
    for name, value in table.items():
        dotted = f"{above}.{name}" if above else name
        if isinstance(value, dict):
            yield from _keys(value, dotted)
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            for entry in value:
                yield from _keys(entry, f"{dotted}[]")
        elif value is not False:  # nothing in place of what the file that it is like has
            yield dotted


def _rows(page: str) -> set[str]:
    """What stands in the first column."""
    return set(re.findall(r"^\| `([^`]+)`", page, re.MULTILINE))


@pytest.mark.parametrize("path", HARDWARE, ids=lambda path: path.stem)
def test_every_key_of_a_shipped_hardware_file_has_its_row(path: Path, pages: Mapping[str, str]) -> None:
    rows = _rows(pages["hardware-keys"])
    patterns = [re.escape(row).replace("NAME", r"[\w-]+") for row in rows]
    for key in _keys(tomllib.loads(path.read_text(encoding="utf-8"))):
        # a key of a table such as max_batch_size is a name of the user's own
        assert any(re.fullmatch(pattern, key) or re.fullmatch(rf"{pattern}\.[\w.-]+", key) for pattern in patterns), key


def test_every_command_that_is_described_has_its_help(pages: Mapping[str, str]) -> None:
    described = re.findall(r"^## (npubench \w+)", (ROOT / "docs" / "cli.md").read_text(encoding="utf-8"), re.MULTILINE)
    helped = re.findall(r"^## (npubench .+)", pages["commands"], re.MULTILINE)
    assert len(described) > 10
    assert set(described) <= set(helped)
    assert {"npubench baseline accept", "npubench nightly run"} <= set(helped)
    assert len(helped) == len(set(helped))


def test_every_test_of_the_suites_has_its_row(pages: Mapping[str, str]) -> None:
    named = set(re.findall(r"^def (test_\w+)", "".join(p.read_text() for p in (ROOT / "suites").rglob("*.py")), re.M))
    assert _rows(pages["tests"]) == named
    assert "| `test_steps` | Latency steps where the declared buckets say" in pages["tests"]


def test_every_option_and_marker_has_its_row(pages: Mapping[str, str], pytestconfig: pytest.Config) -> None:
    flags = {name.split()[0] for name in _rows(pages["options"])}
    known = {name for name in vars(pytestconfig.option) if name.startswith("npubench_")}
    known -= {f"npubench_{name}" for name in GONE}
    assert flags == {f"--{name.replace('_', '-')}" for name in known}
    markers = {line.split(":")[0] for line in pytestconfig.getini("markers")}
    ours = _rows(pages["markers"])
    assert {"cpu", "cuda", "tpu", "gpu", "npu", "buckets", "scheduling", "server"} <= ours & markers


def test_metrics_have_names_units_and_definitions(pages: Mapping[str, str]) -> None:
    text = pages["metrics"]
    rows = _rows(text)
    assert {"slo_attainment", "ttft_{mean,p50,p90,p95,p99}_s", "prediction_error", "regret"} <= rows
    assert "| `e2e_s` | s | lower | `ratio` |" in text
    assert "requests that attain their SLO / seconds of the run" in text


def test_every_page_of_the_folder_is_in_the_navigation() -> None:
    config = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    named = set(re.findall(r"^ +- (?:[\w ]+: )?([\w/-]+\.md)$", config, re.MULTILINE))
    there = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    assert there <= named
    assert {name for name in named - there if "/" not in name} == {"index.md", "contributing.md", "changelog.md"}
