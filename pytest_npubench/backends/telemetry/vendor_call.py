"""Calls into a vendor's library that may never come back: each in a thread of its own, which can be left behind.

A driver that hangs keeps the thread that asked it, and no signal gets it back. So a call is waited for so long and no
longer, and from then on the vendor is asked nothing: every further call would leave another thread behind. A call that
comes back costs the start of a thread, some 50 us (benchmarks/sample_overhead.py).
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from pytest_npubench.backends.telemetry.state import DeviceState, Telemetry
from pytest_npubench.errors import DeviceError

T = TypeVar("T")
TIMEOUT_S = 10.0


class VendorSilentError(DeviceError):
    """A vendor's library or program gave no answer in time."""


class VendorCalls:
    """All calls of this process into one library, such as "NVML"."""

    def __init__(self, name: str, timeout_s: float = TIMEOUT_S) -> None:
        self.name = name
        self.timeout_s = timeout_s
        self.silent: str | None = None

    def ask(self, question: Callable[[], T]) -> T:
        """What the question returns. Raises what it raises, and VendorSilentError where it, or one before it, did not
        come back."""
        if self.silent is not None:
            raise VendorSilentError(self.silent)
        answer: list[T] = []
        error: list[BaseException] = []

        def run() -> None:
            try:
                answer.append(question())
            except BaseException as raised:  # noqa: BLE001 - raised again below, in the thread that asks
                error.append(raised)

        thread = threading.Thread(target=run, daemon=True, name=f"asks {self.name}")
        thread.start()
        thread.join(self.timeout_s)
        if error:
            raise error[0]
        if not answer:
            raise VendorSilentError(self.give_up())
        return answer[0]

    def give_up(self) -> str:
        """Ask nothing any more. Returns why, in words."""
        self.silent = f"{self.name} gave no answer within {self.timeout_s:g} s and is asked no more"
        return self.silent


class PatientTelemetry:
    """A vendor's telemetry that is opened, read and closed by such calls. Once it was silent, its states say that."""

    def __init__(self, calls: VendorCalls, opener: Callable[[], Telemetry]) -> None:
        """Raises what the opener raises."""
        self._calls = calls
        self._telemetry: Telemetry | None = None
        with suppress(VendorSilentError):  # every state will say so
            self._telemetry = calls.ask(opener)

    def read(self) -> DeviceState:
        """Raises DeviceUnavailableError for a lost device."""
        if self._telemetry is not None and self._calls.silent is None:
            try:
                return self._calls.ask(self._telemetry.read)
            except VendorSilentError:
                pass
            except subprocess.TimeoutExpired:  # a vendor's program, which ended itself
                self._calls.give_up()
        return DeviceState.now(given_up=self._calls.silent)

    def close(self) -> None:
        if self._telemetry is not None and self._calls.silent is None:
            with suppress(VendorSilentError):  # what it holds, it keeps until this process ends
                self._calls.ask(self._telemetry.close)
