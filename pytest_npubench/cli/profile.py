"""`npubench profile`: the bucket profile of a campaign in a journal, as a file that `npubench predict` reads."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npubench.cli.arguments import add_command, add_json_option, check_other_file, columns, print_document, say
from pytest_npubench.core.regular_file import replace_text

if TYPE_CHECKING:
    from pytest_npubench.cli.arguments import Commands
    from pytest_npubench.predictors.profile import BucketProfile

EXAMPLE = "npubench profile --journal .npubench/journal.jsonl --campaign cpu-tiny-llama-b4 -o profile.json"


def add_parser(commands: Commands, about: str) -> None:
    parser = add_command(commands, "profile", about, EXAMPLE)
    parser.add_argument("--journal", metavar="PATH", type=Path, required=True, help="the journal of a run")
    parser.add_argument("--campaign", metavar="KEY", required=True, help="HARDWARE-MODEL-bN, as in the case ids")
    parser.add_argument("-o", "--output", metavar="PROFILE.json", type=Path, required=True, help="the file to write")
    add_json_option(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Raises JournalError and MeasurementError as profile_from_journal, OSError where nothing can be written."""
    from pytest_npubench.store.journal_reader import read_journal
    from pytest_npubench.suites.buckets.profile_source import profile_from_journal

    check_other_file(arguments.output, arguments.journal)
    sourced = profile_from_journal(read_journal(arguments.journal), arguments.campaign)
    replace_text(arguments.output, json.dumps(sourced.profile.to_json(), indent=1) + "\n")
    if arguments.json:
        profile = sourced.profile.to_json()
        print_document(
            "profile-written", output=arguments.output, source=sourced.source, notes=sourced.remarks, profile=profile
        )
        return
    say(f"from    {sourced.source}")
    for remark in sourced.remarks:
        say(f"note    {remark}")
    print(columns([("bucket", "ttft_s", "tbt_s"), *_rows(sourced.profile)]))
    say(f"wrote   {arguments.output}")


def _rows(profile: BucketProfile) -> list[tuple[str, str, str]]:
    return [
        (str(bucket), _seconds(timing.ttft_s, timing.ttft_error_s), _seconds(timing.tbt_s, timing.tbt_error_s))
        for bucket, timing in profile.buckets.items()
    ]


def _seconds(value: float | None, error: float | None) -> str:
    """A time with its standard error: "0.01047 s ± 0.00012"."""
    if value is None:
        return "none"
    return f"{value:.4g} s" if error is None else f"{value:.4g} s ± {error:.2g}"
