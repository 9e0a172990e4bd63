"""Scheduling policies by name: one file each in this folder, holding one `SCHEDULER`, imported when it is asked for.

    scheduler = make_scheduler("chunked", num_layers=48, kv_blocks=4096, block_size_tokens=16, chunk_size_tokens=256)

A policy of one's own is a class or function that takes num_layers, kv_blocks, block_size_tokens and its settings by
keyword and returns a Scheduler: `register("mine", MyScheduler)`, or an entry point of the group
`pytest_npubench.schedulers`. All that is asked of a policy stands on it (protocol.py): its name and settings, and where
it has them `keeps_slo` and `iteration_work`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from importlib import import_module
from pkgutil import iter_modules

from pytest_npubench.core.entry_points import Entry, clashes, entries
from pytest_npubench.errors import ConfigError, RegistryError, did_you_mean
from pytest_npubench.serving.schedulers.protocol import Scheduler
from pytest_npubench.serving.settings import Setting, Work

SchedulerFactory = Callable[..., Scheduler]

WHAT, GROUP = "scheduling policy", "pytest_npubench.schedulers"
ENGINE_ARGUMENTS = ("num_layers", "kv_blocks", "block_size_tokens")

_registered: dict[str, SchedulerFactory] = {}


def scheduler_names() -> tuple[str, ...]:
    """Every name that `make_scheduler` knows: the shipped ones, those of other distributions, the registered ones."""
    return (*_shipped_names(), *_offered(), *_registered)


def taken() -> tuple[str, ...]:
    """A sentence for each name of a shipped policy that another distribution registers as well."""
    return clashes(WHAT, GROUP, _shipped_names())


def register(name: str, factory: SchedulerFactory) -> None:
    """Make a policy known. Raises RegistryError for a name that is empty or taken, and for what cannot be called."""
    if not name:
        raise RegistryError("a scheduling policy needs a name")
    if name in scheduler_names():
        raise RegistryError(f"a policy named {name!r} already exists; names taken: {', '.join(scheduler_names())}")
    if not callable(factory):
        raise RegistryError(f"policy {name!r}: {factory!r} cannot be called; want a class or function")
    _registered[name] = factory


def make_scheduler(
    name: str, *, num_layers: int, kv_blocks: int, block_size_tokens: int, **settings: Setting
) -> Scheduler:
    """A fresh policy for one run.

    Raises RegistryError for an unknown policy and a file that does not hold its own, ConfigError for a setting that the
    policy does not have or a value that it cannot use.
    """
    factory = _factory(name)
    _check_names(name, factory, settings)
    return factory(num_layers=num_layers, kv_blocks=kv_blocks, block_size_tokens=block_size_tokens, **settings)


def setting_names(name: str) -> tuple[str, ...]:
    """The settings that `make_scheduler` takes for this policy; none where it takes any. Raises RegistryError."""
    return tuple(
        parameter.name
        for parameter in inspect.signature(_factory(name)).parameters.values()
        if parameter.name not in ENGINE_ARGUMENTS and parameter.kind is not inspect.Parameter.VAR_KEYWORD
    )


def keeps_slo(name: str) -> bool:
    """Whether a policy is meant to keep latency limits, and is judged by them. Raises RegistryError."""
    return bool(getattr(_factory(name), "keeps_slo", False))


def iteration_work(name: str, tokens: int, *, decode_counts: bool) -> Work:
    """The settings under which a policy does about `tokens` tokens of prefill in an iteration, so that policies can be
    compared; none where it knows no such measure. decode_counts: whether the engine lets decode tokens use them up.
    Raises RegistryError."""
    settings: Callable[..., Work] | None = getattr(_factory(name), "iteration_work", None)
    return {} if settings is None else settings(tokens, decode_counts=decode_counts)


def _offered() -> Mapping[str, Entry]:
    return entries(WHAT, GROUP, _shipped_names())


def _shipped_names() -> tuple[str, ...]:
    return tuple(sorted(info.name for info in iter_modules(__path__) if info.name != "protocol"))


def _factory(name: str) -> SchedulerFactory:
    if name in _registered:
        return _registered[name]
    if name in _offered():
        offered: SchedulerFactory = _offered()[name].load(callable, "class or function")
        return offered
    if name not in _shipped_names():
        hint = did_you_mean(name, scheduler_names())
        raise RegistryError(f"no scheduling policy {name!r}; known: {', '.join(scheduler_names())}{hint}")
    return _shipped(name)


def _shipped(name: str) -> SchedulerFactory:
    try:
        module = import_module(f"{__name__}.{name}")
    except Exception as error:
        raise RegistryError(f"schedulers/{name}.py cannot be imported: {type(error).__name__}: {error}") from error
    scheduler: SchedulerFactory | None = getattr(module, "SCHEDULER", None)
    if scheduler is None or getattr(scheduler, "name", None) != name:
        raise RegistryError(f"schedulers/{name}.py does not define SCHEDULER of name {name!r}")
    return scheduler


def _check_names(name: str, factory: SchedulerFactory, settings: dict[str, Setting]) -> None:
    parameters = inspect.signature(factory).parameters.values()
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
        return
    for setting in settings:
        if setting not in setting_names(name):
            raise ConfigError(f"policy {name} has no setting {setting!r}; settings: {', '.join(setting_names(name))}")
