"""A child process that answers one message after another: a fresh interpreter, of this environment or another one.

What this environment has installed must not get in another one's way, so only the folder of this package goes with it,
and not where it is a folder of installed packages.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from pytest_npubench import errors
from pytest_npubench.processes.child import Child, Ends

GRACE_S = 5.0
_PACKAGE_FOLDER = Path(errors.__file__).parent.parent


class OtherInterpreter(Child):
    """`python -m MODULE JSON`, with the numbers of its two pipe ends; see worker.main for its side."""

    def __init__(self, python: str, module: str, *, name: str, environment: Mapping[str, str]) -> None:
        def command(ends: Ends) -> tuple[Sequence[str], Mapping[str, str]]:
            return [python, "-m", module, json.dumps(ends)], {**os.environ, **import_path(python), **environment}

        super().__init__(command, name=name, grace_s=GRACE_S)


def import_path(python: str) -> dict[str, str]:
    """PYTHONPATH of the child: all of ours for the same interpreter, else this package's folder alone."""
    if python == sys.executable:
        return {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return {"PYTHONPATH": "" if _PACKAGE_FOLDER.name.endswith("-packages") else str(_PACKAGE_FOLDER)}
