"""`npubench search`: the cheapest setting that keeps an SLO, among all combinations of what the options name.

What a setting carries is the highest of the rates up to which, from the lowest on, it attains on the same load; what it
costs are its devices' prices over that. Only what may be among the best is simulated. Outcomes go to
a file as they come: a search that was killed goes on where it was.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_npubench.cli.arguments import (
    Commands,
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
from pytest_npubench.errors import ConfigError, NpubenchError
from pytest_npubench.extensions.planning.cli import search_batch, search_buckets
from pytest_npubench.reports import report_extra
from pytest_npubench.reports.number_text import plain

if TYPE_CHECKING:
    from pytest_npubench.extensions.planning.cli.best_settings import Contender, Simulations
    from pytest_npubench.extensions.planning.cli.searched_settings import Goal, Outcome

EXAMPLE = (
    "npubench search --hardware nvidia-h100 nvidia-a100 --model qwen3-30b-a3b --workload layered-sharegpt --rate 1 2 4 "
    "--policy chunked layered --tensor-parallel 1 2 --chunk-size 512 2048 --slo-ttft 5s --slo-tbt 125ms"
)
MOST_SETTINGS = 100_000
POOLS = ("prefill_devices", "prefill_replicas", "decode_replicas")
PROGRESS_EVERY = 25
setting_count = whole_number(MOST_SETTINGS)
group_count = whole_number(1024)


def add_parser(commands: Commands, about: str) -> None:
    parser = add_command(commands, "search", about, EXAMPLE)
    several: dict[str, Any] = {"nargs": "+", "action": "extend"}
    parser.add_argument("--hardware", metavar="FILE", required=True, help="hardware or cost files", **several)
    parser.add_argument("--model", metavar="SHAPE", required=True, help="as of npubench simulate")
    parser.add_argument("--workload", metavar="NAME_OR_PATH", required=True, help="where the lengths come from")
    parser.add_argument(
        "--num-requests", metavar="K", type=request_count, default=1000, help="of each run (default 1000)"
    )
    parser.add_argument("--rate", metavar="R", type=rate, required=True, help="requests per second", **several)
    parser.add_argument("--policy", metavar="P", required=True, help="one or more policies", **several)
    parser.add_argument("--tensor-parallel", metavar="N", type=device_count, help="default 1", **several)
    parser.add_argument("--pipeline-parallel", metavar="N", type=device_count, help="stages, default 1", **several)
    for name in POOLS:
        option = f"--{name.replace('_', '-')}"
        parser.add_argument(option, metavar="N", type=device_count, help="of disaggregated", **several)
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
        "--price",
        metavar="FILE=PER_HOUR",
        type=_price,
        action="append",
        default=[],
        help="of a device (default: the file's)",
    )
    parser.add_argument(
        "--objective",
        choices=("cost", "devices", "goodput"),
        default="cost",
        help="the least cost of a request (default), the fewest devices, or the most requests in time a device",
    )
    parser.add_argument("--top", metavar="N", type=setting_count, default=10, help="of the best (default 10)")
    parser.add_argument("--seed", type=seed, default=0, help="of lengths, arrivals and router (default 0)")
    parser.add_argument("--processes", metavar="N", type=process_count, help="default: one a core")
    parser.add_argument(
        "--results", metavar="PATH", type=Path, help="where results are kept, and read from (default: nowhere)"
    )
    parser.add_argument(
        "-o", "--output", metavar="PAGE.html", type=Path, help="price over rate, and who is best at what"
    )
    parser.add_argument("--json", action="store_true", help="print JSON, the best with what was tried")
    parser.set_defaults(run=run)
    _add_subjects(parser)


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """best: the best settings and, where they are not among them, the best at each price. nearest: where there are
    none."""

    contenders: Sequence[Contender]
    best: Sequence[Contender]
    nearest: tuple[Contender, Outcome] | None


def run(arguments: argparse.Namespace) -> int:
    """The status is 2 for what cannot be searched, 1 where no setting attains."""
    try:
        search = searched(arguments)
        rows = [_row(one) for one in search.best]
        sought = _sought(arguments, rows)
        doubts = [
            *_left_out(arguments),
            *_doubts(arguments.model, [one.candidate.hardware for one in search.best]),
        ]
        if arguments.output:
            from pytest_npubench.cli.run_files import write

            with report_extra():
                from pytest_npubench.extensions.planning.report.search_page import search_page
            write(arguments.output, search_page(rows, len(search.contenders), sought, doubts))
    except NpubenchError as error:
        print_error(error)
        return 2
    if arguments.json:
        print_document("search", best=sought, num_settings=len(search.contenders), settings=rows, doubts=doubts)
    else:
        say(sought)
        _show(rows, len(search.contenders), [one for one in search.contenders if one.why])
        for words in doubts:
            say(f"doubt: {words}")
    if not rows:
        print_error(_closest(search, arguments.attainment))
    return 0 if rows else 1


def searched(arguments: argparse.Namespace) -> Search:
    """Raises ConfigError, StoreError."""
    from pytest_npubench.extensions.planning.cli.best_settings import (
        OBJECTIVES,
        Simulations,
        best,
        best_at_each_price,
        closest,
    )
    from pytest_npubench.extensions.planning.cli.search_pools import processes
    from pytest_npubench.extensions.planning.cli.search_results import append
    from pytest_npubench.extensions.planning.cli.searched_settings import Goal
    from pytest_npubench.workloads import ANY_UNIT, workload

    workload(arguments.workload, time_unit=ANY_UNIT)
    contenders = _contenders(arguments)
    goal = Goal(
        model=arguments.model,
        workload=arguments.workload,
        num_requests=arguments.num_requests,
        slo_ttft_s=arguments.slo_ttft,
        slo_tbt_s=arguments.slo_tbt,
        attainment=arguments.attainment,
        seed=arguments.seed,
        expert_parallel=arguments.expert_parallel,
    )
    num_simulations = 0

    def learnt(contender: Contender, outcome: Outcome) -> None:
        nonlocal num_simulations
        num_simulations += 1
        if arguments.results:
            append(arguments.results, contender.candidate.key(goal), outcome)
        if num_simulations % PROGRESS_EVERY == 0:
            tested = sum(bool(each.outcomes) for each in contenders)
            print(
                f"npubench: {num_simulations} simulations, of {tested} of {len(contenders)} settings",
                file=sys.stderr,
                flush=True,
            )

    rank = OBJECTIVES[arguments.objective]
    with processes(arguments.processes or os.cpu_count() or 1) as pool:
        simulations = Simulations(pool, goal, learnt)
        _outcomes_into(contenders, simulations, goal, arguments.results)
        chosen = best(contenders, rank, arguments.top, simulations)
        chosen += [contender for contender in best_at_each_price(contenders, simulations) if contender not in chosen]
        nearest = None if chosen else closest(contenders, min(arguments.rate), simulations)
    return Search(contenders=contenders, best=chosen, nearest=nearest)


def _contenders(arguments: argparse.Namespace) -> list[Contender]:
    from pytest_npubench.extensions.planning.cli.best_settings import Contender
    from pytest_npubench.extensions.planning.cli.searched_settings import candidates

    chosen = list(
        candidates(
            hardware=arguments.hardware,
            tensor_parallel=arguments.tensor_parallel or [1],
            pipeline_parallel=arguments.pipeline_parallel or [1],
            pools={name: values for name in POOLS if (values := getattr(arguments, name))},
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
    if len(chosen) > MOST_SETTINGS:
        raise ConfigError(f"{len(chosen)} settings; want at most {MOST_SETTINGS}")
    prices = dict(arguments.price)
    if unknown := sorted(prices.keys() - set(arguments.hardware)):
        raise ConfigError(f"--price {unknown[0]}: none of --hardware is named so; there are {arguments.hardware}")
    prices = {name: prices.get(name) or _stated_price(name) for name in arguments.hardware}
    unpriced = [name for name, price in prices.items() if price is None]
    if unpriced and len(prices) > 1 and arguments.objective == "cost":
        raise ConfigError(
            f"{unpriced[0]} has no price, so that its cost cannot be ranked against others'; want --price "
            f"{unpriced[0]}=PER_HOUR, [price] in its file, or --objective devices or goodput"
        )
    rates_per_s = tuple(sorted(set(arguments.rate)))
    return [
        Contender(one, (prices[one.hardware] or 1.0) * one.num_devices, rates_per_s) for one in dict.fromkeys(chosen)
    ]


def _stated_price(name: str) -> float | None:
    """Of an hour of one device, as its hardware file states; None: it states none, or it is a cost file. Raises
    ConfigError, HardwareFileError for a file that cannot be read."""
    from pytest_npubench.extensions.planning.cli.system_options import hardware

    if name.endswith(".json"):
        return None
    spec = hardware(name)
    return spec.price.value / spec.devices_per_chip if spec.price else None


def _outcomes_into(contenders: Sequence[Contender], simulations: Simulations, goal: Goal, results: Path | None) -> None:
    """The contenders get the outcomes that the file holds."""
    from pytest_npubench.extensions.planning.cli.search_results import read

    kept = read(results)
    number = 0
    for contender in contenders if kept else ():
        outcomes = [
            outcome
            for outcome in kept.get(contender.candidate.key(goal), ())
            if outcome.rate_per_s in contender.rates_per_s
        ]
        for outcome in outcomes:
            simulations.add(contender, outcome)
        number += len(outcomes)
    if number:
        print(f"npubench: {number} simulations are in {results}", file=sys.stderr)


def _row(contender: Contender) -> dict[str, Any]:
    """A row describes a setting that is settled. cost: of 1,000 requests. is_largest: no larger rate was tried."""
    carried = contender.rate_per_s
    assert carried is not None
    tried = [contender.outcomes[rate_per_s] for rate_per_s in contender.tried_up_to(carried)]
    return {
        "name": contender.candidate.name,
        "devices": contender.candidate.num_devices,
        "price": contender.price,
        "cost": contender.cost,
        "rate_per_s": carried,
        "is_largest": carried == contender.rates_per_s[-1],
        "tried": [
            {
                "rate_per_s": outcome.rate_per_s,
                "attainment": outcome.attainment,
                "ttft": outcome.ttft,
                "tbt": outcome.tbt,
            }
            for outcome in tried
        ],
    }


def _carried(row: Mapping[str, Any]) -> str:
    """The rate that a setting carries: at least so many where no larger one was tried."""
    return f">= {row['rate_per_s']:g}/s (largest tried)" if row["is_largest"] else f"{row['rate_per_s']:g}/s"


def _sought(arguments: argparse.Namespace, rows: Sequence[Mapping[str, Any]]) -> str:
    """The best setting in a line, and what it was sought for."""
    best = f"best: {rows[0]['name']}, carries {_carried(rows[0])}" if rows else "best: none attains"
    return (
        f"{best}; {arguments.model} with {arguments.workload}, {arguments.attainment:.0%} within TTFT "
        f"{arguments.slo_ttft:g} s and every TBT {1e3 * arguments.slo_tbt:g} ms"
    )


def _left_out(arguments: argparse.Namespace) -> list[str]:
    """In words, how many requests no setting was asked to serve."""
    from pytest_npubench.engines.hf_config import stated_context_tokens
    from pytest_npubench.workloads import ANY_UNIT, workload

    most = stated_context_tokens(arguments.model)
    lengths = workload(arguments.workload, time_unit=ANY_UNIT)
    whole, within = (
        lengths.sample(arguments.num_requests, seed=arguments.seed, max_total_tokens=limit) for limit in (None, most)
    )
    longer = within.num_dropped - whole.num_dropped  # some workloads have a limit of their own
    words = f"{longer} of {within.num_drawn} requests are longer than the context of {most} tokens, and left out"
    return [words] if longer > 0 else []


def _doubts(model: str, hardware: Sequence[str]) -> list[str]:
    """In words, what the cost files that serve were doubted for, and what of the model is not read or not counted."""
    from pytest_npubench.engines.hf_config import named_or_read
    from pytest_npubench.extensions.planning.virtual.cost_file import read_cost_file

    if not hardware:
        return []
    costs = [read_cost_file(Path(name)) for name in dict.fromkeys(hardware) if name.endswith(".json")]
    return list(dict.fromkeys([*(words for cost in costs for words in cost.doubts), *named_or_read(model).doubts]))


def _show(rows: Sequence[Mapping[str, Any]], num_settings: int, refused: Sequence[Contender]) -> None:
    say(f"{num_settings} settings, the best {len(rows)} of those that attain; no device ran: virtual clock")
    if rows:
        shown = [
            (
                plain(row["cost"]),
                _carried(row),
                str(row["devices"]),
                f"{row['tried'][-1]['attainment']:.1%}",
                row["name"],
            )
            for row in rows
        ]
        print(columns([("cost of 1000", "carries", "devices", "attained", "setting"), *shown]))
    for contender in refused[:3]:
        say(f"not served: {contender.candidate.name}: {contender.why}")


def _closest(search: Search, wanted: float) -> str:
    if search.nearest is None:
        return f"none of {len(search.contenders)} settings can be served: {search.contenders[0].why}"
    contender, outcome = search.nearest
    assert outcome.ttft is not None
    assert outcome.tbt is not None
    limit = "TTFT" if outcome.ttft < outcome.tbt else "TBT"
    return (
        f"no setting attains {wanted:.0%}; the closest is {contender.candidate.name} with {outcome.attainment:.1%} at "
        f"{outcome.rate_per_s:g} requests/s ({limit} is what it misses more: TTFT {outcome.ttft:.1%}, "
        f"TBT {outcome.tbt:.1%})"
    )


def _price(text: str) -> tuple[str, float]:
    name, equals, value = text.rpartition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{text[:60]!r}: want FILE=PER_HOUR, such as nvidia-h100=2.5")
    return name, number(value, "a price above 0", lambda price: price > 0)


class _Subject(argparse._SubParsersAction):  # type: ignore[type-arg]
    """A subject has options of its own: those that the other search wants are not wanted then."""

    def __call__(self, parser: argparse.ArgumentParser, *words: Any) -> None:
        for action in parser._actions:
            action.required = False
        super().__call__(parser, *words)


def _add_subjects(parser: argparse.ArgumentParser) -> None:
    """`search batch` and `search buckets`: searches by LENS, in place of that of serving settings."""
    subjects = parser.add_subparsers(
        metavar="SUBJECT", action=_Subject, help="search by LENS instead: npubench search SUBJECT --help"
    )
    for subject in (search_batch, search_buckets):
        subject.add_parser(subjects)
