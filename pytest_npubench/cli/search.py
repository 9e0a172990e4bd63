"""`npubench search`: the cheapest setting that keeps an SLO, among all combinations of what the options name.

Each is simulated on the same load, at the rates from the lowest on until it does not attain; what it costs are its
devices' prices over the highest rate that it carried. Results go to a file as they come: a search that was killed goes
on where it was.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_npubench.cli.arguments import (
    add_command,
    columns,
    device_count,
    number,
    percent,
    print_document,
    print_error,
    process_count,
    rate,
    request_count,
    say,
    seed,
    time_limit,
    token_count,
    whole_number,
)
from pytest_npubench.cli.search_subjects import add_subjects
from pytest_npubench.errors import ConfigError, NpubenchError, StoreError

if TYPE_CHECKING:
    from pytest_npubench.cli.arguments import Commands
    from pytest_npubench.cli.searched_settings import Candidate, Goal

EXAMPLE = (
    "npubench search --hardware nvidia-h100 nvidia-a100 --model qwen3-30b-a3b --workload layered-sharegpt --rate 1 2 4 "
    "--policy chunked layered --tensor-parallel 1 2 --chunk-size 512 2048 --slo-ttft 5s --slo-tbt 125ms"
)
MOST_SETTINGS = 100_000
NUM_SHOWN = 10
group_count = whole_number(1024)


def add_parser(commands: Commands, about: str) -> None:
    parser = add_command(commands, "search", about, EXAMPLE)
    several: dict[str, Any] = {"nargs": "+", "action": "extend"}
    parser.add_argument("--hardware", metavar="FILE", required=True, help="hardware or cost files", **several)
    parser.add_argument("--model", metavar="SHAPE", required=True, help="as of npubench simulate")
    parser.add_argument("--workload", metavar="NAME_OR_PATH", required=True, help="where the lengths come from")
    parser.add_argument("--requests", metavar="K", type=request_count, default=1000, help="of each run (default 1000)")
    parser.add_argument("--rate", metavar="R", type=rate, required=True, help="requests per second", **several)
    parser.add_argument("--policy", metavar="P", required=True, help="one or more policies", **several)
    parser.add_argument("--tensor-parallel", metavar="N", type=device_count, help="default 1", **several)
    parser.add_argument("--data-parallel", metavar="N", type=device_count, help="default 1", **several)
    parser.add_argument("--expert-parallel", action="store_true", help="replicas share their experts")
    parser.add_argument("--chunk-size", metavar="TOKENS", type=token_count, help="of chunked and hybrid", **several)
    parser.add_argument("--layer-groups", metavar="N", type=group_count, help="of layered and hybrid", **several)
    parser.add_argument("--tokens-per-iteration", metavar="TOKENS", type=token_count, help="likewise", **several)
    parser.add_argument("--max-batch", metavar="N", type=request_count, help="requests admitted", **several)
    parser.add_argument("--slo-ttft", metavar="TIME", type=time_limit, required=True, help="such as 5s")
    parser.add_argument("--slo-tbt", metavar="TIME", type=time_limit, required=True, help="such as 125ms")
    parser.add_argument("--attainment", metavar="PERCENT", type=percent, default=0.9, help="default 90%%")
    parser.add_argument(
        "--price", metavar="FILE=PER_HOUR", type=_price, action="append", default=[], help="of a device (default 1)"
    )
    parser.add_argument("--seed", type=seed, default=0, help="of lengths, arrivals and router (default 0)")
    parser.add_argument("--processes", metavar="N", type=process_count, help="default: one a core")
    parser.add_argument(
        "--results", metavar="PATH", type=Path, help="where results are kept, and read from (default: nowhere)"
    )
    parser.add_argument("--picture", metavar="PAGE.html", type=Path, help="price over rate, and who is best at what")
    parser.add_argument("--json", action="store_true", help="print JSON, every setting with what was tried")
    parser.set_defaults(run=run)
    add_subjects(parser)


def run(arguments: argparse.Namespace) -> int:
    """Status 2 for what cannot be searched, 1 where no setting attains."""
    try:
        rows = searched(arguments)
        if arguments.picture:
            from pytest_npubench.cli.run_files import search_picture_text, write

            write(arguments.picture, search_picture_text(rows))
    except NpubenchError as error:
        print_error(error)
        return 2
    feasible = [row for row in rows if row["cost"] is not None]
    if arguments.json:
        print_document("search", num_settings=len(rows), settings=rows)
    else:
        _show(rows, feasible)
    if not feasible:
        print_error(_closest(rows, arguments.attainment))
    return 0 if feasible else 1


def searched(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for each setting, the cheapest first. cost: of 1,000 requests. Raises ConfigError, StoreError."""
    from pytest_npubench.cli.searched_settings import Goal, candidates
    from pytest_npubench.workloads import workload

    workload(arguments.workload)
    found = list(
        candidates(
            hardware=arguments.hardware,
            tensor_parallel=arguments.tensor_parallel or [1],
            data_parallel=arguments.data_parallel or [1],
            policies=arguments.policy,
            settings={
                name: values
                for name, values in (
                    ("chunk_size_tokens", arguments.chunk_size),
                    ("num_layer_groups", arguments.layer_groups),
                    ("tokens_per_iteration", arguments.tokens_per_iteration),
                    ("max_batch_size", arguments.max_batch),
                )
                if values
            },
        )
    )
    if len(found) > MOST_SETTINGS:
        raise ConfigError(f"{len(found)} settings; want at most {MOST_SETTINGS}")
    prices = dict(arguments.price)
    if unknown := sorted(prices.keys() - set(arguments.hardware)):
        raise ConfigError(f"--price {unknown[0]}: none of --hardware is named so; there are {arguments.hardware}")
    goal = Goal(
        model=arguments.model,
        workload=arguments.workload,
        num_requests=arguments.requests,
        rates_per_s=tuple(sorted(set(arguments.rate))),
        slo_ttft_s=arguments.slo_ttft,
        slo_tbt_s=arguments.slo_tbt,
        attainment=arguments.attainment,
        seed=arguments.seed,
        expert_parallel=arguments.expert_parallel,
    )
    rows = []
    for candidate, result in _results(found, goal, arguments):
        price = prices.get(candidate.hardware, 1.0) * candidate.num_devices
        carried = result["rate_per_s"]
        cost = None if carried is None else 1000 * price / (3600 * carried)
        rows.append({"name": candidate.name, "devices": candidate.num_devices, "price": price, "cost": cost, **result})
    return sorted(rows, key=lambda row: (row["cost"] is None, row["cost"] or 0.0, row["name"]))


