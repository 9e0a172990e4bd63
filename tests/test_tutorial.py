"""The tutorial works as it says, and the commands that README and docs/ show are understood.

The tutorial's files and commands are taken from the page and run in its order, in one folder. A line of a shown output
stands for a line of the real one; `...` in it stands for anything.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_npubench.cli.main import main, make_parser
from pytest_npubench.plugin.options import FLAGS, OPTIONS

ROOT = Path(__file__).parent.parent
FENCE = re.compile(
    r"(?:<!-- (?P<status>[a-z0-9 ]+) -->\n)?```(?P<language>\w+)(?: title=\"(?P<title>[\w.]+)\")?\n(?P<text>.*?)```",
    re.DOTALL,
)
PROGRAMS = {
    "pytest": (sys.executable, "-m", "pytest", "-p", "no:cacheprovider"),
    "npubench": (sys.executable, "-c", "from pytest_npubench.cli.main import main; raise SystemExit(main())"),
}
NUM_TRIES = 3
STATUSES = {None: (0,), "exit status 1": (1,), "any exit status": (0, 1)}


@dataclass(frozen=True)
class Shown:
    """A command with what the page shows of its output."""

    command: str
    output: tuple[str, ...]
    statuses: tuple[int, ...]


def _steps(page: Path) -> Iterator[tuple[str, str] | Shown]:
    """Files, as name and text, and commands in the page's order."""
    for block in FENCE.finditer(page.read_text(encoding="utf-8")):
        if block["title"]:
            yield block["title"], block["text"]
        elif block["language"] == "console":
            for command in re.split(r"^\$ ", block["text"], flags=re.MULTILINE)[1:]:
                typed, *output = command.splitlines()
                yield Shown(typed, tuple(output), STATUSES[block["status"]])


def run_command(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    program, *arguments = shlex.split(command)
    environment = {**os.environ, "COLUMNS": "200", "TMPDIR": str(folder)}
    return subprocess.run(
        [*PROGRAMS[program], *arguments],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def missing_lines(shown: Sequence[str], printed: str) -> list[str]:
    """The shown lines that no printed one is like; how many spaces there are is no matter."""
    lines = [" ".join(line.split()) for line in printed.splitlines()]
    patterns = {line: ".*".join(map(re.escape, re.split(r"\s*\.\.\.\s*", " ".join(line.split())))) for line in shown}
    return [line for line, pattern in patterns.items() if not any(re.search(pattern, found) for found in lines)]


def test_the_tutorial_goes_as_it_says(tmp_path: Path) -> None:
    """It measures for real, on processors that other tests load: what is wrong with the page is so at each try."""
    wrong = []
    for number in range(NUM_TRIES):
        wrong.append(_gone_wrong(tmp_path / str(number)))
        if not wrong[-1]:
            return
    pytest.fail("\n\n".join(wrong))


def _gone_wrong(folder: Path) -> str:
    """The first command of the tutorial that does not go as the page says, with its output; empty where all do."""
    folder.mkdir()
    for step in _steps(ROOT / "docs" / "tutorial.md"):
        if not isinstance(step, Shown):
            name, text = step
            (folder / name).write_text(text, encoding="utf-8")
            continue
        done = run_command(step.command, folder)
        if done.returncode not in step.statuses or missing_lines(step.output, done.stdout):
            return f"$ {step.command}\n{done.stdout}"
    return ""


def test_a_line_that_is_not_printed_is_missed() -> None:
    assert missing_lines(["... 1 passed in ...", "..."], "== 1 passed in 3 s ==") == []
    assert missing_lines(["... 2 passed in ..."], "== 1 passed in 3 s ==") == ["... 2 passed in ..."]


def _commands(*pages: Path) -> list[str]:
    """The lines of shell blocks that call npubench."""
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages).replace("\\\n", " ")
    fences = re.findall(r"^ *```(\w*)[^\n]*\n(.*?)^ *```$", text, re.DOTALL | re.MULTILINE)
    blocks = [block for language, block in fences if language in ("", "sh", "console")]
    lines = [line.strip().removeprefix("$ ") for block in blocks for line in block.splitlines()]
    return [line for line in lines if re.match(r"(\w+=\S+ )?npubench ", line)]


README = _commands(ROOT / "README.md")
PAGES = _commands(*(ROOT / "docs" / f"{name}.md" for name in ("nightly", "upgrade-gate", "ci", "history", "vllm")))


@pytest.mark.parametrize("command", [*README, *PAGES])
def test_a_shown_command_and_its_options_exist(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        word for word in shlex.split(command, comments=True) if "=" not in word.partition("/")[0] or word[0] == "-"
    ]
    ours = words[1 : words.index("--")] if "--" in words else words[1:]
    options = [word.partition("=")[0] for word in ours if word.startswith("--")]
    known = [option.flag for option in OPTIONS] + [f"--npubench-{name}" for name, _ in FLAGS]
    path = ours[: 1 + (ours[0] in ("nightly", "baseline", "history"))]
    with suppress(SystemExit):
        main([*path, "--help"])
    text = capsys.readouterr().out
    known += re.findall(r"--[a-z][a-z-]+", text)
    assert f"npubench {' '.join(path)}" in text
    assert set(options) <= set(known)


@pytest.mark.parametrize(
    "page", ["README.md", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))]
)
def test_every_shown_command_is_understood(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    for command in _commands(ROOT / page):
        words = shlex.split(command, comments=True)
        words = words[words.index("npubench") + 1 :]
        try:
            make_parser(words[:1]).parse_args(words)
        except SystemExit as end:
            if end.code:
                pytest.fail(f"{command}\n{capsys.readouterr().err}")
