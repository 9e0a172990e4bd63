"""`npubench search buckets`: the best set of buckets for a workload, out of those of a profile."""

from __future__ import annotations

import argparse
import io
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npubench.cli.arguments import (
    Commands,
    add_command,
    add_json_option,
    columns,
    number,
    print_document,
    print_error,
    say,
    seed,
    time_limit,
    whole_number,
)
from pytest_npubench.core.documents import csv_rows
from pytest_npubench.core.regular_file import read_text
from pytest_npubench.errors import InfeasibleError, StoreError

if TYPE_CHECKING:
    from pytest_npubench.extensions.planning.bucket_search import BucketSet, Limits
    from pytest_npubench.predictors.profile import BucketProfile

EXAMPLE = "npubench search buckets profile.json --workload lens-sharegpt --max-buckets 3"
COSTS = ("bucket", "compile_s", "memory_bytes")
MAX_BYTES = 1024 * 1024
bucket_count = whole_number(1024)
request_count = whole_number(100_000)  # each is predicted by itself


def add_parser(subjects: Commands) -> None:
    parser = add_command(subjects, "buckets", "find the best set of buckets for a workload by LENS", EXAMPLE)
    parser.add_argument("profile", metavar="PROFILE.json", type=Path, help="its buckets are the candidates")
    parser.add_argument("--max-buckets", metavar="K", type=bucket_count, help="of a set (default: all of them)")
    parser.add_argument(
        "--choice",
        choices=("smallest", "fastest"),
        default="smallest",
        help="which bucket of the set the engine takes: the smallest that holds a length (default), or the fastest",
    )
    parser.add_argument("--costs", metavar="FILE.csv", type=Path, help=f"of each candidate: {', '.join(COSTS)}")
    parser.add_argument("--max-compile-time", metavar="TIME", type=time_limit, help="of a set, such as 600s")
    parser.add_argument("--max-memory", metavar="BYTES", type=_size, help="of a set, such as 8e9")
    add_load(parser)
    parser.set_defaults(run=run)


def add_load(parser: argparse.ArgumentParser) -> None:
    """What is searched for: the same options of both searches."""
    parser.add_argument("--workload", metavar="NAME_OR_PATH", required=True, help="where the lengths come from")
    parser.add_argument("--num-requests", metavar="K", type=request_count, default=1024, help="how many (default 1024)")
    parser.add_argument(
        "--finished",
        choices=("grow", "freeze", "drop"),
        default="freeze",
        help="what a request that ended does in a padded batch (default freeze)",
    )
    parser.add_argument("--seed", type=seed, default=0, help="of the lengths (default 0)")
    add_json_option(parser)


def run(arguments: argparse.Namespace) -> int:
    """Status 1 where no set keeps the limits. Raises StoreError, WorkloadError, ConfigError, LengthError."""
    from pytest_npubench.extensions.planning.bucket_search import Demand, best_sets, set_seconds
    from pytest_npubench.suites.buckets.profile_source import profile_from_file
    from pytest_npubench.workloads import ANY_UNIT, workload

    profile = profile_from_file(arguments.profile).profile
    limits = _limits(arguments)
    requests = drawn(arguments, max(profile.buckets))
    size = profile.batch_size
    batches = [requests[start : start + size] for start in range(0, len(requests), size)]
    demand = Demand.of(profile, batches, arguments.finished)
    all_s = set_seconds(demand, profile, demand.edges, arguments.choice)
    try:
        sets = best_sets(demand, profile, limits, arguments.choice)
    except InfeasibleError as error:
        print_error(error)
        return 1
    inverted = list(_inverted(profile))
    name = workload(arguments.workload, time_unit=ANY_UNIT).name
    if arguments.json:
        print_document(
            "bucket-search",
            workload=name,
            num_requests=len(requests),
            batch_size=size,
            choice=arguments.choice,
            all_buckets={"buckets": demand.edges, "seconds": all_s},
            sets=[_facts(one) for one in sets],
            inverted=[{"bucket": small, "faster": large} for small, large in inverted],
        )
        return 0
    say(f"{len(requests)} requests of {name} in batches of {size}; each takes the {arguments.choice} bucket of the set")
    rows = [(str(len(one.buckets)), f"{one.seconds:.4g} s", *_change(one, all_s), _listed(one)) for one in sets]
    print(columns([("buckets", "predicted", "to all", "set"), *rows]))
    say(f"all {len(demand.edges)} candidates take {all_s:.4g} s; best: {_listed(sets[-1])}")
    for small, large in inverted:
        say(f"note: a decode step of bucket {large} is faster than one of bucket {small}")
    return 0


def drawn(arguments: argparse.Namespace, largest: int) -> list[tuple[int, int]]:
    """(input_tokens, output_tokens) of the workload that the largest bucket holds."""
    from pytest_npubench.workloads import ANY_UNIT, workload

    sample = workload(arguments.workload, time_unit=ANY_UNIT).sample(
        arguments.num_requests, seed=arguments.seed, max_total_tokens=largest
    )
    return [(one.input_tokens, one.output_tokens) for one in sample.requests]


def _limits(arguments: argparse.Namespace) -> Limits:
    from pytest_npubench.extensions.planning.bucket_search import Limits

    costs = _costs(arguments.costs) if arguments.costs else {}
    return Limits(
        max_buckets=arguments.max_buckets,
        max_compile_s=arguments.max_compile_time,
        max_memory_bytes=arguments.max_memory,
        compile_s={bucket: compile_s for bucket, (compile_s, _) in costs.items()},
        memory_bytes={bucket: memory_bytes for bucket, (_, memory_bytes) in costs.items()},
    )


def _costs(path: Path) -> dict[int, tuple[float, float]]:
    """By bucket its compile_s and memory_bytes. Raises StoreError naming the line."""
    try:
        rows = [cells for _, cells in csv_rows(io.StringIO(read_text(path, MAX_BYTES), newline=""))]
    except (OSError, ValueError) as error:
        raise StoreError(f"{path}: {error}") from error
    if not rows or tuple(cell.strip() for cell in rows[0]) != COSTS:
        raise StoreError(f"{path}, line 1: want a header line {','.join(COSTS)}")
    costs: dict[int, tuple[float, float]] = {}
    for line, cells in enumerate(rows[1:], 2):
        try:
            bucket, compile_s, memory_bytes = cells
            costs[int(bucket)] = _size(compile_s), _size(memory_bytes)
        except (ValueError, argparse.ArgumentTypeError):
            raise StoreError(f"{path}, line {line}: want a bucket, and two numbers of 0 or more") from None
    return costs


def _inverted(profile: BucketProfile) -> Iterator[tuple[int, int]]:
    """Neighbours of which the larger one steps faster: the stair does not rise (LENS, section 5.4.2)."""
    for (small, timing), (large, other) in pairwise(profile.buckets.items()):
        if timing.tbt_s is not None and other.tbt_s is not None and other.tbt_s < timing.tbt_s:
            yield small, large


def _facts(bucket_set: BucketSet) -> dict[str, object]:
    return {
        "buckets": bucket_set.buckets,
        "seconds": bucket_set.seconds,
        "compile_s": bucket_set.compile_s,
        "memory_bytes": bucket_set.memory_bytes,
    }


def _change(bucket_set: BucketSet, all_s: float) -> tuple[str]:
    return (f"{bucket_set.seconds / all_s - 1:+.1%}",) if all_s else ("",)


def _listed(bucket_set: BucketSet) -> str:
    return ", ".join(map(str, bucket_set.buckets))


def _size(text: str) -> float:
    return number(text, "a number of 0 or more", lambda value: value >= 0)
