"""Completion, did-you-mean and `--json`, over all commands that the parser has."""

from __future__ import annotations

import argparse
import ast
import errno
import io
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from reports.journals import make_plan, measure, write_run

from pytest_npubench.cli import main as cli

from .conftest import Answer
from .option_fuzz import commands
from .test_cli_main import NAMES, SCRIPT

Run = Callable[..., Answer]
WORDS = sorted(
    {command.words for command in commands()} - {("run",), ("preflight",)}
)  # what they are given is pytest's


@pytest.mark.parametrize("name", NAMES)
def test_a_mistyped_command_is_answered_with_the_nearest(name: str, call: Run) -> None:
    answer = call(f"{name}x")
    assert answer.status == 2
    assert answer.err.rstrip().endswith(f"did you mean {name!r}?")


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
def test_an_unknown_option_is_answered_with_the_nearest(words: tuple[str, ...]) -> None:
    parser = cli.make_parser()
    for action in [action for command in commands() if command.words == words for action in command.actions]:
        if action.option_strings:
            option = action.option_strings[-1]
            typed = f"{option}x"
            assert f"did you mean {option!r}?" in _nearest(parser, words, typed)


def test_the_help_of_every_command_fits_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """An example that is broken is the same command to a shell."""
    monkeypatch.setenv("COLUMNS", "80")
    for parser in _parsers(cli.make_parser()):
        text = parser.format_help()
        assert max(map(len, text.splitlines())) <= 80, text
        example = text.rpartition("\nexample: ")[2]
        assert parser.epilog is not None
        assert parser.epilog.rpartition("example: ")[0] in text  # exit statuses stand as they were written
        whole = shlex.split(parser.epilog.rpartition("example: ")[2])
        assert shlex.split(example.replace(" \\\n", " ")) == whole
        assert " ".join(whole).startswith(parser.prog)
        cli.make_parser().parse_args(whole[1:])


def test_no_command_line_takes_a_shortened_option() -> None:
    """Those of `npubench` by their parsers, and of every other program of the checkout by its source."""
    assert not [parser.prog for parser in _parsers(cli.make_parser()) if parser.allow_abbrev]
    root = Path(cli.__file__).parents[2]
    calls = [
        (path, call)
        for folder in ("pytest_npubench", "benchmarks", "docs", ".ci")
        for path in (root / folder).rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("argparse.ArgumentParser")
    ]
    assert len(calls) > 10
    shortens = [path.name for path, call in calls if "allow_abbrev=False" not in ast.unparse(call)]
    assert not shortens


