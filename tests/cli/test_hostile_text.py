"""Ids, reasons, hosts and sessions that hold terminal sequences, through every command that shows a journal's text, and
through the table at the end of a run: nothing that a terminal obeys comes out but line breaks and colours of ours."""

from __future__ import annotations

import contextlib
import json
import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest
from reports.served import policy_record

from pytest_npubench.cli.main import main
from pytest_npubench.reports.terminal import render_table, summary_lines
from pytest_npubench.suites import shown

from .option_fuzz import confined, fill

HOSTILE = "x\x1b]0;t\x07\x1b[2J\x9b2J\x00\x7f\r\n::error::##[error]##vso[x][/INST][int8]\u202e\u2066\u200b\u2028\ufeff"
NAME = HOSTILE.replace("/", "").replace("\0", "")
LINES = (
    ("show", "--html", "journal.jsonl", "-o", f"{NAME}.html"),
    ("show", "journal.jsonl"),
    ("show", "journal.jsonl", "--verbose"),
    ("show", "journal.jsonl", "--json"),
    ("show", "journal.jsonl", "--csv"),
    ("show", "journal.jsonl", "--markdown"),
    ("show", "journal.jsonl", "--case", HOSTILE),
    ("profile", "--journal", "clean.jsonl", "--campaign", "cpu-tiny-llama-b1", "-o", f"{NAME}.json"),
    ("history", "upload", "clean.jsonl", "--history", f"{NAME}.db"),
    ("history", "list", "--history", f"{NAME}.db"),
    ("baseline", "accept", "clean.jsonl", "--baselines", NAME),
    ("workloads", f"{NAME}.csv"),
    ("show", "--html", "journal.jsonl", "-o", "made.html"),
    ("profile", "--journal", "journal.jsonl", "--campaign", HOSTILE, "-o", "made.json"),
    ("profile", "--journal", "journal.jsonl", "--campaign", "none", "-o", "made.json"),
    ("predict", "profile.json", "--input-tokens", "100", "--output-tokens", "60"),
    ("baseline", "accept", "journal.jsonl", "--baselines", "fresh"),
    ("baseline", "list"),
    ("baseline", "list", "--json"),
    ("baseline", "show", "bucket128"),
    ("baseline", "show", HOSTILE),
    ("baseline", "reject", HOSTILE),
    ("history", "upload", "journal.jsonl", "--history", "fresh.db"),
    ("history", "list", "--history", "fresh.db"),
    ("history", "list", "--history", "fresh.db", "--json"),
    ("history", "changes", "--history", "fresh.db"),
    ("history", "show", "bucket128", "--history", "fresh.db"),
    ("history", "list", "--history", f"{HOSTILE}.db"),
    ("compare", "journal.jsonl", "journal.jsonl", "--by", "host"),
    ("compare", "journal.jsonl", "clean.jsonl"),
    ("compare", "clean.jsonl", "journal.jsonl", "--metric", HOSTILE),
    ("workloads", HOSTILE),
    ("hardware", HOSTILE),
    ("hardware", "--check", HOSTILE),
    ("probe", HOSTILE),
    ("run", HOSTILE),
    ("partition", "plan", "--profile", "pair.json", "--model", HOSTILE, "--any-fingerprint"),
    (
        "simulate",
        "--hardware",
        HOSTILE,
        "--model",
        "m",
        "--policy",
        "p",
        "--workload",
        "w",
        "--num-requests",
        "1",
        "--rate=1",
    ),
    ("load", "--url", "http://127.0.0.1:9/v1", "--workload", HOSTILE, "--rate", "5"),
    (
        "nightly",
        "restore",
        "--family",
        "tpu",
        "--promote",
        "local",
        "--remote",
        HOSTILE,
        "--output",
        HOSTILE.replace("\0", ""),
    ),
    (HOSTILE,),
)


def obeyed(text: str) -> set[str]:
    return {unicodedata.category(sign) for sign in text.replace("\n", "")} & {"Cc", "Cf", "Cs", "Zl", "Zp"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A journal, and its baselines, in which every name and reason is hostile."""
    folder = tmp_path_factory.mktemp("hostile")
    with confined(folder):
        fill(folder)
        (folder / "clean.jsonl").write_text((folder / "journal.jsonl").read_text(), encoding="utf-8")
        (folder / f"{NAME}.csv").write_text("input_tokens,output_tokens\n1,2\n", encoding="utf-8")
        for path in [folder / "journal.jsonl", *folder.glob("baselines/**/*.json")]:
            lines = (
                map(json.loads, path.read_text().splitlines())
                if path.suffix == ".jsonl"
                else [json.loads(path.read_text())]
            )
            path.write_text("".join(json.dumps(_hostile(line)) + "\n" for line in lines))
        yield folder


def _hostile(value: object) -> object:
    """The same with hostile text behind what is free text."""
    if isinstance(value, dict):
        return {name: _spoilt(name, _hostile(item)) for name, item in value.items()}
    return [_hostile(item) for item in value] if isinstance(value, list) else value


def _spoilt(name: str, value: object) -> object:
    free = ("reason", "host", "name", "driver", "git_revision", "what", "note", "device_class", "id", "node", "text")
    return value + HOSTILE if name in free and isinstance(value, str) else value


@pytest.mark.parametrize("line", LINES, ids=lambda line: " ".join(line[:2]) if line[0].isalpha() else "none")
def test_no_command_prints_what_a_terminal_obeys(
    folder: Path, capsys: pytest.CaptureFixture[str], line: tuple[str, ...]
) -> None:
    with contextlib.suppress(SystemExit):
        main(line)
    captured = capsys.readouterr()
    text = captured.out + captured.err
    assert text
    assert obeyed(text) == set()
    assert not re.search(r"^\s*::|::error|##\w*\[", text, re.MULTILINE)
    if "--json" in line and captured.out:
        json.loads(captured.out)
    assert "Traceback" not in text


@pytest.mark.parametrize("color", [False, True])
def test_the_table_of_a_run_shows_it_as_it_stands(color: bool) -> None:
    record = policy_record("layered")
    name = f"a[/data/model]{HOSTILE}"
    found = {**record, "case": f"scheduling/policy/{name}", "id": name, "what": HOSTILE, "device": f"cpu:{HOSTILE}"}
    found["verdict"] = {**record["verdict"], "reason": HOSTILE}
    text = render_table([found], width=400, color=color, verbose=True) + "\n".join(summary_lines([found], shown))
    assert obeyed(re.sub(r"\x1b\[[0-9;]*m", "", text) if color else text) == set()
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    assert "a[/data/model]" in plain
    assert plain.count("[/INST][int8]") >= 2
    assert not re.search(r"::error|##\w*\[", plain)
