"""A child process that answers one message after another: a fresh interpreter, of this environment or another one.

partition/units/child.py has compute units in the same way (lifeline.py is what both share). This one differs where the
interpreter does: what this environment has installed must not get in the other one's way, so only
the folder of this package goes with it, and not where it is a folder of installed packages.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Mapping
from multiprocessing.connection import Pipe
from pathlib import Path
from typing import IO, Any

from pytest_npubench import errors
from pytest_npubench.errors import UnitLostError
from pytest_npubench.lifeline import end_process, last_words, named_error

GRACE_S = 5.0
_PACKAGE_FOLDER = Path(errors.__file__).parent.parent


class Child:
    """`python -m MODULE JSON`, with the numbers of its two pipe ends; see worker.main for its side.

    It holds the reading end of a lifeline, a pipe that nobody writes to: when the owner ends, even by kill -9, the
    pipe closes and the child ends itself.
    """

    def __init__(self, python: str, module: str, *, name: str, environment: Mapping[str, str]) -> None:
        self.name = name
        self._connection, theirs = Pipe()
        lifeline, self._lifeline_end = os.pipe()
        self._output: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the process)
        self._process = subprocess.Popen(
            [python, "-m", module, json.dumps({"connection_fd": theirs.fileno(), "lifeline_fd": lifeline})],
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            pass_fds=(theirs.fileno(), lifeline),
            env={**os.environ, **import_path(python), **environment},
        )
        os.close(lifeline)
        theirs.close()
        self._end = weakref.finalize(
            self, end_process, self._process, self._connection, self._lifeline_end, self._output, GRACE_S
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_open(self) -> bool:
        return self._end.alive and self._process.poll() is None

    def log(self) -> tuple[str, ...]:
        """The lines it has written so far; read past the offset, which it writes on at. Empty once it is closed."""
        if self._output.closed:
            return ()
        number = self._output.fileno()
        text = os.pread(number, os.fstat(number).st_size, 0)
        return tuple(text.decode(errors="replace").splitlines())

    def call(self, *message: object, timeout_s: float) -> Any:
        """Send a message and wait for its answer. Raises the child's named error; UnitLostError, with its last words,
        where it dies or gives none in time."""
        if not self._end.alive:
            raise UnitLostError(f"{self.name} was closed")
        try:
            self._connection.send(message)
            if not self._connection.poll(timeout_s):
                raise self._lost(f"gave no answer within {timeout_s:g} s and was ended", wait_s=0.0)
            kind, value = self._connection.recv()
        except (EOFError, OSError):
            raise self._lost("was lost", wait_s=GRACE_S) from None
        except BaseException:
            self.close(grace_s=0.0)  # interrupted: its answer would be taken for the next one's
            raise
        if kind == "error":
            raise named_error(*value)
        return value

    def close(self, *, grace_s: float = GRACE_S) -> None:
        """End the process and wait for it, by force after grace_s. May be called twice."""
        if self._end.detach() is not None:
            end_process(self._process, self._connection, self._lifeline_end, self._output, grace_s)

    def _lost(self, how: str, *, wait_s: float) -> UnitLostError:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(wait_s)
        code = self._process.poll()
        ended = "" if code is None else f": killed by signal {-code}" if code < 0 else f": exit status {code}"
        words = last_words(self._output)
        self.close(grace_s=0.0)
        return UnitLostError(f"{self.name} {self.pid} {how}{ended}{words}")


def import_path(python: str) -> dict[str, str]:
    """PYTHONPATH of the child: all of ours for the same interpreter, else this package's folder alone."""
    if python == sys.executable:
        return {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return {"PYTHONPATH": "" if _PACKAGE_FOLDER.name.endswith("-packages") else str(_PACKAGE_FOLDER)}
