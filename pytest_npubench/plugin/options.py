"""Options, ini keys and markers. Command line before ini before [tool.npubench] of the root's pyproject.toml."""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any, NoReturn

import pytest

from pytest_npubench import engines
from pytest_npubench.core.run_folders import DEFAULT_BASELINES
from pytest_npubench.core.run_option import Option, fraction, names, number
from pytest_npubench.suites import registered

MARKERS = (
    "gpu: needs any GPU",
    "npu: needs any NPU",
    "npubench_cases(kind): expand the test into the cases of a kind, such as profile, prediction or policy",
    "npubench(rounds, warmup, iterations, setup, items, bytes, memory, max_mean_s, max_median_s, max_p90_s, max_p95_s, "
    "max_p99_s): limits and run size of a case that uses the npubench fixture",
)
LONGEST_S = 31_536_000  # a year
OF_SUITES = tuple(option for suite in registered().values() for option in suite.options)
GONE = {"doubtful_sessions": "the evidence of all sessions decides, and needs no number of them (docs/statistics.md)"}
"""Settings that there were, and why they are none any more."""
ACCEPT = "accept"
MOST_ACCEPTED = 20
FLAGS = (
    (ACCEPT, "accept the run's green cases as a baseline session; =3: repeat it until they have 3, of 20 at most"),
    ("accept-answers", "with --npubench-accept: also where a model's answers are no longer the accepted ones"),
    ("resume", "take over what the journal holds of the same fingerprint, and measure the rest"),
)


GROUPS = {
    "what matters first": "profile require engine accept report baselines journal resume margin history",
    "how cases are measured and judged": "compile_cache remeasure compare_across require_judged other_load disturbed "
    "accept-answers",
    "which devices and how long they are waited for": "hardware devices lock_timeout probe_timeout stall_timeout",
    "what else is written, and hosts that share a run": "markdown csv openmetrics shard durations",
}
"""The options by what they are about, in the order of the help; options of suites come last."""
OF_A_SUITE = "of single suites"


def _profile(text: str) -> str:
    if text not in ("quick", "nightly", "full"):
        raise ValueError("want quick, nightly or full")
    return text


def _disturbed(text: str) -> str:
    if text not in ("fail", "mark"):
        raise ValueError("want fail or mark")
    return text


def _engine(text: str) -> str:
    from pytest_npubench.errors import RegistryError, did_you_mean

    try:
        if text in engines.names():
            return engines.engine(text).name
        *others, last = engines.names()
    except RegistryError as error:  # one of another distribution
        raise ValueError(str(error)) from None
    allowed = f"{', '.join(others)} or {last}" if others else last
    raise ValueError(f"want {allowed}{did_you_mean(text, [*others, last])}")


def _seconds(text: str) -> float:
    return number(text, f"want seconds above 0, up to {LONGEST_S}", lambda value: 0 < value <= LONGEST_S)


def _wait(text: str) -> float:
    want = f"want seconds, or -1 to wait for ever; at most {LONGEST_S}"
    return number(text, want, lambda value: 0 <= value <= LONGEST_S or value == -1)


def _path(text: str) -> str:
    if "\0" in text:
        raise ValueError("want a path, which holds no NUL")
    return text


def _margin(text: str) -> float:
    return number(text, "want a fraction from 0 to below 1, such as 0.01", lambda value: 0 <= value < 1)


def _count(text: str) -> int:
    return int(number(text, "want a whole number from 0 to 100", lambda value: value in range(101)))


def _parts(text: str) -> tuple[str, ...]:
    from pytest_npubench.store.fingerprint import FingerprintKey

    if unknown := [name for name in names(text) if name not in FingerprintKey.__slots__]:
        raise ValueError(f"{unknown[0]!r} is no part of a key; want {', '.join(FingerprintKey.__slots__)}")
    return names(text)


def _shard(text: str) -> tuple[int, int]:
    from pytest_npubench.campaign.sharding import parse_shard
    from pytest_npubench.errors import ConfigError

    try:
        return parse_shard(text)
    except ConfigError as error:
        raise ValueError(str(error)) from None


def _ordinals(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(name) for name in names(text))
    except ValueError:
        raise ValueError("want device numbers separated by commas, such as 0,2") from None


