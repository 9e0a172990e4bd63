"""An object in a child process: `python -m pytest_npubench.processes.hosted JSON`.

{"made_by": "MODULE:NAME", ...} names the function or class that makes it from these arguments. Its methods are answered
by name until the owner closes its end.
"""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any

from pytest_npubench.processes.owner import Owner

MODULE = "pytest_npubench.processes.hosted"


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
