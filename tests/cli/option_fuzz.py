"""Every option of every command with every strange value: what npubench answers to each.

The commands and options are read off the parsers, so a new one is tried by existing. One value is strange at a time,
the others are those of a call that works (WORKING). All is in one process: what would start another (pytest, git, a
probe) cannot, and every path lies in a folder of its own.

A call ends well where it exits 0 or says in a line of ours, or of argparse, what is wrong; a traceback, a call that
takes longer than LIMIT_S, and a sign on a stream that a terminal would obey are findings.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import signal
import subprocess
import sys
import traceback
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from unittest import mock

from extensions.pairs.partition.profiles import random_profile
from reports.journals import make_plan, measure, write_run

from pytest_npubench.cli.main import main, make_parser
from pytest_npubench.extensions.pairs.partition.options import SplitOptions
from pytest_npubench.extensions.pairs.partition.profile_file import write_profile

LIMIT_S = 20
NUMBERS = (
    *("", " ", "0", "-0", "-1", "1", "2", "1.5", ".5", "nan", "-nan", "inf", "-inf", "1e400", "-1e400", "1e-400"),
    *("1e5", "1e18", "100000000000000000000", "-100000000000000000000", "9" * 400, "9" * 5000, "9007199254740993"),
    *("2147483648", "9223372036854775807", "9223372036854775808", "1_000", "0x10", "+1", "١٢", "²", "true", "1e400s"),
    *("5s", "0s", "1e400ms", "9" * 400 + "s", "nans", "infs", "100000000000000000000ms"),
)
TIMES = (
    *("9999-12-31", "9999-12-31T23:59:59-14:00", "9999-12-31T23:59:59.999999+14:00", "0001-01-01", "10000-01-01"),
    *("0001-01-01T00:00:00+14:00", "0001-01-01T00:00:00-14:00", "2026-13-01", "2026-11-21T25:00", "-1", "0000-00-00"),
)
TEXTS = (
    *("x", "n" * 256, "n" * 5000, "a/" * 3000 + "b", ".", "..", "/".join(["..", "..", "out"]), "folder", "text.txt"),
    *("loop", "missing/file", "empty", "n" * 260 + ".db", "n" * 260 + ".toml", "n" * 260 + "@s", "folder/", "~", "%s"),
    *("\udcff", "a\udcff.db", "\udcff.toml", "\x1b[2J\x07", "\x9b2J", "a\nb", "\r", "\u202etset", "\u200b", "[/b]"),
    *("{}", "{0}", "'", '"', "*", "[", "(", "\\", "@", "@x", "x@", "=", "a=", "=b", "a=b", "driver=x", "host=", "?"),
    *("-", "--", "--no-such-option", "::error::x", "history:", "history:?", "history:history.db?limit=1", "text.db"),
    *("history:history.db?since=9999-12-31T23:59:59-14:00", "history:history.db?driver=", "history:n" + "n" * 300),
    *("postgresql://u:pw@127.0.0.1:9/d", "postgresql:/u:pw@h", "sqlite:///", "mysql://h/d", "http://127.0.0.1:9/v1"),
    *("http://[::1", "http://127.0.0.1:99999999/v1", "http://\udcff/", "cpu,tpu", "a/b/c", "a/b/c/d", "🦆", "e\u0301"),
    *("{", "[]", "{}", '{"a": NaN}', '{"a": 1e400}', "[" * 5000, '{"a":' * 3000, '"\\ud800"', "null", "true"),
    *("1/2", "0/0", "1/0", "2/1", "1/100000000000000000000", "cpu", "CPU", "1,1", "0," * 3000),
)
VALUES = (*NUMBERS, *TIMES, *TEXTS)

# What makes a call of each command work; an option that is not here and is needed gets a word
WORKING: Mapping[tuple[str, ...], Mapping[str, Sequence[str]]] = {
    ("hardware",): {"name": ["cpu"]},
    ("workloads",): {"workload": ["lens-sharegpt"]},
    ("profile",): {"journal": ["journal.jsonl"], "campaign": ["cpu-tiny-llama-b4"], "output": ["made.json"]},
    ("predict",): {"profile": ["profile.json"], "input_tokens": ["100"], "output_tokens": ["60"]},
    ("simulate",): {
        "hardware": ["nvidia-h100"],
        "model": ["small-moe"],
        "policy": ["layered"],
        "num_requests": ["2"],
        "workload": ["layered-sharegpt"],
        "rate": ["20"],
    },
    ("search", "batch"): {"profiles": ["profile.json"], "workload": ["lens-sharegpt"], "num_requests": ["8"]},
    ("search", "buckets"): {"profile": ["profile.json"], "workload": ["lens-sharegpt"], "num_requests": ["8"]},
    ("load",): {"url": ["http://127.0.0.1:9/v1"], "workload": ["layered-sharegpt"], "rate": ["5"]},
    ("partition", "profile"): {"pair": ["host"], "model": ["llama-8b-div4"], "output": ["pair2.json"]},
    ("partition", "plan"): {"profile": ["pair.json"], "model": ["llama-8b-div4"], "any_fingerprint": []},
    ("partition", "explain"): {
        "profile": ["pair.json"],
        "model": ["llama-8b-div4"],
        "operator": ["ffn_down"],
        "length": ["64"],
        "any_fingerprint": [],
    },
    ("show",): {"journal": ["journal.jsonl"], "output": ["made.txt"]},
    ("baseline", "accept"): {"journal": ["journal.jsonl"]},
    ("baseline", "show"): {"case": ["buckets/profile/cpu-tiny-llama-b1-bucket128"]},
    ("baseline", "reset"): {"cases": ["no/such/*"], "reason": ["tried"]},
    ("baseline", "anchor"): {"newest": ["2"]},
    ("baseline", "prune"): {"older_than": ["180"], "dry_run": []},
    ("baseline", "rename"): {"old": ["no/such/case"], "new": ["no/such/other"]},
    ("baseline", "merge"): {"other": ["folder"]},
    ("history", "upload"): {"journals": ["journal.jsonl"], "history": ["history.db"]},
    ("history", "list"): {"history": ["history.db"]},
    ("history", "show"): {"case": ["buckets/profile/cpu-tiny-llama-b1-bucket128"], "history": ["history.db"]},
    ("history", "changes"): {"history": ["history.db"]},
    ("site",): {"history": ["history.db"], "output": ["pages"]},
    ("compare",): {"old": ["journal.jsonl"], "new": ["journal.jsonl@x"]},
    **{
        ("nightly", step): {"family": ["tpu"], "promote": ["local"], "output": ["night"], "state": ["state"]}
        for step in ("run", "restore", "lock", "measure", "promote", "upload", "site", "publish")
    },
    ("ab",): {"env_a": [sys.executable], "env_b": [sys.executable], "arguments": ["x"]},
    ("bisect",): {"commits": ["a..b"], "arguments": ["x"]},
}
# A second call of some commands, for options that do not go with the first
OTHER: Mapping[tuple[str, ...], Mapping[str, Sequence[str]]] = {
    ("predict",): {"profile": ["profile.json"], "workload": ["lens-sharegpt"], "num_requests": ["3"]},
    ("simulate",): {
        "hardware": ["nvidia-h100"],
        "model": ["small-moe"],
        "policy": ["hybrid"],
        "num_requests": ["2"],
        "workload": ["trace.jsonl"],
        "replay": [],
    },
    ("hardware",): {"check": ["hardware.toml"]},
}


@dataclass(frozen=True)
class Command:
    """A command that runs: its words, its parser, and the options of a call that works."""

    words: tuple[str, ...]
    parser: argparse.ArgumentParser
    working: Mapping[str, Sequence[str]]

    @property
    def actions(self) -> list[argparse.Action]:
        return [action for action in self.parser._actions if action.nargs != 0]

    def line(self, strange: argparse.Action, value: str) -> list[str]:
        """The words of a call in which one option has this value."""
        options, places = [], []
        for action in self.parser._actions:
            given = [value] if action is strange else self.working.get(action.dest)
            if given is None and (action.required or _is_needed(action)):
                given = ["tpu"]
            if given is None:
                continue
            if action.option_strings:
                options += (
                    [f"{action.option_strings[-1]}={given[0]}", *given[1:]] if given else action.option_strings[-1:]
                )
            else:
                places += given
        return [*self.words, *options, *(["--", *places] if places else [])]


@dataclass(frozen=True)
class Finding:
    """A call that did not end as one should."""

    line: Sequence[str]
    what: str


@dataclass
class Tally:
    tried: int = 0
    done: int = 0
    named: int = 0
    findings: list[Finding] = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        self.findings = []

    def __str__(self) -> str:
        return f"{self.tried} tried, {self.done} done, {self.named} named errors, {len(self.findings)} findings"


def commands() -> Iterator[Command]:
    """Every command that runs, from the parsers alone."""
    for words, parser in _leaves((), make_parser()):
        yield Command(words, parser, WORKING.get(words, {}))
        if words in OTHER:
            yield Command(words, parser, OTHER[words])


def fill(folder: Path) -> None:
    """The files that the working calls name, and some that cannot be used."""
    for batch_size in (1, 4):
        write_run(folder / "journal.jsonl", measure(make_plan(batch_size)))
    (folder / "folder").mkdir()
    (folder / "empty").touch()
    (folder / "loop").symlink_to("loop")
    for name in ("text.txt", "text.db", "text.toml"):
        (folder / name).write_text("no file of ours\n", encoding="utf-8")
    (folder / "trace.jsonl").write_text(
        "".join(f'{{"timestamp": {at}, "input_length": 30, "output_length": 5}}\n' for at in (0, 100, 300)),
        encoding="utf-8",
    )
    options = SplitOptions(standard_sizes=(1, 64, 128), tile=32)
    write_profile(folder / "pair.json", random_profile(1, options, (1, 64)))
    for line in (
        ["history", "upload", "journal.jsonl", "--history", "history.db"],
        ["profile", "--journal", "journal.jsonl", "--campaign", "cpu-tiny-llama-b4", "-o", "profile.json"],
        ["baseline", "accept", "journal.jsonl"],
    ):
        assert main(line) == 0, line


@contextlib.contextmanager
def confined(folder: Path) -> Iterator[None]:
    """In this folder, with nothing of the user's, and no other process started."""
    before = Path.cwd()
    own = {name: str(folder) for name in ("HOME", "NPUBENCH_STATE_DIR", "TMPDIR", "XDG_CACHE_HOME")}
    missing = FileNotFoundError(2, "No such file or directory", "no process is started here")
    with (
        mock.patch.dict(os.environ, own, clear=True),
        mock.patch.object(subprocess.Popen, "__init__", side_effect=missing),
        mock.patch.object(os, "execv", side_effect=missing),
    ):
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


