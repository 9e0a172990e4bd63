"""`npubench nightly`: what a self-hosted runner does every night, all steps at once or each alone.

Exit status: 0 green, 1 not green (a case, a step, or an error), 2 a command line that cannot be understood.
"""

from __future__ import annotations

import argparse
import os
import re
import secrets
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npubench.cli.arguments import Commands, add_command
from pytest_npubench.cli.plain_streams import print_styled
from pytest_npubench.core.secret import take_from_environment
from pytest_npubench.errors import NightlyError, NpubenchError
from pytest_npubench.plain_text import counted, plain

if TYPE_CHECKING:
    from pytest_npubench.nightly.branch import Branch
    from pytest_npubench.nightly.night import Night, Step

EXAMPLE = "npubench nightly run --family tpu --lock locks/tpu.txt"
BRANCH = "npubench-baselines"
OUT = "npubench-nightly"
JUDGED_FRACTION = "0.9"
HISTORY = "NPUBENCH_HISTORY"
SITE = "site"
ACTIONS = {
    "run": "all steps, each whatever became of the one before",
    "restore": "begin a night: bring back baselines and journal",
    "lock": "hold the environment against its lock file, or write one",
    "measure": "run pytest",
    "promote": "accept what was measured, onto the branch as it is now",
    "upload": "put the journal into the history",
    "site": "write the history as static pages",
    "publish": "write the summary, annotate red cases",
}


def add_parser(commands: Commands, about: str) -> None:
    parser = add_command(commands, "nightly", about, EXAMPLE)
    actions = parser.add_subparsers(metavar="STEP", required=True, dest="step")
    for name, text in ACTIONS.items():
        action = add_command(actions, name, text, f"npubench nightly {name} --family tpu")
        _add_places(action)
        if name in ("run", "restore", "promote"):
            _add_promotion(action)
        if name in ("run", "lock"):
            action.add_argument("--lock", metavar="FILE", type=Path, help="the family's lock file")
        if name in ("run", "measure"):
            _add_measuring(action)
        if name in ("run", "upload", "site"):
            text = (
                "where the history lies, none for no history (default: $NPUBENCH_HISTORY, else history.db of the state)"
            )
            action.add_argument("--history", metavar="URL", help=text)
        if name == "lock":
            action.add_argument("--write", metavar="FILE", type=Path, help="write a lock file of this environment")
            action.add_argument("--extra", metavar="EXTRA", action="append", default=[], help="default: the family")
            action.add_argument(
                "--pip-option", metavar="LINE", action="append", default=[], help="a line of pip's for the lock file"
            )
        action.set_defaults(run=run)


def _add_places(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--family", metavar="FAMILY", required=True, type=_name, help="the device family: tpu, cuda, ..."
    )
    parser.add_argument(
        "--name", metavar="NAME", type=_name, help="tells runners of one family apart (default: the family)"
    )
    text = "what stays from night to night (default: in $NPUBENCH_STATE_DIR, else ~/.local/state/npubench)"
    parser.add_argument("--state", metavar="DIR", type=Path, help=text)
    parser.add_argument(
        "-o",
        "--output",
        metavar="DIR",
        type=Path,
        default=Path(OUT),
        help="what the night leaves (default: %(default)s)",
    )
    parser.add_argument("--remote", metavar="NAME", default="origin", help="git's name of it (default: %(default)s)")


def _add_promotion(parser: argparse.ArgumentParser) -> None:
    text = "accepted sessions are pushed to the branch (push), proposed to it (pull-request) or stay here (local)"
    parser.add_argument(
        "--promote",
        metavar="HOW",
        choices=("push", "pull-request", "local"),
        default="push",
        help=f"{text}; default: push",
    )
    parser.add_argument(
        "--branch", metavar="NAME", default=BRANCH, help="where accepted baselines lie (default: %(default)s)"
    )
    parser.add_argument(
        "--push-option", metavar="TEXT", action="append", default=[], help="for git push; may be repeated"
    )


