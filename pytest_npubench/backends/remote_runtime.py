"""A runtime of what runs elsewhere: no Python function of this process reaches it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from pytest_npubench.core.measurement import CompileRecord
from pytest_npubench.errors import DeviceUnavailableError, MeasurementError


class RemoteRuntime:
    """takes: what it takes instead of a function; elsewhere: that a callable does not run there, and what does."""

    takes: ClassVar[str]
    elsewhere: ClassVar[str]

    def __init__(self) -> None:
        self.compiles: list[CompileRecord] = []

    @property
    def num_process_compiles(self) -> int:
        """0: this process compiles nothing for it."""
        return 0

    def compile(
        self, name: str, function: Callable[..., Any], *arguments: Any, donate: tuple[int, ...] = (), out: Any = None
    ) -> Callable[..., Any]:
        """Raises DeviceUnavailableError always."""
        raise DeviceUnavailableError(f"{name}: {self.takes}, no Python function")

    def synchronize(self, value: Any) -> None:
        """Raises MeasurementError always: a callable of this process never runs there."""
        raise MeasurementError(self.elsewhere)

    def close(self) -> None:
        """Nothing is held here."""
