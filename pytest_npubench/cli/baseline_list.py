"""`npubench baseline list`: what was accepted, a line for each hardware, suite and key."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from pytest_npubench.cli.arguments import Commands, add_command, columns, print_document, say

if TYPE_CHECKING:
    from pytest_npubench.store.baseline_format import BaselineFile

HEADER = ("HARDWARE", "SUITE", "KEY", "CASES", "SESSIONS", "OLDEST", "NEWEST", "ANCHOR", "STACK")


def add_parser(actions: Commands) -> argparse.ArgumentParser:
    parser = add_command(actions, "list", "list baselines by hardware, suite and key", "npubench baseline list")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)
    return parser


def run(arguments: argparse.Namespace) -> None:
    """Prints what was accepted. Raises BaselineError where the directory is missing or a file cannot be read."""
    from pytest_npubench.store.baselines import Baselines

    loaded = Baselines.load(arguments.baselines)
    summaries = [summary(file) for file in loaded.files]
    if arguments.json:
        renamed = {old: alias.case for old, alias in loaded.aliases.entries.items()}
        print_document("baselines", files=summaries, renamed=renamed)
        return
    if not summaries:
        print("nothing was accepted yet")
        return
    print(columns([HEADER, *map(_row, summaries)]))
    for old, alias in sorted(loaded.aliases.entries.items()):
        say(f"renamed  {old} -> {alias.case}")


def summary(file: BaselineFile) -> dict[str, Any]:
    """A file as plain data; oldest, newest and anchor are the times of its first, last and first anchor session."""
    sessions = [session for case in file.cases.values() for session in case.sessions]
    by_time = sorted(sessions, key=lambda session: session.accepted_time)
    return {
        "hardware": file.hardware,
        "suite": file.suite,
        "key": file.key.digest(),
        "stack": file.key.to_json(),
        "num_cases": len(file.cases),
        "num_sessions": len(file.session_names),
        "oldest_at": by_time[0].accepted_at if by_time else None,
        "newest_at": by_time[-1].accepted_at if by_time else None,
        "anchor_at": next((session.accepted_at for session in by_time if session.anchor), None),
        "rejected": sorted(file.rejected),
    }


def _row(item: dict[str, Any]) -> tuple[str, ...]:
    dates = [(item[name] or "none")[:10] for name in ("oldest_at", "newest_at", "anchor_at")]
    counts = (str(item["num_cases"]), str(item["num_sessions"]))
    return (item["hardware"], item["suite"], item["key"], *counts, *dates, stack_text(item["stack"]))


def stack_text(parts: dict[str, str | None]) -> str:
    """Joins the parts of a key that have a value: "NVIDIA H200, driver 570.86, jax 0.10.2"."""
    shown = (f"driver {value}" if name == "driver" else value for name, value in parts.items() if value is not None)
    return ", ".join(dict.fromkeys(shown))
