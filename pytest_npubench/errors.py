"""Every error the project raises for a user's input or a device's state. Messages say what, where and what is allowed.

NpubenchError
├── ConfigError              an option, ini key or marker that cannot be used
│   ├── HardwareFileError    a hardware file: names the file and the key
│   ├── EnvironmentUnusableError   a Python environment to compare that does not start or lacks the plugin
│   └── NightlyError         a step of the nightly that cannot be done: names the step's file, branch or folder
├── InfeasibleError          a search that no candidate passes: names the limit that binds
├── RegistryError            a duplicate or broken backend, engine, model or workload
│   └── BrokenEntryError     what another distribution registers and cannot be had: names both
├── LengthError              a length outside the configured buckets
├── WorkloadError            a workload file or name: names the file, line and column
├── MeasurementError         samples that cannot be used (not finite, none, never steady)
│   ├── ImpureProfileError   a profile point left the bucket it measures
├── PartitionError           a split, profile or plan of two units that cannot be used
├── DeviceError
│   ├── DeviceUnavailableError
│   │   └── AccessRefusedError   a service that does not take the user's token
│   ├── DeviceBusyError      another process holds the device: names it
│   └── UnitLostError        a compute unit that died while it worked
└── StoreError               a file of ours that cannot be read or written: names path and line
    ├── FormatVersionError   written by a later version
    ├── JournalError
    ├── BaselineError
    │   └── RunNotAcceptedError   a run that is not green: names the reason
    └── HistoryError         a history database: names it, without its password
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pytest_npubench.plain_text import plain, plain_lines


class NpubenchError(Exception):
    """Base of all errors raised on purpose by pytest-npubench. Its text is one plain line, whatever the names in it."""

    def __str__(self) -> str:
        return plain(" ".join(super().__str__().splitlines()))


class ConfigError(NpubenchError):
    """An option, ini key or marker that cannot be used."""


class HardwareFileError(ConfigError):
    """A hardware file with an unknown, missing or wrong entry."""


class EnvironmentUnusableError(ConfigError):
    """A Python environment to compare that does not start, or lacks the plugin."""


class NightlyError(ConfigError):
    """A step of the nightly that cannot be done."""


class InfeasibleError(NpubenchError):
    """A search whose limits no candidate keeps, with the one that binds."""


class RegistryError(NpubenchError):
    """A duplicate or broken registration."""


class BrokenEntryError(RegistryError):
    """What another distribution registers by an entry point, and cannot be had."""


class LengthError(NpubenchError, ValueError):
    """A length that no configured bucket holds."""


class WorkloadError(NpubenchError, ValueError):
    """A workload that does not exist or a file that does not hold one."""


class MeasurementError(NpubenchError):
    """Samples that cannot be used."""


class CompileRefusedError(MeasurementError):
    """A compiler does not take a program, with its reason."""


class ImpureProfileError(MeasurementError):
    """A profile point that ran in another bucket than the one it measures."""


class PartitionError(NpubenchError, ValueError):
    """A split, profile or plan of two compute units that cannot be used."""


class DeviceError(NpubenchError):
    """A device that cannot be used."""


class DeviceUnavailableError(DeviceError):
    """A device that is not there, with the reason."""


class AccessRefusedError(DeviceUnavailableError):
    """A service behind which devices stand does not take the user's token."""


class DeviceBusyError(DeviceError):
    """A device that another process holds."""


class UnitLostError(DeviceError):
    """A compute unit that died while it worked, with its last words."""


class StoreError(NpubenchError):
    """A file of ours that cannot be read or written."""


class FormatVersionError(StoreError):
    """A file written in a format this version does not know."""


class JournalError(StoreError):
    """A journal that cannot be read or written."""


class BaselineError(StoreError):
    """A baseline file that cannot be read or written."""


class RunNotAcceptedError(BaselineError):
    """A run that may not enter the baselines, with the reason. `waiting` says which of its cases a person may accept by
    name, and how."""

    def __init__(self, reason: str, waiting: tuple[str, ...] = ()) -> None:
        super().__init__(reason)
        self.waiting = waiting

    def __str__(self) -> str:
        return plain_lines(self.args[0])  # a line a case, where there are many


class HistoryError(StoreError):
    """A history database that cannot be opened, read or written."""


def did_you_mean(word: str, allowed: Iterable[str], *, most: int = 1, names: Mapping[str, str] | None = None) -> str:
    """The end of a message about an unknown name: "; did you mean 'probe'?", or nothing where no allowed one is near.
    `names`: what is shown for an allowed word, where that is not the word itself."""
    from difflib import get_close_matches  # only an error needs it, and every import is paid by every pytest run

    words = list(dict.fromkeys(allowed))
    near = get_close_matches(word, words, n=most) or get_close_matches(word.lower(), words, n=most)
    shown = dict.fromkeys(repr(one if names is None else names[one]) for one in near)
    return f"; did you mean {' or '.join(shown)}?" if near else ""