def tried(line: Sequence[str], tally: Tally, *, encoding: str = "utf-8") -> None:
    """Call npubench and count how it ended."""
    tally.tried += 1
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="strict") for _ in range(2))
    err.reconfigure(errors="backslashreplace")  # as Python makes it
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), _within(LIMIT_S):
            try:
                status = main(list(line))
            except SystemExit as stop:
                status = int(stop.code or 0)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(last.filename).name}:{last.lineno}"
        tally.findings.append(Finding(line, f"{type(error).__name__} at {place}: {str(error)[:80]!r}"))
        return
    shown, said = _text(out), _text(err)
    if obeyed := sorted({unicodedata.category(sign) for sign in (shown + said).replace("\n", "")} & {"Cc", "Cf", "Cs"}):
        tally.findings.append(Finding(line, f"signs of {', '.join(obeyed)} were printed"))
    elif status == 0:
        tally.done += 1
    elif "Traceback" not in said and ("error: " in said or shown):
        tally.named += 1
    else:
        tally.findings.append(Finding(line, f"exit status {status} without a word: {said[-80:]!r}"))


def _leaves(
    words: tuple[str, ...], parser: argparse.ArgumentParser
) -> Iterator[tuple[tuple[str, ...], argparse.ArgumentParser]]:
    below = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not below or parser.get_default("run"):  # search has a search of its own, and two below it
        yield words, parser
    for action in below:
        for name, child in action.choices.items():
            yield from _leaves((*words, name), child)


def _is_needed(action: argparse.Action) -> bool:
    return not action.option_strings and action.nargs in (None, "+")


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    return stream.buffer.getvalue().decode(stream.encoding, "surrogateescape")  # type: ignore[attr-defined]


@contextlib.contextmanager
def _within(limit_s: int) -> Iterator[None]:
    def end(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"no end within {limit_s} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(limit_s)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
