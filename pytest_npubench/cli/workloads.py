"""`npubench workloads`: the known workloads, or what one of them, or a trace file, consists of.

Statistics of a trace are over its rows, those of a rebuilt workload over its curves after its own filter; quantiles are
the smallest length that at least that fraction of the requests does not exceed, the standard deviation is that of the
population. Worked example: lengths 1, 2, 3, 4 have median 2, p90 4 and std 1.118.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING

from pytest_npubench.cli.arguments import add_command, add_json_option, add_trace_options, columns, print_document
from pytest_npubench.plain_text import plain

if TYPE_CHECKING:
    from pytest_npubench.cli.arguments import Commands
    from pytest_npubench.core.measurement import Request
    from pytest_npubench.workloads.length_statistics import LengthStatistics
    from pytest_npubench.workloads.sampling import Workload

NUM_DRAWS = 20_000


def add_parser(commands: Commands, about: str) -> None:
    parser = add_command(commands, "workloads", about, "npubench workloads lens-sharegpt")
    parser.add_argument("workload", metavar="NAME_OR_PATH", nargs="?", help="a workload's name or a trace file")
    add_trace_options(parser)
    add_json_option(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Prints workloads. Raises WorkloadError for an unknown name and a file that holds no trace."""
    from pytest_npubench import workloads

    if arguments.workload is None:
        listed = [workloads.workload(name) for name in workloads.names()]
        if arguments.json:
            print_document("workloads", workloads=[_facts(item) for item in listed])
            return
        print(columns([("NAME", "KIND", "SOURCE"), *((item.name, item.kind, item.source) for item in listed)]))
        return
    workload = workloads.workload(
        arguments.workload, time_unit=arguments.time_unit, block_tokens=arguments.block_tokens
    )
    if arguments.json:
        basis, lengths = _statistics(workload)
        tokens = {name: asdict(of) for name, of in lengths}
        print_document("workload", **_facts(workload), note=workload.note, basis=basis, tokens=tokens)
    else:
        print("\n".join(describe(workload)))


def _facts(workload: Workload) -> dict[str, str]:
    return {"name": workload.name, "kind": workload.kind, "source": workload.source}


def describe(workload: Workload) -> list[str]:
    """Describes a workload, with the statistics of its input and output lengths in tokens."""
    basis, lengths = _statistics(workload)
    rows = [("tokens", "mean", "median", "p90", "std")]
    rows += [(name, f"{of.mean:.1f}", f"{of.median:.0f}", f"{of.p90:.0f}", f"{of.std:.1f}") for name, of in lengths]
    limit = "" if workload.max_total_tokens is None else f", at most {workload.max_total_tokens} tokens in all"
    note = (plain(f"note    {workload.note}"),) if workload.note else ()
    return [
        plain(workload.name),
        f"kind    {workload.kind}{limit}",
        plain(f"source  {workload.source}"),
        *note,
        f"basis   {basis}",
        columns(rows),
    ]


def _statistics(workload: Workload) -> tuple[str, list[tuple[str, LengthStatistics]]]:
    from pytest_npubench.workloads.length_statistics import workload_statistics
    from pytest_npubench.workloads.rebuilt import RebuiltWorkload
    from pytest_npubench.workloads.trace import TraceWorkload

    if isinstance(workload, RebuiltWorkload):
        exact = workload_statistics(workload)
        basis = f"its two length curves; its own filter keeps {exact.kept_fraction:.2%} of the draws"
        return basis, [("input", exact.input), ("output", exact.output)]
    if isinstance(workload, TraceWorkload):
        unusable = f"; {workload.num_unusable} more have no prompt or no answer" if workload.num_unusable else ""
        return f"{len(workload.input_tokens)} requests of the trace{unusable}", _of_requests(workload.rows().requests)
    return f"{NUM_DRAWS} seeded draws", _of_requests(workload.sample(NUM_DRAWS, seed=0).requests)


def _of_requests(requests: tuple[Request, ...]) -> list[tuple[str, LengthStatistics]]:
    inputs = [item.input_tokens for item in requests]
    outputs = [item.output_tokens for item in requests]
    return [("input", _of_lengths(inputs)), ("output", _of_lengths(outputs))]


def _of_lengths(lengths: list[int]) -> LengthStatistics:
    import numpy as np

    from pytest_npubench.workloads.length_statistics import LengthStatistics

    values = np.asarray(lengths)
    median, p90 = np.quantile(values, (0.5, 0.9), method="inverted_cdf")
    return LengthStatistics(mean=float(values.mean()), median=float(median), p90=float(p90), std=float(values.std()))
