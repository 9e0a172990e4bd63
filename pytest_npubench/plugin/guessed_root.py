"""The root that pytest guesses must not depend on the values of our options.

pytest looks for its root and its ini file before it knows the options of plugins. It takes a value that follows one of
ours after a blank for a test path, as soon as that path exists:

    pytest --npubench-journal /var/nights/journal.jsonl        the second night's root is /var/nights, or /

Root and ini would be others, and with them the baselines, the journal and the keys of own cases. So where the guess
comes out otherwise without these values, the run begins once more with an equals sign in place of each blank. The
options of other plugins, such as --benchmark-json, are not ours to write: there the run is refused.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from _pytest.config.findpaths import determine_setup

from pytest_npubench.plugin.options import OPTIONS

ADDOPTS = "PYTEST_ADDOPTS"


def begin_anew(config: pytest.Config) -> int | None:
    """Run pytest under the root of the test paths alone; returns its exit status, None where the root is that."""
    if _moved_from(config) is None:
        return None
    if ADDOPTS in os.environ:
        os.environ[ADDOPTS] = shlex.join(joined(shlex.split(os.environ[ADDOPTS])))
    given = config.invocation_params
    return int(pytest.main(list(joined(given.args)), plugins=given.plugins))


def joined(arguments: Sequence[str]) -> Iterator[str]:
    """The arguments with each of our options and its value as one: "--npubench-profile=full"."""
    flags = {option.flag for option in OPTIONS if option.metavar}
    rest = iter(arguments)
    for argument in rest:
        if argument == "--":
            yield from (argument, *rest)
        elif argument in flags and (value := next(rest, None)) is not None:
            yield f"{argument}={value}"
        else:
            yield argument


def check_root(config: pytest.Config) -> None:
    """Raises pytest.UsageError where the run's root is not the root of the test paths."""
    if moved_from := _moved_from(config):
        root, ini = moved_from
        raise pytest.UsageError(
            f"pytest took the value of an option for a test path: its root is {config.rootpath} (ini file "
            f"{config.inipath}) in place of {root} (ini file {ini}), so baselines and journal would be others; write "
            f"OPTION=VALUE in place of OPTION VALUE, or give --rootdir"
        )


def _moved_from(config: pytest.Config) -> tuple[Path, Path | None] | None:
    """The root and the ini file of the test paths where the run has others."""
    if not hasattr(config.option, "file_or_dir"):  # with --help pytest reads no arguments behind it
        return None
    root, ini, *_ = determine_setup(
        inifile=config.option.inifilename,
        override_ini=config.option.override_ini,
        args=config.option.file_or_dir,
        rootdir_cmd_arg=config.option.rootdir or None,
        invocation_dir=config.invocation_params.dir,
    )
    return (root, ini) if (root, ini) != (config.rootpath, config.inipath) else None