def _parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """It and all below it."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                yield from _parsers(child)


def _nearest(parser: object, words: tuple[str, ...], typed: str) -> str:
    for word in words:
        (choices,) = (action.choices for action in parser._actions if isinstance(action.choices, dict))  # type: ignore[attr-defined]
        parser = choices[word]
    return parser._meant([typed])  # type: ignore[attr-defined, no-any-return]


def test_the_hint_stands_in_the_error(call: Run) -> None:
    assert "--jsno; did you mean '--json'?" in call("probe", "--jsno").err
    assert "did you mean" not in call("probe", "--zzzzzzzz").err


@pytest.mark.parametrize("shell", cli.SHELLS)
def test_the_completion_script_is_printed_as_it_is(shell: str, call: Run) -> None:
    from argcomplete.shell_integration import shellcode

    assert call("--print-completion", shell).out == shellcode(["npubench"], shell=shell) + "\n"


@pytest.mark.parametrize(
    ("line", "wanted"),
    [("npubench ", set(NAMES)), ("npubench baseline an", {"anchor"}), ("npubench probe --js", {"--json"})],
)
def test_a_shell_is_told_what_may_follow(line: str, wanted: set[str], tmp_path: Path) -> None:
    told = tmp_path / "told"
    asked = {
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(told),
        "_ARGCOMPLETE_IFS": "\n",
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
    }
    subprocess.run([sys.executable, "-c", SCRIPT], env=os.environ | asked, check=True, timeout=60)
    assert wanted <= {word.strip() for word in told.read_text().split("\n")}


def test_completion_is_imported_only_for_a_shell() -> None:
    source = "import sys, pytest_npubench.plugin\nfrom pytest_npubench.cli.main import main; main(['hardware']);"
    done = subprocess.run(
        [sys.executable, "-c", source + "print('argcomplete' in sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "False"


JOURNAL, OUT = "JOURNAL", "OUT"


@pytest.mark.parametrize(
    ("line", "format_name"),
    [
        (("workloads",), "npubench-workloads"),
        (("workloads", "lens-sharegpt"), "npubench-workload"),
        (("hardware",), "npubench-hardware"),
        (("hardware", "cpu"), "npubench-hardware-file"),
        (("hardware", "cpu", "--fit"), "npubench-hardware-fit"),
        (("profile", "--journal", JOURNAL, "--campaign", "cpu-tiny-llama-b1", "-o", OUT), "npubench-profile-written"),
        (("baseline", "accept", JOURNAL, "--baselines", OUT), "npubench-baseline-accepted"),
        (("journal", "check", JOURNAL), "npubench-journal-check"),
        (("probe", "cpu"), "npubench-probe"),
        (("history", "upload", JOURNAL, "--history", f"{OUT}.db"), "npubench-history-uploaded"),
    ],
    ids=lambda item: " ".join(item[:2]) if isinstance(item, tuple) else "",
)
def test_a_document_names_its_format(
    line: tuple[str, ...], format_name: str, call: Run, journal: Path, tmp_path: Path
) -> None:
    real = [word.replace(JOURNAL, str(journal)).replace(OUT, str(tmp_path / "out")) for word in line]
    document = call(*real, "--json").json
    assert (document["format"], document["version"]) == (format_name, 1)
    assert format_name in (Path(__file__).parents[2] / "docs" / "command-documents.md").read_text(encoding="utf-8")


def test_all_but_run_and_nightly_print_json() -> None:
    without = {
        command.words
        for command in commands()
        if not any("--json" in action.option_strings for action in command.parser._actions)
    }
    assert {words[0] for words in without} == {"demo", "run", "preflight", "nightly", "selfcheck"}


@pytest.mark.parametrize(
    "line",
    [
        ("show", "--html", JOURNAL, "-o", JOURNAL),
        ("compare", OUT, JOURNAL, "-o", JOURNAL),
        ("compare", f"{JOURNAL}@some-session", OUT, "-o", JOURNAL),
        ("compare", OUT, f"history:{JOURNAL}?driver=1", "-o", JOURNAL),
        ("show", "--trace", JOURNAL, "-o", JOURNAL),
        ("profile", "--journal", JOURNAL, "--campaign", "cpu-tiny-llama-b1", "-o", JOURNAL),
    ],
    ids=lambda line: " ".join(line[:3]),
)
@pytest.mark.parametrize("linked", [False, True])
def test_what_is_read_is_not_written_over(
    line: tuple[str, ...], linked: bool, call: Run, journal: Path, tmp_path: Path
) -> None:
    copy, link = tmp_path / "copy.jsonl", tmp_path / "link"
    copy.write_bytes(journal.read_bytes())
    link.symlink_to(copy)
    *words, output = (word.replace(JOURNAL, str(copy)).replace(OUT, str(journal)) for word in line)
    error = call(*words, link if linked else output).error
    assert "is the file that is read; want another one to write" in error
    assert copy.read_bytes() == journal.read_bytes()


@pytest.mark.parametrize(
    "line",
    [
        ("show", "--html", JOURNAL),
        ("compare", JOURNAL, OUT),
        ("show", "--trace", JOURNAL),
        ("profile", "--journal", JOURNAL, "--campaign", "cpu-tiny-llama-b1"),
    ],
    ids=lambda line: " ".join(line[:3]),
)
def test_a_failed_write_keeps_what_was_there(
    line: tuple[str, ...], call: Run, journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    precious = tmp_path / "precious"
    precious.write_text("precious", encoding="utf-8")
    write_run(tmp_path / "other.jsonl", measure(make_plan(1)))
    monkeypatch.setattr(os, "fsync", full)
    names = {JOURNAL: str(journal), OUT: str(tmp_path / "other.jsonl")}
    answer = call(*(names.get(word, word) for word in line), "-o", precious)
    assert (answer.status, answer.err) == (1, f"npubench: error: {precious}: No space left on device\n")
    assert precious.read_text(encoding="utf-8") == "precious"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other.jsonl", "precious"]


BASELINES = ("--baselines", OUT)
SESSION = "SESSION"
CASE = "buckets/profile/cpu-tiny-llama-b4-bucket128"


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        (("hardware", "nvidia-h20"), "nvidia-h200"),
        (("hardware", "nvidia-h20", "--fit"), "nvidia-h200"),
        (("workloads", "lens-sharegp"), "lens-sharegpt"),
        (("run", "bucket"), "buckets"),
        (("probe", "cuba"), "cuda"),
        (("show", JOURNAL, "--case", "profile/b4-bucket1288"), CASE),
        (("show", JOURNAL, "--session", f"{SESSION}0"), SESSION),
        (("show", "--html", JOURNAL, "-o", "page.html", "--session", f"{SESSION}0"), SESSION),
        (("show", "--trace", JOURNAL, "-o", "trace.json", "--session", f"{SESSION}0"), SESSION),
        (("compare", f"{JOURNAL}@{SESSION}0", JOURNAL), SESSION),
        (("baseline", "accept", JOURNAL, "--session", f"{SESSION}0", *BASELINES), SESSION),
        (("baseline", "show", "profile/b4-bucket1288", *BASELINES), CASE),
        (("baseline", "reset", "profile/b4-bucket1288", "--reason", "x", *BASELINES), CASE),
        (("baseline", "reset", CASE, "--reason", "x", "--hardware", "cpuu", *BASELINES), "cpu"),
        (("baseline", "anchor", "--newest", "1", "--case", f"{CASE}8", *BASELINES), CASE),
        (("baseline", "anchor", f"{SESSION}0", *BASELINES), SESSION),
        (("baseline", "reject", f"{SESSION}0", *BASELINES), SESSION),
        (("history", "show", "profile/b4-bucket1288", "--history", f"{OUT}.db"), CASE),
        (("history", "show", CASE, "--metric", "tbt", "--history", f"{OUT}.db"), "tbt_s"),
        (("profile", "--journal", JOURNAL, "--campaign", "cpu-tiny-llama-b44", "-o", "p.json"), "cpu-tiny-llama-b4"),
        (("predict", "profile.json", "--input-tokens", "1", "--output-tokens", "2", "--predictor", "liner"), "linear"),
        (("partition", "profile", "--model", "internlm-1.8", "-o", "pair.json"), "internlm-1.8b"),
    ],
    ids=lambda item: " ".join(item[:3]) if isinstance(item, tuple) else "",
)
def test_an_unknown_name_is_answered_with_the_nearest(
    line: tuple[str, ...], meant: str, call: Run, journal: Path, tmp_path: Path
) -> None:
    from pytest_npubench.store.journal_reader import read_journal

    session, out = read_journal(journal).sessions[-1].id, str(tmp_path / "out")
    assert call("baseline", "accept", journal, "--baselines", out).status == 0
    assert call("history", "upload", journal, "--history", f"{out}.db").status == 0
    words = [word.replace(JOURNAL, str(journal)).replace(OUT, out).replace(SESSION, session) for word in line]
    answer = call(*words)
    assert answer.status in (1, 2)
    assert f"; did you mean '{meant.replace(SESSION, session)}" in answer.err


def test_a_faulty_hardware_file_is_status_1_in_json_too(call: Run, tmp_path: Path) -> None:
    faulty = tmp_path / "faulty.toml"
    faulty.write_text("name = 3\n", encoding="utf-8")
    answer = call("hardware", "--check", faulty, "--json")
    assert answer.status == 1
    (error,) = json.load(io.StringIO(answer.out))["errors"]
    assert str(faulty) in error
