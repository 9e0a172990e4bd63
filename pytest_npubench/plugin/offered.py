"""What other distributions and conftests offer to this project's registries, and what they offer in vain."""

from __future__ import annotations

from importlib import import_module
from itertools import chain

import pytest

from pytest_npubench.core import entry_points, families

REGISTRIES = {
    "pytest_npubench.suites": "pytest_npubench.suites",
    "pytest_npubench.engines": "pytest_npubench.engines",
    "pytest_npubench.schedulers": "pytest_npubench.serving.schedulers",
    "pytest_npubench.predictors": "pytest_npubench.predictors",
}
"""Who knows which of its names another distribution registers as well, by the group of its entry points."""


def faults() -> tuple[str, ...]:
    """What other distributions register in vain, where that is known before anything is asked for."""
    sentences = list(families.faults())
    for group, module in REGISTRIES.items():
        if group in entry_points.groups():
            sentences += import_module(module).taken()
    return tuple(sentences)


def register_hooks(config: pytest.Config) -> None:
    """Take in what other plugins offer through our hooks, once a process. Registries that nothing is offered to are not
    imported."""
    hook = config.hook
    for module, offered in (
        ("backends", hook.pytest_npubench_backends()),
        ("engines.shapes", hook.pytest_npubench_shapes()),
        ("workloads", hook.pytest_npubench_workloads()),
    ):
        for thing in chain.from_iterable(offered):
            import_module(f"pytest_npubench.{module}").register(thing)
