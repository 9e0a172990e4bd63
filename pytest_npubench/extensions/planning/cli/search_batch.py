"""`npubench search batch`: the cheapest batch size for a workload, out of profiles of several."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npubench.cli.arguments import (
    Commands,
    add_command,
    columns,
    number,
    percent,
    print_document,
    print_error,
    say,
    time_limit,
)
from pytest_npubench.errors import ConfigError, InfeasibleError
from pytest_npubench.extensions.planning.cli.search_buckets import add_load, drawn
from pytest_npubench.reports import number_text

if TYPE_CHECKING:
    from pytest_npubench.extensions.planning.batch_search import BatchSpeed

EXAMPLE = "npubench search batch b1.json b4.json b16.json --workload lens-sharegpt --max-tbt 50ms"


def add_parser(subjects: Commands) -> None:
    parser = add_command(subjects, "batch", "find the cheapest batch size for a workload by LENS", EXAMPLE)
    parser.add_argument(
        "profiles", metavar="PROFILE.json", type=Path, nargs="+", help="a bucket profile of each batch size"
    )
    parser.add_argument("--max-ttft", metavar="TIME", type=time_limit, help="of a batch's last prompt, such as 2s")
    parser.add_argument("--max-tbt", metavar="TIME", type=time_limit, help="of a decode step, such as 50ms")
    parser.add_argument(
        "--quantile",
        metavar="PERCENT",
        type=percent,
        default=0.99,
        help="of batches and of steps (default 99%%)",
    )
    parser.add_argument(
        "--device-price",
        metavar="PROFILE.json=PER_HOUR",
        type=_priced,
        action="append",
        default=[],
        help="of the device of a profile (default 1): profiles may be of several devices",
    )
    add_load(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Status 1 where no batch size keeps the limits. Raises StoreError, WorkloadError, ConfigError, LengthError."""
    from pytest_npubench.extensions.planning.batch_search import batch_speed, best_batch, keeps_tbt, keeps_ttft
    from pytest_npubench.suites.buckets.profile_source import profile_from_file
    from pytest_npubench.workloads import ANY_UNIT, workload

    name = workload(arguments.workload, time_unit=ANY_UNIT).name
    profiles = {str(path): profile_from_file(path).profile for path in arguments.profiles}
    prices = dict(arguments.device_price)
    if unknown := sorted(prices.keys() - profiles.keys()):
        raise ConfigError(f"--device-price {unknown[0]}: no profile is named so; there are {', '.join(profiles)}")
    requests = drawn(arguments, min(max(profile.buckets) for profile in profiles.values()))
    speeds = [
        batch_speed(
            path,
            profile,
            requests,
            finished=arguments.finished,
            quantile=arguments.quantile,
            price_per_hour=prices.get(path, 1.0),
        )
        for path, profile in profiles.items()
    ]
    speeds.sort(key=lambda speed: (speed.cost, speed.batch_size))
    kept = [speed for speed in speeds if keeps_ttft(speed, arguments.max_ttft) and keeps_tbt(speed, arguments.max_tbt)]
    try:
        best, why = best_batch(speeds, max_ttft_s=arguments.max_ttft, max_tbt_s=arguments.max_tbt), None
    except InfeasibleError as error:
        best, why = None, error
    if arguments.json:
        print_document(
            "batch-search",
            workload=name,
            num_requests=len(requests),
            quantile=arguments.quantile,
            best=best and best.name,
            batches=[{**asdict(speed), "keeps_limits": speed in kept} for speed in speeds],
        )
    else:
        say(f"{len(requests)} requests of {name}; times are p{100 * arguments.quantile:g}")
        print(columns([("batch", "tokens/s", "TTFT", "TBT", "cost of 1M", "", "profile"), *_rows(speeds, kept, best)]))
    if why:
        print_error(why)
    return 1 if why else 0


def _rows(
    speeds: list[BatchSpeed], kept: list[BatchSpeed], best: BatchSpeed | None
) -> list[tuple[str, str, str, str, str, str, str]]:
    return [
        (
            str(one.batch_size),
            number_text.plain(one.tokens_per_s),
            number_text.time(one.ttft_s),
            "none" if one.tbt_s is None else number_text.time(one.tbt_s),
            number_text.plain(one.cost),
            "best" if one is best else "" if one in kept else "over a limit",
            one.name,
        )
        for one in speeds
    ]


def _priced(text: str) -> tuple[str, float]:
    name, equals, value = text.rpartition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{text[:60]!r}: want PROFILE.json=PER_HOUR, such as b4.json=2.5")
    return name, number(value, "a price above 0", lambda price: price > 0)
