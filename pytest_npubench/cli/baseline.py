"""`npubench baseline`: look at accepted baselines and change them; everything it writes is reviewed in git.

Commands that change files say what they did in one or two lines, and do nothing else.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npubench.cli import baseline_list, baseline_show
from pytest_npubench.cli.arguments import (
    Commands,
    add_command,
    add_journal,
    add_json_option,
    entry_count,
    print_document,
    say,
    whole_number,
)
from pytest_npubench.core.run_folders import RunFolders, short_path
from pytest_npubench.plain_text import counted

if TYPE_CHECKING:
    from pytest_npubench.store.baseline_changes import BaselineChange

EXAMPLE = "npubench baseline list"
day_count = whole_number(36_500)


def add_parser(commands: Commands, about: str) -> None:
    parser = add_command(commands, "baseline", about, EXAMPLE)
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    for show in (baseline_list.add_parser, baseline_show.add_parser):
        add_baselines_option(show(actions))
    for change in (_accept, _reject, _reset, _anchor, _prune, _rename, _merge):
        parser = change(actions)
        add_baselines_option(parser)
        add_json_option(parser)


def add_baselines_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--baselines",
        metavar="DIR",
        default="",
        type=lambda text: Path(text) if text else short_path(RunFolders.here().baselines),
        help="where they lie (default: where runs in this folder look for them)",
    )


def _accept(actions: Commands) -> argparse.ArgumentParser:
    example = "npubench baseline accept .npubench/journal.jsonl"
    parser = add_command(actions, "accept", "accept the green cases of a finished run", example)
    add_journal(parser)
    parser.add_argument("--session", metavar="ID", help="this session only (default: the latest run that has cases)")
    parser.add_argument(
        "--accept-answers", action="store_true", help="also where a model's answers are no longer the accepted ones"
    )
    parser.add_argument(
        "--improved",
        metavar="CASE",
        action="append",
        default=[],
        help="also this case, whose improvement nobody explained: SUITE/KIND/ID, ID or a pattern; may be repeated",
    )
    parser.add_argument(
        "--regressed",
        metavar="CASE",
        action="append",
        default=[],
        help="also this case, which is slower on purpose, with all its sessions since then; may be repeated",
    )
    parser.add_argument("--reason", metavar="TEXT", default="", help="why it changed; kept in the file")
    parser.set_defaults(run=run_accept)
    return parser


def _reject(actions: Commands) -> argparse.ArgumentParser:
    example = 'npubench baseline reject 20261121T130500-3f9a1c07 --reason "hot room"'
    parser = add_command(actions, "reject", "take a session out of the baselines for good", example)
    parser.add_argument("session", metavar="SESSION", help="the session, or SESSION@DEVICE")
    parser.add_argument("--reason", metavar="TEXT", default="", help="kept beside the session's name")
    parser.set_defaults(run=run_reject)
    return parser


def _reset(actions: Commands) -> argparse.ArgumentParser:
    example = 'npubench baseline reset profile/b4-bucket128 --reason "fp8 cache"'
    parser = add_command(actions, "reset", "let cases begin anew after an intended change", example)
    parser.add_argument(
        "cases", metavar="CASE", nargs="+", help="SUITE/KIND/ID, ID, a short name, or a pattern: 'buckets/steps/*'"
    )
    parser.add_argument("--reason", metavar="TEXT", required=True, help="kept in the file, with the date")
    parser.add_argument(
        "--hardware", metavar="NAME", action="append", default=[], help="only on this hardware; may be repeated"
    )
    parser.set_defaults(run=run_reset)
    return parser


def _anchor(actions: Commands) -> argparse.ArgumentParser:
    example = "npubench baseline anchor --newest 5 --case profile/b4-bucket128"
    parser = add_command(actions, "anchor", "make other sessions the fixed anchor", example)
    parser.add_argument("sessions", metavar="SESSION", nargs="*", help="the sessions that become the anchor")
    parser.add_argument("--newest", metavar="N", type=entry_count, help="the newest N sessions of each case")
    parser.add_argument("--key", metavar="KEY", help="only under this key: the 8 hex digits of a file's name")
    parser.add_argument("--case", metavar="CASE", help="only of this case: SUITE/KIND/ID, ID, or a short name")
    parser.set_defaults(run=lambda arguments: run_anchor(parser, arguments))
    return parser


def _prune(actions: Commands) -> argparse.ArgumentParser:
    example = "npubench baseline prune --older-than 180 --dry-run"
    parser = add_command(actions, "prune", "drop the files of keys that nobody runs any more", example)
    parser.add_argument("--key", metavar="KEY", action="append", default=[], help="drop this key; may be repeated")
    parser.add_argument(
        "--older-than",
        metavar="DAYS",
        type=day_count,
        help="drop what nothing was accepted into for so long",
    )
    parser.add_argument(
        "--keep",
        metavar="N",
        type=entry_count,
        help="the newest N keys of a suite and device stay (default 1)",
    )
    parser.add_argument("--dry-run", action="store_true", help="say what would go, and leave it")
    parser.set_defaults(run=lambda arguments: run_prune(parser, arguments))
    return parser


def _rename(actions: Commands) -> argparse.ArgumentParser:
    example = "npubench baseline rename buckets/profile/cpu-tiny-b4-bucket128 buckets/profile/cpu-small-b4-bucket128"
    parser = add_command(actions, "rename", "let a renamed case keep its history", example)
    parser.add_argument("old", metavar="OLD", help="the case's key before: SUITE/KIND/ID")
    parser.add_argument("new", metavar="NEW", help="the case's key now")
    parser.set_defaults(run=run_rename)
    return parser


def _merge(actions: Commands) -> argparse.ArgumentParser:
    example = "npubench baseline merge ../other-runner/baselines"
    parser = add_command(actions, "merge", "take in the sessions of another folder of baselines", example)
    parser.add_argument("other", metavar="OTHER_DIR", type=Path, help="the other folder, which stays as it is")
    parser.set_defaults(run=run_merge)
    return parser


def run_accept(arguments: argparse.Namespace) -> int:
    """Accepts a run. Raises JournalError for an unusable journal or session, BaselineError for a refused run."""
    from pytest_npubench.errors import RunNotAcceptedError
    from pytest_npubench.store.accept_run import accept_run
    from pytest_npubench.store.journal_reader import read_journal
    from pytest_npubench.store.journal_runs import chosen_sessions
    from pytest_npubench.store.waiting import Allowed, baselines_option

    allowed = Allowed(
        answers=arguments.accept_answers,
        improved=tuple(arguments.improved),
        regressed=tuple(arguments.regressed),
        reason=arguments.reason,
    )
    journal = read_journal(arguments.journal)
    sessions = chosen_sessions(journal, arguments.session)
    try:
        options = baselines_option(arguments.baselines)
        accepted = accept_run(journal, sessions, arguments.baselines, allowed=allowed, options=options)
    except RunNotAcceptedError as error:
        if not error.waiting or arguments.json:
            raise
        say(f"nothing accepted: {error}")  # no error: a person is asked
        return 1
    if arguments.json:
        print_document("baseline-accepted", **asdict(accepted))
        return 0
    say(str(accepted))
    say(f"session {', '.join(accepted.sessions)}")
    return 0


def run_reject(arguments: argparse.Namespace) -> None:
    """Takes a session out of the baselines. Raises BaselineError where no file has the session."""
    from pytest_npubench.store.baseline_changes import reject

    change = reject(arguments.baselines, arguments.session, reason=arguments.reason)
    before = f"rejected before: {', '.join(change.sessions)}"
    _tell(arguments, change, _said("rejected", change) if change.paths else before)


def run_reset(arguments: argparse.Namespace) -> None:
    """Lets cases begin anew. Raises BaselineError where no file has a case."""
    from pytest_npubench.store.baseline_changes import reset

    change = reset(arguments.baselines, arguments.cases, reason=arguments.reason, hardware=arguments.hardware)
    cases, sessions = counted(change.num_cases, "case"), counted(len(change.sessions), "session")
    _tell(arguments, change, f"reset {cases} in {', '.join(map(str, change.paths))}: {sessions} of theirs went")


def run_anchor(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    """Makes sessions anchors. Raises BaselineError where no session is meant."""
    if bool(arguments.sessions) == (arguments.newest is not None):
        parser.error("want sessions, or --newest N")
    from pytest_npubench.store.baseline_changes import move_anchor

    change = move_anchor(
        arguments.baselines,
        sessions=arguments.sessions,
        newest=arguments.newest,
        key=arguments.key,
        case=arguments.case,
    )
    before = f"anchor already: {', '.join(change.sessions)}"
    _tell(arguments, change, _said("anchor is now", change) if change.paths else before)


def run_prune(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    """Removes old sessions. Raises BaselineError on a key that no file has."""
    aged = arguments.older_than is not None or arguments.keep is not None
    if bool(arguments.key) == aged:
        parser.error("want --key KEY, or --older-than DAYS, --keep N or both")
    from pytest_npubench.store.baseline_changes import newest_time, prune

    gone = prune(
        arguments.baselines,
        keys=arguments.key,
        older_than_days=arguments.older_than,
        keep=arguments.keep,
        dry_run=arguments.dry_run,
    )
    if arguments.json:
        dropped = [arguments.baselines / file.relative_path for file in gone]
        print_document("baseline-pruned", paths=dropped, dry_run=arguments.dry_run)
        return
    for file in gone:
        path = arguments.baselines / file.relative_path
        say(f"{path}: {counted(len(file.cases), 'case')}, newest session of {newest_time(file):%Y-%m-%d}")
    say(f"{'would drop' if arguments.dry_run else 'dropped'} {counted(len(gone), 'file')}")


def run_rename(arguments: argparse.Namespace) -> None:
    """Renames a case. Raises BaselineError on a clash, a circle, or an old name under which nothing was accepted."""
    from pytest_npubench.store.baseline_changes import rename

    done = rename(arguments.baselines, arguments.old, arguments.new)
    if arguments.json:
        names = {"old": done.old, "new": done.alias.case}
        print_document("baseline-renamed", **names, num_sessions=done.num_sessions, path=done.path)
        return
    bound = f"digest {done.alias.case_digest}" if done.alias.case_digest else "digest from its first accepted session"
    say(f"{done.alias.case} takes over {counted(done.num_sessions, 'session')} of {done.old}")
    say(f"digest {done.alias.digest} -> {bound}; wrote {done.path}")


def run_merge(arguments: argparse.Namespace) -> None:
    """Merges two sets of baselines. Raises BaselineError where they do not fit together."""
    from pytest_npubench.store.baseline_merge import merge

    change = merge(arguments.baselines, arguments.other)
    files, cases = ", ".join(map(str, change.paths)), counted(change.num_cases, "case")
    merged = f"merged {counted(len(change.sessions), 'new session')} of {arguments.other}: {cases} in {files}"
    _tell(arguments, change, merged if files else f"{arguments.baselines} holds all of {arguments.other} already")


def _tell(arguments: argparse.Namespace, change: BaselineChange, text: str) -> None:
    """Prints what changed, in this line or as JSON. A change without paths is one that the files held already."""
    if arguments.json:
        print_document("baseline-changed", **asdict(change))
    else:
        say(text)


def _said(verb: str, change: BaselineChange) -> str:
    files = ", ".join(map(str, change.paths))
    return f"{verb} {', '.join(change.sessions)}: {counted(change.num_cases, 'case')} in {files}"
