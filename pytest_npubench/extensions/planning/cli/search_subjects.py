"""`npubench search batch` and `npubench search buckets`: searches by LENS, in place of that of serving settings."""

from __future__ import annotations

import argparse
from typing import Any

from pytest_npubench.extensions.planning.cli import search_batch, search_buckets


class _Subject(argparse._SubParsersAction):  # type: ignore[type-arg]
    """A subject has options of its own: those that the other search wants are not wanted then."""

    def __call__(self, parser: argparse.ArgumentParser, *words: Any) -> None:
        for action in parser._actions:
            action.required = False
        super().__call__(parser, *words)


def add_subjects(parser: argparse.ArgumentParser) -> None:
    subjects = parser.add_subparsers(
        metavar="SUBJECT", action=_Subject, help="search by LENS instead: npubench search SUBJECT --help"
    )
    for subject in (search_batch, search_buckets):
        subject.add_parser(subjects)
