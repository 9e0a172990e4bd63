"""`npubench simulate`: scheduling policies on a virtual clock, from a hardware file's peaks and a workload's lengths.

No device runs. Each iteration takes what docs/scheduling.md's cost model says for its bytes and operations, so the
figures compare policies and rates; they are not measurements of the hardware they are named after.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_npubench.cli.arguments import (
    LONGEST_SHOWN,
    Commands,
    add_command,
    add_trace_options,
    check_other_file,
    device_count,
    number,
    print_document,
    print_error,
    rate,
    request_count,
    seed,
    time_limit,
    token_count,
    whole_number,
)
from pytest_npubench.errors import ConfigError, NpubenchError
from pytest_npubench.extensions.planning.cli.simulated_metrics import (
    beside,
    measured_metrics,
    simulated_run,
    winners,
)
from pytest_npubench.extensions.planning.cli.simulation import check_lengths
from pytest_npubench.extensions.planning.cli.system_options import (
    Stated,
    add_system_options,
    calibrated_system,
    is_calibrated,
    stated_by_run,
    system_of,
    uncalibrated_cost,
)
from pytest_npubench.reports import report_extra

if TYPE_CHECKING:
    from pytest_npubench.core.hardware import HardwareSpec
    from pytest_npubench.extensions.planning.cli.simulation import System
    from pytest_npubench.extensions.planning.measured_run import MeasuredRun
    from pytest_npubench.extensions.planning.stated_engine import EngineArguments
    from pytest_npubench.extensions.planning.virtual.cost_file import CostFile
    from pytest_npubench.serving.metrics import Slo
    from pytest_npubench.serving.request import ServingRequest
    from pytest_npubench.serving.result import ServingResult
    from pytest_npubench.serving.settings import Setting

    Load = tuple[float | None, tuple[ServingRequest, ...]]  # requests as they arrive, and their rate

group_count = whole_number(1024)
LEAST_CV, MOST_CV = 0.01, 100.0
# settings with an option of their own, the others have --set; a static batch is as large as the device takes
SETTINGS = {
    "chunk_size_tokens": "chunk_size",
    "num_layer_groups": "layer_groups",
    "tokens_per_iteration": "tokens_per_iteration",
    "merge_cap_tokens": "merge_cap",
    "max_batch_size": "max_batch",
    "batch_size": "max_batch",
}


def add_parser(commands: Commands, about: str) -> None:
    parser = add_command(
        commands,
        "simulate",
        about,
        "npubench simulate --hardware nvidia-h100 --tensor-parallel 2 --model qwen3-30b-a3b --policy chunked layered "
        "--workload layered-arxiv --rate 1.3 --num-requests 100",
    )
    add_system_options(parser, hardware="a shipped hardware file, or a .toml (with --cost: for its memory and SLOs)")
    parser.add_argument(
        "--policy", metavar="P", nargs="+", action="extend", help="one or more policies (of a --run: chunked)"
    )
    parser.add_argument(
        "--prefill-devices", metavar="N", type=device_count, help="of policy disaggregated (default: half of them)"
    )
    for side in ("prefill", "decode"):
        text = f"workers that {side} under policy disaggregated (default 1)"
        parser.add_argument(f"--{side}-replicas", metavar="N", type=device_count, default=1, help=text)
    parser.add_argument("--workload", metavar="NAME_OR_PATH", help="where the lengths come from")
    parser.add_argument(
        "--num-requests", metavar="K", type=request_count, help="how many requests arrive (default: all of a --replay)"
    )
    parser.add_argument(
        "--run", metavar="RUN", type=Path, dest="served", help="lengths and arrivals of a real run, in their place"
    )
    parser.add_argument("--against", metavar="RUN", type=Path, help="a real run's figures beside the simulated ones")
    parser.add_argument(
        "--gate", action="store_true", help="exit status 1 where a measured mean is outside its band: the cost is old"
    )
    parser.add_argument(
        "--cost",
        metavar="PATH",
        type=Path,
        nargs="+",
        help="in the peaks' place: what npubench calibrate wrote, a .csv of iterations, or bucket profiles",
    )
    parser.add_argument(
        "--moe-layers",
        choices=("balanced", "power-law"),
        help="measured times of MoE layers in the peaks' place, by how the rows chose their experts (NVIDIA, bf16)",
    )
    parser.add_argument("--rate", metavar="R", nargs="+", action="extend", type=rate, help="requests per second")
    parser.add_argument("--cv", type=_cv, help="of the gaps between arrivals (default: Poisson, which has 1)")
    parser.add_argument("--replay", action="store_true", help="the trace's own arrival times instead of --rate")
    add_trace_options(parser)
    parser.add_argument("--seed", type=seed, default=0, help="of lengths, arrivals and router (default 0)")
    parser.add_argument("--chunk-size", metavar="TOKENS", type=token_count, help="default 512; hybrid 8192")
    parser.add_argument("--layer-groups", metavar="N", type=group_count, help="default: by the prompt's length")
    parser.add_argument("--tokens-per-iteration", metavar="TOKENS", type=token_count, help="default 512")
    parser.add_argument("--merge-cap", metavar="TOKENS", type=token_count, help="prompts that merge, default 8192")
    parser.add_argument("--max-batch", metavar="N", type=request_count, help="requests admitted, default 256")
    parser.add_argument(
        "--set", metavar="NAME=VALUE", type=_setting, action="append", default=[], help="any setting of a policy"
    )
    parser.add_argument(
        "--slo-ttft", metavar="TIME", type=time_limit, help="such as 10s (default: the hardware file's)"
    )
    parser.add_argument(
        "--slo-tbt", metavar="TIME", type=time_limit, help="such as 125ms (default: the hardware file's)"
    )
    parser.add_argument("-o", "--output", metavar="PAGE.html", type=Path, help="distributions and queues as a page")
    parser.add_argument(
        "--requests-out", metavar="PATH", type=Path, help="every request's times, of the form that --run reads"
    )
    parser.add_argument("--timeline", metavar="PATH", type=Path, help="every iteration, as CSV")
    parser.add_argument("--json", action="store_true", help="print JSON, every metric with unit and definition")
    parser.set_defaults(run=lambda arguments: run(parser, arguments))


def run(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> int:
    """Status 2 for anything that cannot be simulated: all of it was asked for on the command line; 1 as --gate says."""
    if arguments.served is not None:
        if arguments.workload or arguments.num_requests or arguments.rate or arguments.replay:
            parser.error(
                "--run has lengths and arrivals; --workload, --num-requests, --rate and --replay are another load's"
            )
    elif arguments.workload is None or (arguments.num_requests is None and not arguments.replay):
        parser.error("want --workload and --num-requests, or --run with a run that was served")
    elif arguments.replay == (arguments.rate is not None):
        parser.error("want --rate, or --replay with a trace that has arrival times")
    if arguments.policy is None and arguments.served is None:
        parser.error("want --policy")
    of_pools = {
        "--prefill-devices": arguments.prefill_devices,
        "--prefill-replicas": arguments.prefill_replicas > 1,
        "--decode-replicas": arguments.decode_replicas > 1,
    }
    if "disaggregated" not in (arguments.policy or ()) and (used := next(filter(of_pools.get, of_pools), None)):
        parser.error(f"{used} is of --policy disaggregated")
    if arguments.hardware is None and arguments.cost is None:
        parser.error("want --hardware, or --cost with what npubench calibrate wrote")
    if arguments.moe_layers and (arguments.cost or arguments.hardware is None):
        parser.error("--moe-layers stands beside the peaks of a --hardware; --cost has other times")
    if arguments.replay and arguments.cv is not None:
        parser.error("--cv is about arrivals at a --rate; --replay has its own")
    if (arguments.slo_ttft is None) != (arguments.slo_tbt is None):
        parser.error("want --slo-ttft and --slo-tbt together: a request attains both or neither")
    if arguments.layer_groups is not None and arguments.tokens_per_iteration is not None:
        parser.error("--layer-groups and --tokens-per-iteration both say how many groups; want one of them")
    if arguments.gate and (arguments.cost is None or arguments.against is None):
        parser.error("--gate judges a --cost by a real run: want both, --cost and --against")
    if arguments.gate and not is_calibrated(arguments.cost):
        parser.error("--gate is about the bands of a calibrated cost; a table or a profile has none")
    outputs = [path for path in (arguments.output, arguments.requests_out, arguments.timeline) if path]
    sources = [path for path in (arguments.served, arguments.against, *(arguments.cost or ())) if path]
    try:
        for output in outputs:
            check_other_file(output, *sources, *(path / "requests.jsonl" for path in sources))
        answer = simulated(arguments)
    except NpubenchError as error:
        print_error(error)
        return 2
    if arguments.json:
        print_document("simulation", **answer)
    else:
        from pytest_npubench.extensions.planning.cli.simulation_table import rendered

        print(rendered(answer), end="")
    return 1 if arguments.gate and any(run["outside"] for run in answer["runs"]) else 0


def simulated(arguments: argparse.Namespace) -> dict[str, Any]:
    """What was asked for and what came out, as plain data. Raises NpubenchError."""
    from pytest_npubench.extensions.planning.measured_run import measured_run
    from pytest_npubench.extensions.planning.stated_engine import EngineArguments

    served = measured_run(arguments.served) if arguments.served else None
    system, calibration = _system(arguments, served.engine if served else None)
    slo, slo_source = _slo(arguments, system.spec)
    about, loads = _served(system, served) if served else _drawn(arguments, system.most_tokens)
    system = replace(
        system,
        is_stamped=bool(served and served.is_stamped),
        prefill_devices=arguments.prefill_devices,
        prefill_replicas=arguments.prefill_replicas,
        decode_replicas=arguments.decode_replicas,
    )
    against = measured_run(arguments.against) if arguments.against else None
    if against:
        check_lengths(system, against)
    measured = measured_metrics(against) if against else {}
    engine = (served and served.engine) or EngineArguments()
    settings = {policy: _settings(policy, arguments, engine) for policy in arguments.policy or ("chunked",)}
    _check_options_used(arguments, settings)
    runs, results = [], {}
    for rate_per_s, requests in loads:
        for policy, chosen in settings.items():
            run, result = simulated_run(system, policy, chosen, rate_per_s, requests, slo, calibration)
            runs.append(beside(run, measured))
            results[policy if len(loads) == 1 else f"{policy} at {rate_per_s:g}/s"] = result
    answer = {
        "clock": "virtual",
        "definition": _definition(arguments.cost, calibration),
        "hardware": calibration.hardware if calibration else system.hardware,
        "tensor_parallel": system.tensor_parallel,
        "pipeline_parallel": system.pipeline_parallel,
        "data_parallel": system.data_parallel,
        "expert_parallel": system.is_expert_parallel,
        "model": system.shape.name,
        "dtype": system.dtype,
        "kv_dtype": system.kv_dtype or system.dtype,
        "kv_capacity_tokens": system.kv_capacity_tokens,
        "seed": arguments.seed,
        "doubts": [
            *(calibration.doubts if calibration else ()),
            *(served.doubts if served else ()),
            *(against.doubts if against and against != served else ()),
            *system.shape.doubts,
        ],
        "workload": about,
        "winners": winners(runs),
        "slo": slo and {"ttft_s": slo.ttft_s, "tbt_s": slo.tbt_s, "source": slo_source},
        "runs": runs,
    }
    _write_files(arguments, system, answer, results, against)
    return answer


def _definition(cost: Sequence[Path] | None, calibration: CostFile | None) -> str:
    origin = "bytes and operations over the hardware file's peaks"
    if calibration:
        origin = f"a cost calibrated on {calibration.source}, with 90 % bands"
    elif cost is not None:
        origin = f"the iterations that {', '.join(map(str, cost))} tells of"
    return f"no device ran: every time is on a virtual clock, from {origin} (docs/scheduling.md)"


def _write_files(
    arguments: argparse.Namespace,
    system: System,
    answer: Mapping[str, Any],
    results: Mapping[str, ServingResult],
    against: MeasuredRun | None,
) -> None:
    """Raises ConfigError for a file of one run where there are more, StoreError where nothing can be written."""
    from pytest_npubench.cli.run_files import engine_text, requests_text, timeline_text, write
    from pytest_npubench.extensions.planning.cli.simulation_table import heading
    from pytest_npubench.extensions.planning.measured_run import meta_path

    if arguments.output:
        served = {f"{name}, simulated": result.records for name, result in results.items()}
        if against:
            served["measured"] = against.records()
        with report_extra():
            from pytest_npubench.extensions.planning.report.simulation_page import simulation_page
        write(arguments.output, simulation_page(answer, served, heading(answer)))
    for path in filter(None, (arguments.requests_out, arguments.timeline)):
        if len(results) > 1:
            raise ConfigError(f"{path} is of one run; want one --policy and one --rate, not {len(results)} runs")
        (result,) = results.values()
        write(path, requests_text(result.records) if path is arguments.requests_out else timeline_text(result.log))
        if path is arguments.requests_out:
            about = engine_text(result.settings, system.arguments(), kv_capacity_tokens=system.kv_capacity_tokens)
            write(meta_path(path), about)


def _system(arguments: argparse.Namespace, engine: EngineArguments | None) -> tuple[System, CostFile | None]:
    """What no option says is taken from the run's engine, where it is known. Raises as system_of, calibrated_system and
    uncalibrated_cost."""
    if arguments.cost is not None and is_calibrated(arguments.cost):
        return calibrated_system(arguments, arguments.cost[0], engine)
    stated = Stated() if engine is None else stated_by_run(engine, arguments.model).as_vllm()
    if arguments.cost is None:
        system = system_of(arguments, stated, may_exceed_memory=stated.kv_capacity_tokens is not None)
        return replace(system, moe_routing=arguments.moe_layers), None
    system = system_of(arguments, stated, may_exceed_memory=True)
    return replace(system, cost=uncalibrated_cost(arguments.cost, system.shape)), None


def _served(system: System, run: MeasuredRun) -> tuple[dict[str, Any], list[Load]]:
    """Raises ConfigError as check_lengths."""
    check_lengths(system, run)
    about = {
        "name": run.source,
        "source": "a run that was served",
        "num_requests": len(run.requests),
        "num_dropped": 0,
        "taken": run.taken,
    }
    return about, [(None, run.load())]


def _drawn(arguments: argparse.Namespace, most_tokens: int) -> tuple[dict[str, Any], list[Load]]:
    from pytest_npubench.extensions.planning.cli.simulation import arriving, arriving_at
    from pytest_npubench.serving.arrivals import replay
    from pytest_npubench.workloads import workload
    from pytest_npubench.workloads.trace import replayed_rows

    lengths = workload(arguments.workload, time_unit=arguments.time_unit, block_tokens=arguments.block_tokens)
    num_requests, seed = arguments.num_requests, arguments.seed
    if arguments.replay:
        sample = replayed_rows(lengths, num_requests, most_tokens=most_tokens)
        assert sample.arrival_s is not None
        loads: list[Load] = [(None, arriving_at(replay(sample.arrival_s), sample.requests, sample.content))]
    else:
        sample = lengths.sample(num_requests, seed=seed, max_total_tokens=most_tokens)
        loads = [
            (rate, arriving(sample.requests, rate_per_s=rate, cv=arguments.cv, seed=seed)) for rate in arguments.rate
        ]
    about = {
        "name": lengths.name,
        "source": lengths.source,
        "num_requests": len(loads[0][1]),
        "num_dropped": sample.num_dropped,
        "taken": lengths.note,
    }
    return about, loads


def _slo(arguments: argparse.Namespace, spec: HardwareSpec | None) -> tuple[Slo | None, str]:
    from pytest_npubench.serving.metrics import Slo

    if arguments.slo_ttft is not None:
        return Slo(ttft_s=arguments.slo_ttft, tbt_s=arguments.slo_tbt), "the command line"
    limits = spec.slo_for(arguments.model, arguments.workload) if spec else None
    return (Slo(ttft_s=limits.ttft_s, tbt_s=limits.tbt_s), limits.source) if limits else (None, "")


def _settings(policy: str, arguments: argparse.Namespace, engine: EngineArguments) -> dict[str, Any]:
    """What was given and the policy has, else what a run's engine had. Raises RegistryError for an unknown policy."""
    from pytest_npubench.serving.schedulers import setting_names

    allowed = setting_names(policy)
    given = {name: getattr(arguments, option) for name, option in SETTINGS.items()}
    stated = {"chunk_size_tokens": engine.chunk_size_tokens, "max_batch_size": engine.max_batch_size}
    both = [*stated.items(), *given.items()]
    chosen = {name: value for name, value in both if value is not None} | dict(arguments.set)
    return {name: value for name, value in chosen.items() if name in allowed}


