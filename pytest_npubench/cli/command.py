"""The commands of `npubench`: a module each in this folder, and those of extensions and other distributions.

A distribution adds one by an entry point of the group `pytest_npubench.commands`: its name is the command's, its value
a `Command`. The Command's module is light; the module that it names is imported when the command is called.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

from pytest_npubench.core.entry_points import Entry, entries, extensions
from pytest_npubench.errors import BrokenEntryError

WHAT, GROUP = "command", "pytest_npubench.commands"
OWN = {
    "demo": "plant a slowdown on this machine, and show how a run reports it",
    "run": "run the suites with pytest",
    "probe": "say which devices are found, or why none is",
    "selfcheck": "plant faults on your own device, and say whether the gate finds them",
    "hardware": "list, show or check hardware files",
    "workloads": "list workloads, or show the statistics of one",
    "profile": "write the bucket profile that a campaign measured",
    "predict": "predict latency with LENS",
    "load": "load an OpenAI-compatible server and time every token",
    "show": "show a run again: as a table, page, trace, Markdown, CSV or JSON",
    "baseline": "list, show, accept, reject, reset, anchor, prune, rename or merge baselines",
    "journal": "check journals for damage",
    "history": "keep the runs of many days and hosts, show what changed",
    "site": "write a history as static pages",
    "compare": "compare two stacks: the gate of an upgrade",
    "ab": "measure two environments or commits in turn and compare them",
    "bisect": "find the release or the commit that made a case slower",
    "nightly": "measure every night on a runner, and keep what it accepts",
}
"""The lines in the help of the modules of this folder, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command. `about` is its line in the help. The line stands behind that of the command `after`, or last. `module`
    has `add_parser(subparsers, about)`."""

    name: str
    about: str
    module: str
    after: str = ""

    def add_parser(self, subparsers: Any) -> None:
        import_module(self.module).add_parser(subparsers, self.about)


@cache
def commands() -> Mapping[str, Command]:
    """All commands by name, in the order of the help, without those of others that cannot be loaded."""
    listed = [Command(name=name, about=about, module=f"{__package__}.{name}") for name, about in OWN.items()]
    ours = extensions(WHAT, GROUP)
    for entry in (*ours.values(), *entries(WHAT, GROUP, (*OWN, *ours)).values()):
        with suppress(BrokenEntryError):
            added = _loaded(entry)
            names = [command.name for command in listed]
            listed.insert(names.index(added.after) + 1 if added.after in names else len(listed), added)
    return {command.name: command for command in listed}


def _loaded(entry: Entry) -> Command:
    command: Command = entry.load(
        lambda thing: isinstance(thing, Command) and thing.name == entry.name, "Command of that name"
    )
    return command
