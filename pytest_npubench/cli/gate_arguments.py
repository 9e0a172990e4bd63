"""What `npubench compare` and `npubench ab` have in common: how strict the gate is, and how its findings are shown."""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npubench.cli.arguments import number, print_document
from pytest_npubench.cli.plain_streams import print_styled
from pytest_npubench.core.regular_file import replace_text
from pytest_npubench.core.run_folders import RunFolders

if TYPE_CHECKING:
    from pytest_npubench.comparison.outcome import Comparison

MARGIN = "0.01"
Q = 0.05
INCONCLUSIVE_SHARE = 0.5


def add_judging_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--margin",
        metavar="FRACTION",
        type=_margin,
        default="",
        help="a change up to this does not matter (default: that of runs here, 0.01 unless set)",
    )
    parser.add_argument(
        "--q", metavar="FRACTION", type=_q, default=Q, help="share of false alarms among the alarms (default: 0.05)"
    )
    parser.add_argument(
        "--metric", metavar="NAME", action="append", default=[], help="only this metric; may be repeated"
    )


def add_gate_options(parser: argparse.ArgumentParser) -> None:
    add_judging_options(parser)
    parser.add_argument(
        "--inconclusive-share",
        metavar="FRACTION",
        type=_share,
        default=INCONCLUSIVE_SHARE,
        help="exit with 3 where more than this share could not be decided (default: 0.5)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("-o", "--output", metavar="PAGE.html", type=Path, help="write the findings as a page too")


def print_comparison(comparison: Comparison, arguments: argparse.Namespace) -> int:
    """Returns the exit status of the gate. Raises OSError where the page cannot be written."""
    from pytest_npubench.reports.comparison import comparison_html, comparison_json, render_comparison

    status = comparison.exit_status(arguments.inconclusive_share)
    if arguments.json:
        print_document("comparison", **comparison_json(comparison, status))
    else:
        width = shutil.get_terminal_size((120, 24)).columns
        print_styled(render_comparison(comparison, width=width, color=sys.stdout is not None and sys.stdout.isatty()))
    if arguments.output is not None:
        replace_text(arguments.output, comparison_html(comparison))
    return status


def _margin(text: str) -> float:
    setting = None if text else RunFolders.here().margin
    want = f"a fraction from 0 to below 1, such as 0.01{', in the settings of runs here' if setting else ''}"
    return number(text or setting or MARGIN, want, lambda value: 0 <= value < 1)


def _q(text: str) -> float:
    return number(text, "a fraction between 0 and 1, such as 0.05", lambda value: 0 < value < 1)


def _share(text: str) -> float:
    return number(text, "a fraction from 0 to 1, such as 0.5", lambda value: 0 <= value <= 1)
