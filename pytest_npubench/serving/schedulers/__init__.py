"""Scheduling policies by name: one file each in this folder, holding one `SCHEDULER`, imported when it is asked for.

    scheduler = make_scheduler("chunked", num_layers=48, kv_blocks=4096, block_size_tokens=16, chunk_size_tokens=256)

A policy of one's own is a class or function that takes num_layers, kv_blocks, block_size_tokens and its settings by
keyword and returns a Scheduler: an entry point of the group `pytest_npubench.schedulers`. All that is asked of a policy
stands on it (protocol.py): its name and settings, and where it has them `keeps_slo` and `iteration_work`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable

from pytest_npubench.core.registry import Registry
from pytest_npubench.errors import ConfigError
from pytest_npubench.serving.schedulers.protocol import ENGINE_ARGUMENTS, Scheduler
from pytest_npubench.serving.settings import Setting, Work

SchedulerFactory = Callable[..., Scheduler]

SCHEDULERS: Registry[SchedulerFactory] = Registry(
    what="scheduling policy",
    group="pytest_npubench.schedulers",
    package=__name__,
    attribute="SCHEDULER",
    fits=lambda thing, name: callable(thing),
    want="class or function",
    helpers=("protocol",),
)
scheduler_names, taken = SCHEDULERS.names, SCHEDULERS.taken


def make_scheduler(
    name: str, *, num_layers: int, kv_blocks: int, block_size_tokens: int, **settings: Setting
) -> Scheduler:
    """Returns a fresh policy for one run.

    Raises RegistryError for an unknown policy and a file that does not hold its own, ConfigError for a setting that the
    policy does not have or a value that it cannot use.
    """
    factory = SCHEDULERS.get(name)
    _check_names(name, factory, settings)
    return factory(num_layers=num_layers, kv_blocks=kv_blocks, block_size_tokens=block_size_tokens, **settings)


def setting_names(name: str) -> tuple[str, ...]:
    """Returns the settings that `make_scheduler` takes for this policy; none where it takes any. Raises
    RegistryError."""
    return tuple(
        parameter.name
        for parameter in inspect.signature(SCHEDULERS.get(name)).parameters.values()
        if parameter.name not in ENGINE_ARGUMENTS and parameter.kind is not inspect.Parameter.VAR_KEYWORD
    )


def keeps_slo(name: str) -> bool:
    """Whether a policy is meant to keep latency limits, and is judged by them. Raises RegistryError."""
    return bool(getattr(SCHEDULERS.get(name), "keeps_slo", False))


def iteration_work(name: str, tokens: int, *, decode_counts: bool) -> Work:
    """Returns the settings under which a policy does about `tokens` tokens of prefill in an iteration, so that policies
    can be compared; none where it knows no such measure. decode_counts: whether the engine lets decode tokens use them
    up. Raises RegistryError."""
    settings: Callable[..., Work] | None = getattr(SCHEDULERS.get(name), "iteration_work", None)
    return {} if settings is None else settings(tokens, decode_counts=decode_counts)


def _check_names(name: str, factory: SchedulerFactory, settings: dict[str, Setting]) -> None:
    parameters = inspect.signature(factory).parameters.values()
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
        return
    for setting in settings:
        if setting not in setting_names(name):
            raise ConfigError(f"policy {name} has no setting {setting!r}; settings: {', '.join(setting_names(name))}")
