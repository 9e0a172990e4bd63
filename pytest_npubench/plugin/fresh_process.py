"""A fresh pytest process of a run's own: the same configuration, the same options of ours, and the tests it is told.

What is given on the command line is handed on; ini files and [tool.npubench] the fresh process reads by itself.

One that measures a test again has a temporary folder, which a run that is killed leaves behind: a later one removes it.
Its owner holds a lock on a file inside, which the kernel takes away from a killed process: a folder whose lock can be
had has no owner any more, whatever process ids say in another container.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from pytest_npubench.plugin.options import OPTIONS
from pytest_npubench.plugin.shipped import is_shipped
from pytest_npubench.store.run_id import RUN

PREFIX, OWNER = "npubench-again-", "owner.lock"
COOLDOWN_S = 2.0  # before a suspect is measured again
# told anew, or none of the fresh process's business: a history's address may hold a password
OF_THE_RUN = frozenset({"journal", "devices", "history"})


def fresh_command(config: pytest.Config, tests: Sequence[str], options: Mapping[str, object]) -> list[str]:
    """`tests` are named as shipped.runs_again does."""
    given = [
        f"{option.flag}={config.getoption(option.key)}"
        for option in OPTIONS
        if option.name not in OF_THE_RUN and config.getoption(option.key) is not None
    ]
    asked = [f"{flag}={value}" for flag, value in {"--rootdir": config.rootpath, **options}.items()]
    if config.inipath is not None:
        asked.append(f"--config-file={config.inipath}")
    plugins = [text for name in config.option.plugins for text in ("-p", name)]
    overrides = [text for pair in config.option.override_ini or () for text in ("-o", pair)]
    if any(map(is_shipped, tests)):
        asked.append("--pyargs")
    if config.pluginmanager.hasplugin("xdist"):
        asked.append("-n0")
    if config.pluginmanager.hasplugin("benchmark") and not config.getoption("benchmark_only", False):
        asked.append("--benchmark-disable")
    if config.pluginmanager.hasplugin("_cov"):
        asked.append("--no-cov")  # a tracer would be measured too
    if config.pluginmanager.hasplugin("terminalreporter"):
        asked.append("-q")
    # assertions are not rewritten, which takes as long as importing everything
    return [sys.executable, "-m", "pytest", "--assert=plain", *plugins, *overrides, *given, *asked, *tests]


def fresh_environment(**variables: str) -> dict[str, str]:
    """This process's environment without what pytest says of it and its run, and with these variables."""
    private = ("PYTEST_XDIST", "PYTEST_CURRENT_TEST", RUN)
    return {name: value for name, value in os.environ.items() if not name.startswith(private)} | variables


@contextmanager
def again_folder() -> Iterator[Path]:
    """A new folder, ours as long as this lasts."""
    from filelock import FileLock  # 45 ms to import, which a run that measures nothing again need not pay

    with tempfile.TemporaryDirectory(prefix=PREFIX) as name, FileLock(Path(name) / OWNER):
        yield Path(name)


def remove_left_over() -> None:
    """The folders whose owner is gone. One without a lock file, or another user's, is left alone.

    Everybody may put something into a temporary folder under such a name: what is a link, or open to others, is none
    of ours.
    """
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        if _is_ours(folder) and (folder / OWNER).is_file() and _is_free(folder / OWNER):
            shutil.rmtree(folder, ignore_errors=True)


def _is_ours(folder: Path) -> bool:
    try:
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077


def _is_free(path: Path) -> bool:
    from filelock import FileLock, Timeout

    try:
        with FileLock(path, timeout=0):
            return True
    except (Timeout, OSError):
        return False
