"""What must not change by moving code: the commands of `npubench` and all that their help says.

The parsers themselves are hashed, not the help that argparse prints of them, which each Python writes its own way.
After a change that is meant, `python tests/golden/commands.py` writes the record anew.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

from pytest_npubench.cli.main import make_parser

RECORD = Path(__file__).with_name("commands.json")


def commands() -> dict[str, str]:
    """By command, in the order of the help: a hash of what its help is made of."""
    return {
        path: hashlib.sha256(json.dumps(_said(parser)).encode()).hexdigest()[:12]
        for path, parser in _parsers(make_parser())
    }


def _parsers(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    yield parser.prog, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from _parsers(inner)


def _said(parser: argparse.ArgumentParser) -> list[object]:
    arguments = [
        (action.option_strings, action.dest, action.nargs, str(action.metavar), _choices(action), action.help)
        for action in parser._actions
    ]
    return [parser.usage, parser.description, parser.epilog, arguments]


def _choices(action: argparse.Action) -> list[str]:
    """What may be given; of commands with the line that the help has of each."""
    if isinstance(action, argparse._SubParsersAction):
        return [f"{inner.dest}: {inner.help}" for inner in action._choices_actions]
    return [str(choice) for choice in action.choices or ()]


if __name__ == "__main__":
    RECORD.write_text(json.dumps(commands(), indent=0) + "\n", encoding="utf-8")
