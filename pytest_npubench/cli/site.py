"""`npubench site`: a history as static pages, without a server."""

from __future__ import annotations

import argparse
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npubench.cli.arguments import Commands, add_command, add_json_option, history_url, print_document, say
from pytest_npubench.core.run_folders import RunFolders
from pytest_npubench.errors import ConfigError
from pytest_npubench.plain_text import counted
from pytest_npubench.store.history import DEFAULT_URL

if TYPE_CHECKING:
    from pytest_npubench.reports.site_folder import WrittenSite

EXAMPLE = "npubench site .npubench/history.db -o site"


def add_parser(commands: Commands, about: str) -> None:
    parser = add_command(commands, "site", about, EXAMPLE)
    parser.add_argument(
        "history",
        metavar="HISTORY",
        nargs="?",
        default="",
        type=history_url,
        help=f"path.db or postgresql://... (default: that of runs in this folder, else {DEFAULT_URL})",
    )
    parser.add_argument("-o", "--output", metavar="DIR", type=Path, required=True, help="the folder to write")
    parser.add_argument(
        "--baselines",
        metavar="DIR",
        type=Path,
        help="accepted sessions to mark in trends (default: those of runs in this folder)",
    )
    add_json_option(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Writes the site. Raises HistoryError, BaselineError for such baselines, StoreError for a folder with files of
    others in the way, ConfigError without the report extra, OSError where a page cannot be written."""
    given: Path | None = arguments.baselines
    done = write(arguments.history, arguments.output, given or RunFolders.here().baselines, missing_ok=given is None)
    if arguments.json:
        print_document("site-written", output=done.index, num_cases=done.num_cases, num_bytes=done.num_bytes)
        return
    say(f"wrote {done.index}: {counted(done.num_cases, 'case')}, {done.num_bytes / 1e6:.1f} MB")


def write(history: str, folder: Path, baselines: Path, *, missing_ok: bool = False) -> WrittenSite:
    """Writes the site of a history; missing_ok: without accepted sessions where there is no such folder. Raises as
    `run`."""
    from pytest_npubench.store.baselines import Baselines

    try:
        from pytest_npubench.reports.site import site_files
        from pytest_npubench.reports.site_folder import write_site
    except ImportError as error:
        raise ConfigError(f"{error.name} is not installed: pip install pytest-npubench[report]") from error
    accepted = Baselines.load(baselines, missing_ok=missing_ok)
    return write_site(folder, site_files(history, accepted, datetime.now(timezone.utc)))
