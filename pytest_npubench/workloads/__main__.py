"""`python -m pytest_npubench.workloads [table|refit]`: the statistics table of the docs, or the knots fitted anew."""

from __future__ import annotations

import sys

from pytest_npubench.workloads.length_statistics import markdown_table
from pytest_npubench.workloads.rebuilt import fitted_knots_json

_COMMANDS = {"table": markdown_table, "refit": fitted_knots_json}


def main(arguments: list[str]) -> int:
    """Write the command's text to stdout. 2 for an unknown command, which is answered with the known ones."""
    command = arguments[0] if arguments else "table"
    if len(arguments) > 1 or command not in _COMMANDS:
        sys.stderr.write(f"unknown arguments {arguments}; want one of: {', '.join(_COMMANDS)}\n")
        return 2
    sys.stdout.write(_COMMANDS[command]())
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
