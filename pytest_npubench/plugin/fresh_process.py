"""A fresh pytest process of a run's own: the same configuration, the same options of ours, and the tests it is told.

What is given on the command line is handed on; ini files and [tool.npubench] the fresh process reads by itself.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

import pytest

from pytest_npubench.plugin.options import OPTIONS
from pytest_npubench.plugin.shipped import is_shipped
from pytest_npubench.store.run_id import RUN

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
