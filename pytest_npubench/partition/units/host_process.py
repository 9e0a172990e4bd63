"""The process that holds a pair's units and runs splits on them. Started by HostPair.

    python -m pytest_npubench.partition.units.host_process JSON

It answers messages (method name, arguments) from the process that opened the pair; nothing of a run waits for that
process. `runtime` names the module whose `open_units(arguments, arena)` makes the units.
"""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any

from pytest_npubench.partition.units.arena import SharedArena
from pytest_npubench.processes.child import Owner


def main() -> None:
    arguments = json.loads(sys.argv[1])
    owner = Owner(arguments)
    try:
        runtime = importlib.import_module(arguments["runtime"])
        units = runtime.open_units(arguments, SharedArena(arguments["arena_fd"]))
    except Exception as error:  # noqa: BLE001 (the owner says why the pair did not start)
        owner.answer_error(error)
        return
    owner.answer(units.facts())
    try:
        _serve(owner, units)
    except EOFError:
        return
    finally:
        units.close()


def _serve(owner: Owner, units: Any) -> None:
    while True:
        method, arguments, keywords = owner.connection.recv()
        try:
            owner.answer(getattr(units, method)(*arguments, **keywords))
        except Exception as error:  # noqa: BLE001 (any failure of a unit is the owner's to hear)
            owner.answer_error(error)


if __name__ == "__main__":
    main()