def _results(
    found: Sequence[Candidate], goal: Goal, arguments: argparse.Namespace
) -> Iterator[tuple[Candidate, dict[str, Any]]]:
    """In no order; those that the file has first."""
    from pytest_npubench.cli.searched_settings import end_with_owner, evaluate

    known = _read(arguments.results)
    left = []
    for candidate in found:
        if (result := known.get(candidate.key(goal))) is None:
            left.append(candidate)
        else:
            yield candidate, result
    if left and len(left) < len(found):
        print(
            f"npubench: {len(found) - len(left)} of {len(found)} settings are in {arguments.results}", file=sys.stderr
        )
    processes = min(arguments.processes or os.cpu_count() or 1, max(1, len(left)))
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, context, initializer=end_with_owner) as pool:
        running = {pool.submit(evaluate, candidate, goal): candidate for candidate in left}
        try:
            for done, future in enumerate(as_completed(running), len(found) - len(left) + 1):
                result = future.result()
                _append(arguments.results, running[future].key(goal), result)
                if done % max(1, len(found) // 20) == 0 or done == len(found):
                    print(f"npubench: {done} of {len(found)} settings", file=sys.stderr, flush=True)
                yield running[future], result
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _read(path: Path | None) -> dict[str, dict[str, Any]]:
    """By key. A last line that was cut short by a kill is left out. Raises StoreError for what is no such file."""
    if path is None or not path.exists():
        return {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    except (OSError, UnicodeDecodeError) as error:
        raise StoreError(f"{path}: {error}") from error
    found = {}
    for place, line in enumerate(lines, 1):
        try:
            entry = json.loads(line)
            found[entry["key"]] = {name: entry[name] for name in ("rate_per_s", "why", "tried")}
        except (ValueError, KeyError, TypeError):
            if place < len(lines) or line.endswith("\n"):
                raise StoreError(f"{path}, line {place}: no result of a search; want the file of one") from None
    return found


def _append(path: Path | None, key: str, result: Mapping[str, Any]) -> None:
    if path is None:
        return
    try:
        with path.open("a+b") as stream:
            if stream.tell():
                stream.seek(-1, os.SEEK_END)
                if stream.read(1) != b"\n":  # what a kill cut short
                    _cut(stream)
            stream.write((json.dumps({"key": key, **result}) + "\n").encode())
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror or error}") from error


def _cut(stream: Any) -> None:
    """Back to the end of the last whole line."""
    stream.seek(0)
    stream.truncate(stream.read().rfind(b"\n") + 1)


def _show(rows: Sequence[Mapping[str, Any]], feasible: Sequence[Mapping[str, Any]]) -> None:
    refused = [row for row in rows if row["why"]]
    say(f"{len(rows)} settings, {len(feasible)} attain, {len(refused)} cannot be served; no device ran: virtual clock")
    if feasible:
        shown = [
            (
                f"{row['cost']:.4g}",
                f"{row['rate_per_s']:g}/s",
                str(row["devices"]),
                f"{_attained(row):.1%}",
                row["name"],
            )
            for row in feasible[:NUM_SHOWN]
        ]
        print(columns([("cost of 1000", "carries", "devices", "attained", "setting"), *shown]))
    for row in refused[:3]:
        say(f"not served: {row['name']}: {row['why']}")


def _attained(row: Mapping[str, Any]) -> float:
    """At the rate that it carries."""
    return float(next(one["attainment"] for one in row["tried"] if one["rate_per_s"] == row["rate_per_s"]))


def _closest(rows: Sequence[Mapping[str, Any]], wanted: float) -> str:
    tried = [(row["tried"][0], row["name"]) for row in rows if row["tried"]]
    if not tried:
        return f"none of {len(rows)} settings can be served: {rows[0]['why'] if rows else 'there is none'}"
    best, name = max(tried, key=lambda one: one[0]["attainment"])
    limit = "TTFT" if best["ttft"] < best["tbt"] else "TBT"
    return (
        f"no setting attains {wanted:.0%}; the closest is {name} with {best['attainment']:.1%} at "
        f"{best['rate_per_s']:g} requests/s ({limit} is what it misses more: TTFT {best['ttft']:.1%}, "
        f"TBT {best['tbt']:.1%})"
    )


def _price(text: str) -> tuple[str, float]:
    name, equals, value = text.rpartition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{text[:60]!r}: want FILE=PER_HOUR, such as nvidia-h100=2.5")
    return name, number(value, "a price above 0", lambda price: price > 0)
