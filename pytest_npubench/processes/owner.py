"""The child's side of child.py: where messages come from and answers go.

`python -m pytest_npubench.processes.owner JSON` is a child that makes an object and answers its methods by name until
the owner closes its end; {"made_by": "MODULE:NAME", ...} names what makes it from these arguments.
"""

from __future__ import annotations

import importlib
import json
import os
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from pytest_npubench.errors import NpubenchError
from pytest_npubench.processes import CHILD
from pytest_npubench.processes.child import Messages

Made = TypeVar("Made")


class Owner:
    """The process that started this one as its Child. A process started from here is nobody's child but this one's."""

    def __init__(self) -> None:
        number = int(os.environ.pop(CHILD))
        os.set_inheritable(number, False)
        self._messages = Messages(socket.socket(fileno=number))

    def fileno(self) -> int:
        """Can be read once there is something to receive."""
        return self._messages.fileno()

    def send(self, *message: object) -> None:
        self._messages.send(message)

    def receive(self) -> tuple[Any, ...]:
        """Raises EOFError where the owner has closed its end."""
        message: tuple[Any, ...] = self._messages.receive()
        return message

    def answer(self, value: object) -> None:
        self.send("ok", value)

    def answer_error(self, error: Exception) -> None:
        self.send("error", type(error).__name__, str(error))

    def made(self, make: Callable[[], Made]) -> Made | None:
        """Makes what this process is for. None where that failed; the owner then has the error."""
        try:
            thing = make()
        except Exception as error:  # noqa: BLE001 - the owner says why the process did not start
            self.answer_error(error)
            return None
        self.answer(None)
        return thing

    def serve(self, methods: object, *, answered: type[Exception] = Exception) -> None:
        """Calls the methods that the owner names until it closes its end. An error outside `answered` ends this
        process."""
        with suppress(EOFError, ConnectionError):
            while True:
                name, arguments, keywords = self.receive()
                try:
                    self.answer(getattr(methods, name)(*arguments, **keywords))
                except ConnectionError:
                    raise
                except (answered, NpubenchError) as error:
                    self.answer_error(error)


def main() -> None:
    arguments = json.loads(sys.argv[1])
    owner = Owner()

    def make() -> Any:
        module, _, name = arguments["made_by"].partition(":")
        return getattr(importlib.import_module(module), name)(arguments)

    if (made := owner.made(make)) is not None:
        owner.serve(made)


if __name__ == "__main__":
    main()
