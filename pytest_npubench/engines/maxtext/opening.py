"""A MaxEngine from MaxText's own configuration.

    open_maxengine(["base.yml", "model_name=llama3.1-8b", "load_parameters_path=...", "max_target_length=2048"])

Nothing of MaxText is imported before that.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from types import ModuleType

from pytest_npubench.engines.maxtext.interface import MaxEngine
from pytest_npubench.errors import ConfigError, DeviceUnavailableError

# pyconfig and maxengine, as they are called since MaxText became a package "maxtext", and before
LAYOUTS = (
    ("maxtext.configs.pyconfig", "maxtext.inference.maxengine.maxengine"),
    ("MaxText.pyconfig", "MaxText.maxengine"),
)


def open_maxengine(arguments: Sequence[str]) -> MaxEngine:
    """`arguments` are those of MaxText's command line: a configuration file, then KEY=VALUE each.

    Raises DeviceUnavailableError without MaxText or something it needs, ConfigError for what it refuses.
    """
    pyconfig, maxengine = _modules()
    said = " ".join(arguments) or "no arguments"
    try:
        config = pyconfig.initialize(["", *arguments])
    except (ValueError, KeyError, OSError) as error:
        raise ConfigError(f"MaxText refuses {said}: {error}") from error
    except SystemExit as error:  # what MaxText 0.2.5 does where no test runner is imported
        raise ConfigError(f"MaxText refuses {said}; its log above says why") from error
    engine: MaxEngine = maxengine.MaxEngine(config)
    return engine


def _modules() -> tuple[ModuleType, ModuleType]:
    for names in LAYOUTS:
        try:
            pyconfig, maxengine = (import_module(name) for name in names)
        except ModuleNotFoundError as error:
            if not _is_part(error.name, names):
                raise DeviceUnavailableError(f"MaxText needs {error.name}, which is not installed") from error
        else:
            return pyconfig, maxengine
    raise DeviceUnavailableError(
        "MaxText is not installed; want `pip install 'maxtext[tpu]'`, or the extra of another device, in Python 3.12 "
        "(docs/adapters.md)"
    )


def _is_part(missing: str | None, names: Sequence[str]) -> bool:
    """Is what is missing one of these modules, or a package they lie in?"""
    return missing is not None and any(name == missing or name.startswith(f"{missing}.") for name in names)
