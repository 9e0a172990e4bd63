"""`npubench load`: requests of a workload to an OpenAI-compatible server at a rate; latency, attainment, throughput.

One block of what the server suite measures in rounds, without journal and baselines.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_npubench.cli.arguments import (
    Commands,
    add_command,
    number,
    percent,
    print_document,
    print_error,
    process_count,
    rate,
    request_count,
    seconds,
    seed,
    time_limit,
    token_count,
)
from pytest_npubench.core.record_reader import WrongEntryError
from pytest_npubench.engines.http.dialects import DIALECTS
from pytest_npubench.errors import NpubenchError
from pytest_npubench.plain_text import plain
from pytest_npubench.reports import report_extra
from pytest_npubench.suites.server.spec import APIS, PROMPTS, of_json

if TYPE_CHECKING:
    from pytest_npubench.engines.http.answer import HttpAnswer
    from pytest_npubench.engines.http.load_run import HttpRun
    from pytest_npubench.serving.capacity import Capacity
    from pytest_npubench.serving.metrics import Slo
    from pytest_npubench.suites.server.blocks import LoadBlock
    from pytest_npubench.suites.server.kinds.capacity import CapacityDetail
    from pytest_npubench.suites.server.loader import Loader
    from pytest_npubench.suites.server.own_figures import Watch
    from pytest_npubench.suites.server.sweep import Sweep

NOT_ATTAINED, NOT_MEASURED = 1, 2
WANTED = 0.9
EXAMPLE = (
    "npubench load --url http://127.0.0.1:8000/v1 --workload layered-sharegpt --rate 2 --slo-ttft 5s --slo-tbt 125ms"
)


def add_parser(commands: Commands, about: str) -> None:
    parser = add_command(commands, "load", about, EXAMPLE)
    parser.description = (
        f"{about}: requests are sent when they are due, whether or not others were answered, and a request that fails "
        "counts against the SLO.\n"
        "Exit status: 0 measured, and attained where limits are given; 1 too few requests attain their SLO, in a sweep "
        "at the lowest rate; 2 not measured: no server, no such model, no answer, or a client that was late itself or "
        "lost a process."
    )
    parser.add_argument("--url", help="such as http://127.0.0.1:8000/v1 (default: $NPUBENCH_SERVER_URL)")
    parser.add_argument("--model", metavar="NAME", help="(default: $NPUBENCH_SERVER_MODEL, or the only one served)")
    parser.add_argument("--warmup", metavar="N", type=_warm_up_count, default=1, help="requests before (default 1)")
    parser.add_argument("--wait-ready", metavar="TIME", type=time_limit, default=0.0, help="for a loading server: 300s")
    parser.add_argument("--workload", metavar="NAME_OR_PATH", required=True, help="as `npubench workloads` lists them")
    rates = parser.add_mutually_exclusive_group(required=True)
    rates.add_argument("--rate", metavar="PER_S", type=rate, help="requests a second, Poisson")
    rates.add_argument("--sweep", action="store_true", help="find the rate at which too few attain the limits")
    parser.add_argument("--num-requests", metavar="N", type=request_count, default=100, help="default 100")
    parser.add_argument("--seed", type=seed, default=0, help="of lengths and arrivals (default 0); prompts are new")
    parser.add_argument("--slo-ttft", metavar="TIME", help="limit on the first token, such as 5s")
    parser.add_argument("--slo-tbt", metavar="TIME", help="limit on every gap between tokens, such as 125ms")
    parser.add_argument("--attainment", metavar="FRACTION", type=_fraction, help="that must attain (default 0.9)")
    parser.add_argument("--dialect", choices=tuple(DIALECTS), help="the fields and the API that such a server takes")
    parser.add_argument("--api", choices=APIS, help="default completions, or what the dialect is best asked by")
    parser.add_argument("--prompt", choices=PROMPTS, help="token ids or words (default: tokens; chat: words)")
    parser.add_argument("--prompts", metavar="FILE", type=Path, help="send its lines (.jsonl: prompts, conversations)")
    parser.add_argument("--shared-prefix", metavar="TOKENS", type=token_count, help="that prompts begin with alike")
    parser.add_argument("--shared-fraction", metavar="FRACTION", type=_fraction, help="of the prompts (default all)")
    parser.add_argument(
        "--max-total-tokens",
        metavar="N",
        type=token_count,
        default=16_384,
        help="longest prompt and answer",
    )
    parser.add_argument(
        "--extra-body", metavar="JSON", type=_object, help='default {"ignore_eos": true}; null leaves a field out'
    )
    parser.add_argument(
        "--query", metavar="NAME=VALUE", action="append", help="of every address, such as api-version=1"
    )
    parser.add_argument("--header", metavar="NAME=VARIABLE", action="append", help="sent with what VARIABLE holds")
    parser.add_argument(
        "--timeout", metavar="SECONDS", type=seconds, help="for an answer (default: 70 and 5 a token, 600 at most)"
    )
    parser.add_argument(
        "--processes",
        metavar="N",
        type=process_count,
        default=1,
        help="that send them, where one core is not enough (default 1)",
    )
    parser.add_argument("--key-variable", metavar="NAME", help="holds the API key (default: OPENAI_API_KEY, if set)")
    parser.add_argument("--ca-file", metavar="PATH", help="certificates to trust beside the system's")
    parser.add_argument(
        "--requests-out", metavar="PATH", type=Path, help="every answered request's times, for npubench calibrate"
    )
    parser.add_argument("-o", "--output", metavar="PAGE.html", type=Path, help="of a sweep: its curves as a page")
    parser.add_argument("--json", action="store_true", help="print JSON, every metric with unit and definition")
    parser.set_defaults(run=lambda arguments: run(parser, arguments))


def run(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> int:
    """Sends a load. Returns NOT_MEASURED where an error prevented that, which one line on stderr names."""
    if (arguments.slo_ttft is None) != (arguments.slo_tbt is None):
        parser.error("want --slo-ttft and --slo-tbt together: a request attains both or neither")
    if (arguments.attainment is not None or arguments.sweep) and arguments.slo_ttft is None:
        parser.error(f"{'--sweep' if arguments.sweep else '--attainment'} is of an SLO: want --slo-ttft and --slo-tbt")
    if arguments.prompts and arguments.shared_prefix:
        parser.error("--shared-prefix is of new prompts: leave out --prompts")
    if arguments.sweep and arguments.requests_out:
        parser.error("--requests-out is of one rate: want --rate")
    if arguments.output and not arguments.sweep:
        parser.error("--output is of many rates: want --sweep")
    try:
        answer = _swept(arguments) if arguments.sweep else loaded(arguments)
    except NpubenchError as error:
        print_error(error)
        return NOT_MEASURED
    if arguments.json:
        print_document("load-sweep" if arguments.sweep else "load", **answer)
    else:
        from pytest_npubench.cli.load_text import rendered

        print(rendered(answer), end="")
    if faults := [*answer["client"]["lost"], *filter(None, [answer["client"]["late"]])]:
        for fault in faults:
            print_error(fault)
        return NOT_MEASURED
    return NOT_ATTAINED if answer["attained"] is False else 0


def loaded(arguments: argparse.Namespace) -> dict[str, Any]:
    """What was asked for and what came out, as plain data. Raises NpubenchError."""
    from pytest_npubench.cli.asked_server import asked_server
    from pytest_npubench.cli.run_files import new_content, requests_text
    from pytest_npubench.suites.server.blocks import load_block
    from pytest_npubench.suites.server.own_figures import Watch

    slo, asked = _slo(arguments), asked_server(arguments)
    loader = asked.loader
    requests = loader.requests(arguments.workload, arguments.num_requests, arguments.rate, arguments.seed)
    span_s = requests[-1].arrival_s
    sent_from = f" from {arguments.processes} processes" if arguments.processes > 1 else ""
    sending = f"sending {len(requests)} requests in {span_s:.0f} s to {plain(asked.model.name)}{sent_from}"
    print(sending, file=sys.stderr, flush=True)
    with new_content(arguments.requests_out) if arguments.requests_out else nullcontext() as file:
        asked.warm_up(arguments, requests)
        with Watch(asked.address) as watch:
            run = loader.send(requests, str(arguments.seed), arguments.processes)
        block = load_block(run, requests, rate_per_s=arguments.rate, slo=slo)
        if file:
            file.write(requests_text(block.records).encode())
    return {
        **asked.facts(arguments),
        "rate_per_s": arguments.rate,
        **_outcome(block, arguments.attainment or WANTED, run),
        "reasons": _reasons(run.answers, loader),
        "remarks": _remarks(run.answers),
        "server_says": _server_says(watch),
    }


def _swept(arguments: argparse.Namespace) -> dict[str, Any]:
    """Does what `loaded` does for many rates, and says on stderr what each came to. Raises NpubenchError."""
    from pytest_npubench.cli.asked_server import asked_server
    from pytest_npubench.cli.load_text import heading
    from pytest_npubench.cli.run_files import new_content
    from pytest_npubench.suites.server.kinds.capacity import CapacityDetail
    from pytest_npubench.suites.server.own_figures import Watch
    from pytest_npubench.suites.server.report.capacity import swept_charts
    from pytest_npubench.suites.server.sweep import sweep

    slo, target, asked = _slo(arguments), arguments.attainment or WANTED, asked_server(arguments)
    assert slo is not None  # run has looked
    watches: list[Watch] = []

    def watch() -> Watch:
        watches.append(Watch(asked.address))
        return watches[-1]

    if arguments.output:
        with report_extra():  # before anything is sent
            from pytest_npubench.reports.html import command_page
    with new_content(arguments.output) if arguments.output else nullcontext() as file:
        requests = asked.loader.requests(arguments.workload, arguments.num_requests, 1.0, arguments.seed)
        asked.warm_up(arguments, requests)
        made, capacity = sweep(
            asked.loader,
            arguments.workload,
            arguments.num_requests,
            slo=slo,
            target=target,
            seed=arguments.seed,
            num_processes=arguments.processes,
            seen=_say_attainment,
            watch=watch,
        )
        detail = CapacityDetail.of(arguments.workload, slo, target, capacity, made.blocks)
        answer = {**asked.facts(arguments), **_sweep_outcome(made, capacity, detail, watches)}
        if file:
            facts, charts = heading(answer), swept_charts(detail)
            capacity_text = next(words for name, words in facts if name == "capacity")
            doubt_first = sorted(facts, key=lambda fact: fact[0] != "client")
            others = [fact for fact in doubt_first if fact[0] != "capacity"]
            headline, title = f"capacity {capacity_text}", "Latency and attainment"
            file.write(command_page("npubench load --sweep", headline, others, title, charts).encode())
    return answer


def _say_attainment(block: LoadBlock) -> None:
    from pytest_npubench.suites.server.sweep import SweptRate

    row = SweptRate.of(block)
    print(f"{row.attainment:.0%} of {row.num_arrived} attain at {row.rate_per_s:.3g} requests/s", file=sys.stderr)


def _server_says(watch: Watch) -> dict[str, Any]:
    return {"why": watch.why, **asdict(watch.figures)}


def _sweep_outcome(made: Sweep, capacity: Capacity, detail: CapacityDetail, watches: Sequence[Watch]) -> dict[str, Any]:
    from pytest_npubench.suites.server.lateness import why_late
    from pytest_npubench.suites.server.sweep import SweptRate

    late = [f"at {block.rate_per_s:.3g} requests/s {why}" for block in made.blocks if (why := why_late(block))]
    watched = sorted(zip(made.blocks, watches, strict=True), key=lambda pair: pair[0].rate_per_s)
    is_below = not capacity.reached and capacity.interval is not None and capacity.interval[0] is None
    return {
        "slo": {**asdict(detail.slo), "attainment": detail.wanted_fraction},
        "attained": not is_below,
        "capacity": {"rate_per_s": capacity.rate_per_s, "interval": capacity.interval, "why": detail.why},
        "knee_rate_per_s": detail.knee_per_s,
        "alone": asdict(SweptRate.of(made.alone)),
        "at_once": asdict(SweptRate.of(made.at_once)),
        "rates": [
            {**asdict(row), "server_says": _server_says(watch)}
            for row, (_, watch) in zip(detail.rates, watched, strict=True)
        ],
        "client": {"late": late[0] if late else None, "lost": []},
    }


def _outcome(block: LoadBlock, wanted: float, run: HttpRun) -> dict[str, Any]:
    from pytest_npubench.suites.server.figures import seen_from_outside
    from pytest_npubench.suites.server.kinds.open_load import ClientDetail
    from pytest_npubench.suites.server.lateness import why_late

    slo, metrics = block.slo, seen_from_outside(block)
    attained = next(metric.value for metric in metrics if metric.name == "slo_attainment")
    return {
        "slo": None if slo is None else {**asdict(slo), "attainment": wanted},
        "attained": None if attained is None else attained >= wanted,
        "failures": block.failures,
        "counted_by": block.num_counted_by,
        "in_one_piece": block.num_in_one_piece,
        "client": {**asdict(ClientDetail.of(block)), "late": why_late(block), "lost": list(run.lost)},
        "metrics": [asdict(metric) for metric in metrics],
    }


def _reasons(answers: Sequence[HttpAnswer], loader: Loader) -> dict[str, str]:
    """Returns the words of the first failure of each class."""
    from pytest_npubench.suites.server.failures import class_of

    failed = [answer for answer in reversed(answers) if answer.failed is not None]
    return {str(class_of(answer.failed)): loader.reason(answer) for answer in failed}


def _remarks(answers: Sequence[HttpAnswer]) -> dict[str, dict[str, int]]:
    """On how many answers each remark was made, and the sum of its numbers: of tokens, events or times."""
    numbers: dict[str, list[int]] = {}
    for answer in answers:
        for text, amount in answer.remarks.items():
            numbers.setdefault(text, []).append(amount)
    return {text: {"answers": len(each), "number": sum(each)} for text, each in numbers.items()}


def _slo(arguments: argparse.Namespace) -> Slo | None:
    from pytest_npubench.serving.metrics import Slo

    return None if arguments.slo_ttft is None else Slo.parse(arguments.slo_ttft, arguments.slo_tbt)


def _object(text: str) -> Mapping[str, object]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise argparse.ArgumentTypeError(f"no JSON: {error}") from None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError("want a JSON object, such as {}")
    try:
        return of_json(value)
    except WrongEntryError as error:
        raise argparse.ArgumentTypeError(error.problem) from None


def _warm_up_count(text: str) -> int:
    return 0 if text == "0" else request_count(text)


def _fraction(text: str) -> float:
    if text.endswith("%"):
        return percent(text)
    return number(text, "a fraction above 0 and up to 1, such as 0.9", lambda value: 0 < value <= 1)