def _add_measuring(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--profile", metavar="NAME", default="nightly", help="run size (default: %(default)s)")
    parser.add_argument(
        "--require-judged",
        metavar="FRACTION",
        default=JUDGED_FRACTION,
        help="share of the cases that has to be compared with a baseline; 0 asks for none (default: %(default)s)",
    )
    parser.add_argument(
        "arguments",
        metavar="ARGUMENT",
        nargs="*",
        help="after --: for pytest (default: suites/, else the shipped suites)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Runs the night or one step. Raises NightlyError where a step cannot be done."""
    from pytest_npubench.nightly.branch import TOKENS

    taken = take_from_environment((*TOKENS, HISTORY))  # before anything starts that might read them
    if arguments.step == "lock" and arguments.write is not None:
        return _write_lock(arguments)
    night, branch = _night(arguments, taken)
    with _faults_named(), night.state.locked() as lock:
        if arguments.step == "publish":
            return _publish(night)
        steps = _steps(arguments, night, branch, lock, taken)
        if arguments.step != "run":
            with _without_commands():
                return _say(steps[arguments.step]())
        try:
            with _without_commands(), _ended_by_sigterm():
                _run_all(night, steps)
        except KeyboardInterrupt:  # the runner ends the night: its summary says how far it came
            _publish(night)
            raise
        return _publish(night)


def _run_all(night: Night, steps: dict[str, Callable[[], Step]]) -> None:
    """Runs each step whatever became of the steps before it. Two steps can end the night: without the lock's
    environment nothing is measured, and without a night begun there is nothing to do."""
    from pytest_npubench.nightly.night import Step

    for name, step in steps.items():
        if name == "measure" and night.steps()["lock"].outcome == "failed":
            _say(night.record(Step(name=name, outcome="failed", lines=("nothing was measured: see lock",))))
            continue
        try:
            _say(step())
        except (NpubenchError, OSError) as error:
            if name == "restore":
                raise
            _say(night.record(Step(name=name, outcome="failed", lines=(_said(error),))))


def _steps(
    arguments: argparse.Namespace, night: Night, branch: Branch | None, lock: int, taken: Mapping[str, str]
) -> dict[str, Callable[[], Step]]:
    from pytest_npubench.nightly.lock_file import check_lock
    from pytest_npubench.nightly.measure import measure
    from pytest_npubench.nightly.promote import Promotion, promote
    from pytest_npubench.nightly.restore import restore
    from pytest_npubench.nightly.upload import upload

    def promoted() -> Step:
        how = Promotion(mode=arguments.promote, branch=branch, push_options=arguments.push_option)
        return promote(night, how, {**os.environ, **taken})

    return {
        "restore": lambda: restore(night, branch),
        "lock": lambda: check_lock(night, arguments.lock),
        "measure": lambda: measure(night, _pytest_arguments(arguments), os.environ, lock=lock),
        "promote": promoted,
        "upload": lambda: upload(night, _history(arguments, night, taken)),
        "site": lambda: _site(night, _history(arguments, night, taken)),
    }


def _site(night: Night, history: str | None) -> Step:
    """Writes the history's pages, without which a night is as green. Raises NightlyError where no night was begun."""
    from pytest_npubench.cli.site import write
    from pytest_npubench.nightly.night import Step

    outcome, line = "done", "no site: no history is kept"
    night.steps()
    if history is not None:
        try:
            done = write(history, night.out / SITE, night.baselines, missing_ok=True)
            line = f"{counted(done.num_cases, 'case')} in {done.index}"
        except (NpubenchError, OSError) as error:
            outcome, line = "warning", f"no site: {_said(error)}"
    return night.record(Step(name="site", outcome=outcome, lines=(line,)))


def _night(arguments: argparse.Namespace, taken: Mapping[str, str]) -> tuple[Night, Branch | None]:
    from pytest_npubench.nightly.branch import Branch, masked, remote_address
    from pytest_npubench.nightly.night import Night
    from pytest_npubench.nightly.state import StateFolder, default_state_path

    work = Path.cwd()
    name = arguments.name or arguments.family
    address = remote_address(work, arguments.remote)
    state = (
        arguments.state.absolute() if arguments.state else default_state_path(os.environ, address or str(work), name)
    )
    night = Night(name=name, work=work, out=work / arguments.output, state=StateFolder(path=state))
    if getattr(arguments, "promote", "local") == "local":
        return night, None
    if address is None:
        raise NightlyError(
            f"{work}: git knows no remote {masked(arguments.remote)!r} here; want one, or --promote local"
        )
    return night, Branch(work=work, remote=arguments.remote, name=arguments.branch, environment={**os.environ, **taken})


def _pytest_arguments(arguments: argparse.Namespace) -> list[str]:
    required = [] if arguments.require_judged == "0" else [f"--npubench-require-judged={arguments.require_judged}"]
    return [
        "-m",
        arguments.family,
        f"--npubench-require={arguments.family}",
        f"--npubench-profile={arguments.profile}",
        *required,
        *(arguments.arguments or _default_tests(Path.cwd())),
    ]


def _default_tests(here: Path) -> list[str]:
    """The folder `suites/` of the current folder, else the shipped suites."""
    from pytest_npubench.cli.run import find_suites

    return ["suites/"] if (here / "suites").is_dir() else find_suites(here).targets(())


def _history(arguments: argparse.Namespace, night: Night, taken: Mapping[str, str]) -> str | None:
    asked = arguments.history or taken.get(HISTORY) or str(night.state.history)
    return None if asked == "none" else asked


def _publish(night: Night) -> int:
    from pytest_npubench.nightly.publish import publish

    done = publish(night, os.environ)
    for annotation in done.annotations:
        if _on_github():
            print_styled(f"{annotation.command()}\n")
        else:
            print(annotation)
    print(f"nightly {night.name}: {'green' if done.is_green else 'red'}; see {night.out / 'summary.md'}")
    return 0 if done.is_green else 1


def _write_lock(arguments: argparse.Namespace) -> int:
    from pytest_npubench.core.regular_file import replace_text
    from pytest_npubench.nightly.lock_file import lock_text

    with _faults_named():
        arguments.write.parent.mkdir(parents=True, exist_ok=True)
        replace_text(arguments.write, lock_text(arguments.extra or [arguments.family], arguments.pip_option))
    print(f"wrote {arguments.write}")
    return 0


def _say(step: Step) -> int:
    for line in step.lines:
        print(f"{step.name}: {plain(line)}", flush=True)
    return 1 if step.outcome == "failed" else 0


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Turns SIGTERM into KeyboardInterrupt, whatever step it meets."""
    from pytest_npubench.nightly.measure import interrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _without_commands() -> Iterator[None]:
    """Keeps GitHub from obeying the text that is printed inside, by pytest and git too
    (https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands, stop-commands)."""
    if not _on_github():
        yield
        return
    end = secrets.token_hex(16)
    print_styled(f"::stop-commands::{end}\n")
    try:
        yield
    finally:
        print_styled(f"::{end}::\n")


def _on_github() -> bool:
    return os.environ.get("GITHUB_ACTIONS") == "true"


@contextmanager
def _faults_named() -> Iterator[None]:
    """Turns the error of a full disk or an unwritable folder into an error of ours, with the path."""
    try:
        yield
    except OSError as error:
        raise NightlyError(_said(error)) from error


def _said(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename or 'a file'}: {error.strerror}"
    return str(error)


def _name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", text):
        raise argparse.ArgumentTypeError(f"{text!r}: want letters, digits, '.', '_' or '-'")
    return text