OPTIONS = (
    Option("require", "NAME[,NAME]", "exit with code 4 unless cases of these markers or devices can run", names, ()),
    Option("profile", "NAME", "run size: quick (default), nightly or full", _profile, "quick"),
    Option(
        "engine",
        "NAME",
        f"what runs the models (default {engines.REFERENCE}): {', '.join(engines.ours())}, or one registered",
        _engine,
        engines.REFERENCE,
    ),
    Option("hardware", "DIR", "a folder of further hardware files", _path),
    Option("devices", "N[,N]", "only these devices of a family, by number", _ordinals),
    Option("baselines", "DIR", "accepted baselines (default: baselines/ in the root)", _path, DEFAULT_BASELINES),
    Option("journal", "PATH", "the run's journal (default: .npubench/journal.jsonl in the root directory)", _path),
    Option("report", "PATH.html", "write an HTML report of the run", _path),
    *OF_SUITES,
    Option("compile_cache", "DIR", "persistent compilation cache (default: none, every compile is cold)", _path),
    Option(
        "margin",
        "FRACTION",
        "a change up to this does not matter (default 0.01)",
        _margin,
        0.01,
    ),
    Option("remeasure", "N", "measure suspects again in so many fresh processes (default 2; 0: never)", _count, 2),
    Option("compare_across", "PART[,PART]", "compare although this part of the baseline key differs", _parts, ()),
    Option("require_judged", "FRACTION", "fail unless this share of the cases is compared with a baseline", fraction),
    Option("other_load", "FRACTION", "share of our cores that others may use (default 0.5; 1: any)", fraction, 0.5),
    Option(
        "disturbed",
        "NAME",
        "a case on a machine that others use: fail (default), or mark: skip it and end with status 11",
        _disturbed,
        "fail",
    ),
    Option("markdown", "PATH", "write the run as Markdown; GitHub's step summary has it by itself", _path),
    Option("csv", "PATH", "write the run as CSV, one line a metric", _path),
    Option("openmetrics", "PATH", "write the run's metrics as an OpenMetrics text file", _path),
    Option("history", "URL", "earlier sessions, and this one at the end: FILE.db, sqlite:// or postgresql://", str),
    Option("shard", "I/N", "run part I of N of the cases, as every host of a fleet works it out alike", _shard),
    Option("durations", "JOURNAL", "balance the shards by what cases took here; the same file for every shard", _path),
    Option("lock_timeout", "SECONDS", "wait so long for a device in use; -1: for ever (default 10)", _wait, 10.0),
    Option("probe_timeout", "SECONDS", "give a device so long to answer (default 120)", _seconds, 120.0),
    Option(
        "stall_timeout",
        "SECONDS",
        "end a campaign that says nothing for so long (default 3600; -1: never)",
        _wait,
        3600.0,
    ),
)


class _Accept(argparse.Action):
    """How many sessions are to be accepted: `--npubench-accept` or `--npubench-accept=3`, each a name of its own. With
    an optional value argparse would take the path behind the option for it."""

    def __call__(
        self, _parser: object, namespace: argparse.Namespace, _values: object, option_string: str | None = None
    ) -> None:
        setattr(namespace, self.dest, int((option_string or "").partition("=")[2] or 1))


class _Gone(argparse.Action):
    """An option that there was: whoever gives it is told why it is unknown."""

    def __call__(self, *_: object) -> NoReturn:
        raise argparse.ArgumentError(self, f"is unknown by now: {GONE[self.dest.removeprefix('npubench_')]}")


def add_options(parser: pytest.Parser) -> None:
    order = {name: title for title, names in GROUPS.items() for name in names.split()}
    groups = {title: parser.getgroup(title, f"npubench: {title}") for title in (*GROUPS, OF_A_SUITE)}
    offered = {option.name: partial(_add_option, parser, option) for option in OPTIONS}
    offered |= {name: partial(_add_flag, name, text) for name, text in FLAGS}
    for name in sorted(offered, key=lambda name: list(order).index(name) if name in order else len(order)):
        offered[name](groups[order.get(name, OF_A_SUITE)])
    group = groups[OF_A_SUITE]
    counts = (f"--npubench-{ACCEPT}={count}" for count in range(1, MOST_ACCEPTED + 1))
    group.addoption(*counts, dest=f"npubench_{ACCEPT}", action=_Accept, nargs=0, help=argparse.SUPPRESS)
    for name in GONE:
        flag = f"--npubench-{name.replace('_', '-')}"
        group.addoption(flag, dest=f"npubench_{name}", action=_Gone, nargs="?", help=argparse.SUPPRESS)
        parser.addini(f"npubench_{name}", "unknown by now", default=None)


def _add_option(parser: pytest.Parser, option: Option, group: pytest.OptionGroup) -> None:
    takes: Any = {"metavar": option.metavar} if option.metavar else {"action": "store_const", "const": "true"}
    group.addoption(option.flag, dest=option.key, default=None, help=option.help, **takes)
    parser.addini(option.key, f"{option.help} (as {option.flag})", default=None)


def _add_flag(name: str, text: str, group: pytest.OptionGroup) -> None:
    dest = f"npubench_{name.replace('-', '_')}"
    takes: Any = {"action": _Accept, "nargs": 0, "default": 0} if name == ACCEPT else {"action": "store_true"}
    group.addoption(f"--npubench-{name}", dest=dest, help=text, **takes)


def register_markers(config: pytest.Config) -> None:
    from pytest_npubench.core.families import markers

    lines = dict(markers()) | dict(line.split(": ", 1) for line in MARKERS)
    for name, suite in registered().items():
        lines.setdefault(name, suite.about)
    for name, about in lines.items():
        config.addinivalue_line("markers", f"{name}: {about}")
