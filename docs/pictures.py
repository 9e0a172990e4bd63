"""Makes the pictures of README and docs from real runs on this machine's processor: `make pictures`.

A folder of its own gets the tutorial's files. Its case runs and is accepted three times, then runs as the slower
function. What that run prints becomes docs/img/regression.svg; its report is photographed by a headless Chromium as
docs/img/report.png. Without a browser the old photograph stays, and the script says so. What other commands print
becomes docs/img/COMMAND.svg.
"""

from __future__ import annotations

import argparse
import io
import os
import pty
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path
from textwrap import shorten

from rich.console import Console
from rich.text import Text

DOCS = Path(__file__).resolve().parent
IMAGES = DOCS / "img"
PYTEST = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider")
COLUMNS, MOST_LINES, LONGEST_TITLE = 110, 30, 80
FILE = re.compile(r"```\w+ title=\"([\w.]+)\"\n(.*?)```", re.DOTALL)
BEGINS = re.compile(r"={5,} npubench ={5,}|^A  .* \(\d+ sessions?\)")
"""The last such line is the first that is drawn: of a run its table, of a comparison its sides."""
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
QUIET = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--hide-scrollbars",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
BUSY = ("--npubench-other-load", "1", "--npubench-lock-timeout", "300")
NPUBENCH = (sys.executable, "-c", "from pytest_npubench.cli.main import main; raise SystemExit(main())")
COMMANDS = {
    "compare": "npubench compare baselines/ .npubench/journal.jsonl",
    "simulate": "npubench simulate --hardware nvidia-h100 --tensor-parallel 2 --model qwen3-30b-a3b --policy chunked "
    "--policy layered --workload layered-arxiv --rate 1.3 --num-requests 100",
    "search": "npubench search --hardware nvidia-h100 nvidia-a100 --model qwen3-30b-a3b --workload layered-sharegpt "
    "--rate 1 2 4 --policy chunked layered --tensor-parallel 2 --slo-ttft 5s --slo-tbt 125ms --num-requests 100 "
    "--price nvidia-h100=3 --price nvidia-a100=2",
    "run": "npubench run buckets -m cpu -k 'canary and b1' --npubench-other-load 1",
    "nightly": "npubench nightly run --family cpu --promote local --state state -- test_words.py",
    "ab": "npubench ab --env-a old --env-b new -- test_words.py",
}
REPEATED = {"nightly": 4}
"""Runs of a command before its picture: a night compares from its fourth on."""


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False, description=__doc__)
    parser.add_argument("--images", type=Path, default=IMAGES, help="where the pictures go (docs/img)")
    parser.add_argument("--only", metavar="NAME", choices=("regression", *COMMANDS), help="this one alone")
    arguments = parser.parse_args()
    images = arguments.images
    images.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="npubench-pictures-") as name:
        folder = Path(name)
        printed = regression(folder)
        if arguments.only in (None, "regression"):
            draw(printed, "pytest test_words.py", images / "regression.svg")
            photograph(folder / "report.html", images / "report.png", folder)
        for picture, command in COMMANDS.items():
            if arguments.only in (None, picture):
                draw(command_output(picture, command, folder), command, images / f"{picture}.svg")


def command_output(picture: str, command: str, folder: Path) -> str:
    """What a command of COMMANDS prints in the folder of the tutorial's slower run."""
    if picture == "ab":
        folder = two_environments(folder)
    arguments = shlex.split(command)[1:]
    for _ in range(REPEATED.get(picture, 1)):
        printed = run([*NPUBENCH, *arguments], folder)
    return printed


def two_environments(tutorial: Path) -> Path:
    """A folder with the tutorial's test and two environments, whose packages `words` are the two of the tutorial."""
    folder = tutorial / "ab"
    folder.mkdir()
    for name in ("test_words.py", "pyproject.toml"):
        shutil.copy(tutorial / name, folder)
    *files, slower = FILE.findall((DOCS / "tutorial.md").read_text(encoding="utf-8"))
    for environment, text in (("old", dict(files)["words.py"]), ("new", slower[1])):
        venv.create(folder / environment, symlinks=True)
        (packages,) = (folder / environment).glob("lib/python*/site-packages")
        (packages / "here.pth").write_text("\n".join(path for path in sys.path if path), encoding="utf-8")
        (packages / "words.py").write_text(text, encoding="utf-8")
    return folder


def regression(folder: Path) -> str:
    """What the tutorial's slower run prints, after three accepted ones."""
    *files, slower = FILE.findall((DOCS / "tutorial.md").read_text(encoding="utf-8"))
    for name, text in files:
        (folder / name).write_text(text, encoding="utf-8")
    run([*PYTEST, "test_words.py", "--npubench-accept=3", *BUSY], folder)
    (folder / slower[0]).write_text(slower[1], encoding="utf-8")
    printed = run([*PYTEST, "test_words.py", "--npubench-report", "report.html", *BUSY], folder)
    if "regressed" not in printed:
        raise SystemExit(f"the slower function did not regress:\n{printed}")
    return printed


def run(command: Sequence[str], folder: Path) -> str:
    """What a command prints on a terminal of COLUMNS columns, whatever its exit status."""
    owner, terminal = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "TERM": "xterm-256color"}
    environment.pop("NO_COLOR", None)
    process = subprocess.Popen(command, cwd=folder, env=environment, stdin=terminal, stdout=terminal, stderr=terminal)
    os.close(terminal)
    printed = bytearray()
    while True:
        try:
            read = os.read(owner, 65536)
        except OSError:  # the last process that had the terminal has ended
            break
        if not read:
            break
        printed += read
    os.close(owner)
    process.wait()
    lines = printed.decode("utf-8", errors="replace").replace("\r\n", "\n").replace(str(folder) + "/", "")
    return "\n".join(
        line.rpartition("\r")[2] for line in lines.split("\n")
    )  # of a line that was rewritten its last state


def draw(printed: str, title: str, path: Path) -> None:
    """The last part of what was printed, MOST_LINES of it at most."""
    lines = printed.rstrip().split("\n")
    start = max((index for index, line in enumerate(lines) if BEGINS.search(line)), default=0)
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    shown = lines[start:] if len(lines) - start <= MOST_LINES else [*lines[start:][:MOST_LINES], "…"]
    console.print(Text.from_ansi("\n".join(shown)))
    drawn = console.export_svg(title=shorten(title, LONGEST_TITLE, placeholder=" …"))
    path.write_text(re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL), encoding="utf-8")  # fetches nothing
    sys.stdout.write(f"{path}\n")


def photograph(page: Path, path: Path, folder: Path) -> None:
    browser = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if browser is None:
        sys.stdout.write(f"{path} is left as it is: none of {', '.join(CHROMIUM)} is on the PATH\n")
        return
    place = (f"--user-data-dir={folder / 'browser'}", f"--screenshot={path}", "--window-size=1400,800")
    subprocess.run([browser, *QUIET, *place, page.as_uri()], check=True, capture_output=True, timeout=120)
    sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    main()
