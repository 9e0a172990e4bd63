"""Makes the pictures of README and tutorial from real runs on this machine's processor: `make pictures`.

A folder of its own gets the tutorial's files. Its case runs and is accepted three times, then runs as the slower
function. What that run prints becomes docs/img/regression.svg; its report is photographed by a headless Chromium as
docs/img/report.png. Without a browser the old photograph stays, and the script says so.
"""

from __future__ import annotations

import argparse
import io
import os
import pty
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

DOCS = Path(__file__).resolve().parent
IMAGES = DOCS / "img"
PYTEST = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider")
COLUMNS = 110
FILE = re.compile(r"```\w+ title=\"([\w.]+)\"\n(.*?)```", re.DOTALL)
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


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False, description=__doc__)
    parser.add_argument("--images", type=Path, default=IMAGES, help="where the pictures go (docs/img)")
    images = parser.parse_args().images
    images.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="npubench-pictures-") as name:
        folder = Path(name)
        draw(regression(folder), "pytest test_words.py", images / "regression.svg")
        photograph(folder / "report.html", images / "report.png", folder)


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
    """The last part of what was printed, from the plugin's own heading on."""
    lines = printed.rstrip().split("\n")
    start = next((index for index, line in enumerate(lines) if re.search(r"={5,} npubench ={5,}", line)), 0)
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    console.print(Text.from_ansi("\n".join(lines[start:])))
    drawn = console.export_svg(title=title)
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