def _check_options_used(arguments: argparse.Namespace, settings: dict[str, dict[str, Any]]) -> None:
    given = {option: f"--{option.replace('_', '-')}" for option in SETTINGS.values()}
    asked = {flag for option, flag in given.items() if getattr(arguments, option) is not None}
    asked |= {f"--set {name}" for name, _ in arguments.set}
    used = {name for chosen in settings.values() for name in chosen}
    allowed = {given[option] for name, option in SETTINGS.items() if name in used} | {f"--set {name}" for name in used}
    if unused := sorted(asked - allowed):
        raise ConfigError(f"{unused[0]} is a setting of none of the policies asked for: {', '.join(settings)}")


def _setting(text: str) -> tuple[str, Setting]:
    """A setting's name and its value: a whole number, a number, true, false, none, or else a word."""
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise argparse.ArgumentTypeError(f"{text[:LONGEST_SHOWN]!r}: want NAME=VALUE, such as max_prefill_tokens=4096")
    words: dict[str, Setting] = {"true": True, "false": False, "none": None}
    if value in words:
        return name, words[value]
    if re.fullmatch(r"-?\d{1,12}", value):
        return name, int(value)
    return name, float(value) if re.fullmatch(r"-?\d{1,12}\.\d{1,12}", value) else value[:LONGEST_SHOWN]


def _cv(text: str) -> float:
    return number(text, f"a number from {LEAST_CV:g} to {MOST_CV:g}", lambda value: LEAST_CV <= value <= MOST_CV)
