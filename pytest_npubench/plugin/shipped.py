"""The suites that a wheel ships, the package `npubench_suites`: their node ids, and the root of a run on them.

pytest names a file outside its root folder by the part of its path below the argument it was given: a case of
`--pyargs npubench_suites` would be "buckets/test_profile.py::...", which pytest finds in no folder.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

PACKAGE = "npubench_suites"


def node_id(item: pytest.Item) -> str:
    """What runs the item again: with `--pyargs` from any folder where a shipped suite has it, else from the root.

    "npubench_suites.buckets.test_profile::test_profile[cpu-...]", wherever the package is installed.
    """
    module = getattr(getattr(item, "module", None), "__name__", "")
    return f"{module}::{item.nodeid.partition('::')[2]}" if is_shipped(module) else item.nodeid


def runs_again(item: pytest.Item, node: str) -> str:
    """What runs an item of that node id in another process, from any folder: by the absolute path of its file.

    But for shipped suites: given their path, pytest would not load the conftest.py of the folder that it is started in.
    """
    return node if is_shipped(node) else f"{item.path}::{node.partition('::')[2]}"


def is_shipped(name: str) -> bool:
    """Whether a module or node id belongs to the shipped suites."""
    return name.startswith(f"{PACKAGE}.")


def root(config: pytest.Config) -> Path:
    """The folder of baselines/ and .npubench/: pytest's root folder.

    But where pytest guessed that from a path into the shipped suites, it is the folder that pytest was started in: the
    guess is a folder above both, or one in site-packages.
    """
    guessed = config.inipath is None and config.option.rootdir is None
    if guessed and any(map(_is_shipped_path, _paths(config))):
        return config.invocation_params.dir
    return config.rootpath


def _paths(config: pytest.Config) -> list[Path]:
    return [config.invocation_params.dir / argument.partition("::")[0] for argument in config.args]


def _is_shipped_path(path: Path) -> bool:
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        return False
    return path.exists() and path.resolve().is_relative_to(Path(spec.origin).resolve().parent)
