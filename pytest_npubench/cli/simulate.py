"""`npubench simulate`: scheduling policies on a virtual clock, from a hardware file's peaks and a workload's lengths.

No device runs. Each iteration takes what docs/scheduling.md's cost model says for its bytes and operations, so the
figures compare policies and rates; they are not measurements of the hardware they are named after.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_npubench.cli.arguments import (
    LONGEST_S,
    LONGEST_SHOWN,
    add_command,
    device_count,
    number,
    print_error,
    rate,
    request_count,
    seed,
    token_count,
    whole_number,
)
from pytest_npubench.errors import ConfigError, NpubenchError, did_you_mean

if TYPE_CHECKING:
    from pytest_npubench.cli.arguments import Commands
    from pytest_npubench.cli.simulation import System
    from pytest_npubench.core.hardware import HardwareSpec
    from pytest_npubench.serving.metrics import Slo
    from pytest_npubench.serving.request import ServingRequest
    from pytest_npubench.serving.settings import Setting
    from pytest_npubench.workloads.sampling import LengthSample

DEFINITION = (
    "no device ran: every time is on a virtual clock, from bytes and operations over the hardware file's peaks "
    "(docs/scheduling.md)"
)
cached_count = whole_number(10**12)
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
        "--workload layered-arxiv --rate 1.3 --requests 100",
    )
    parser.add_argument("--hardware", metavar="NAME_OR_PATH", required=True, help="a shipped hardware file, or a .toml")
    parser.add_argument("--tensor-parallel", metavar="N", type=device_count, default=1, help="devices (default 1)")
    parser.add_argument(
        "--model", metavar="SHAPE", required=True, help="a shape by name, or a folder or path of a model's config.json"
    )
    parser.add_argument("--policy", metavar="P", nargs="+", action="extend", required=True, help="one or more policies")
    parser.add_argument("--workload", metavar="NAME_OR_PATH", required=True, help="where the lengths come from")
    parser.add_argument("--requests", metavar="K", type=request_count, required=True, help="how many requests arrive")
    parser.add_argument("--rate", metavar="R", nargs="+", action="extend", type=rate, help="requests per second")
    parser.add_argument("--cv", type=_cv, help="of the gaps between arrivals (default: Poisson, which has 1)")
    parser.add_argument("--replay", action="store_true", help="the trace's own arrival times instead of --rate")
    parser.add_argument("--seed", type=seed, default=0, help="of lengths, arrivals and router (default 0)")
    parser.add_argument("--chunk-size", metavar="TOKENS", type=token_count, help="default 512; hybrid 8192")
    parser.add_argument("--layer-groups", metavar="N", type=group_count, help="default: by the prompt's length")
    parser.add_argument("--tokens-per-iteration", metavar="TOKENS", type=token_count, help="default 512")
    parser.add_argument("--merge-cap", metavar="TOKENS", type=token_count, help="prompts that merge, default 8192")
    parser.add_argument("--max-batch", metavar="N", type=request_count, help="requests admitted, default 256")
    parser.add_argument(
        "--set", metavar="NAME=VALUE", type=_setting, action="append", default=[], help="any setting of a policy"
    )
    parser.add_argument("--kv-capacity", metavar="TOKENS", type=cached_count, help="default: what memory leaves")
    parser.add_argument("--slo-ttft", metavar="TIME", type=_limit, help="such as 10s (default: the hardware file's)")
    parser.add_argument("--slo-tbt", metavar="TIME", type=_limit, help="such as 125ms (default: the hardware file's)")
    parser.add_argument("--json", action="store_true", help="print JSON, every metric with unit and definition")
    parser.set_defaults(run=lambda arguments: run(parser, arguments))


def run(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> int:
    """Status 2 for anything that cannot be simulated: all of it was asked for on the command line."""
    if arguments.replay == (arguments.rate is not None):
        parser.error("want --rate, or --replay with a trace that has arrival times")
    if arguments.replay and arguments.cv is not None:
        parser.error("--cv is about arrivals at a --rate; --replay has its own")
    if (arguments.slo_ttft is None) != (arguments.slo_tbt is None):
        parser.error("want --slo-ttft and --slo-tbt together: a request attains both or neither")
    if arguments.layer_groups is not None and arguments.tokens_per_iteration is not None:
        parser.error("--layer-groups and --tokens-per-iteration both say how many groups; want one of them")
    try:
        answer = simulated(arguments)
    except NpubenchError as error:
        print_error(error)
        return 2
    if arguments.json:
        print(json.dumps(answer, indent=2))
    else:
        from pytest_npubench.cli.simulation_table import rendered

        print(rendered(answer), end="")
    return 0


def simulated(arguments: argparse.Namespace) -> dict[str, Any]:
    """What was asked for and what came out, as plain data. Raises NpubenchError."""
    from pytest_npubench.workloads import workload

    system = _system(arguments)
    slo, slo_source = _slo(arguments, system.spec)
    found = workload(arguments.workload)
    sample, loads = _loads(arguments, system, found)
    settings = {policy: _settings(policy, arguments) for policy in arguments.policy}
    _check_options_used(arguments, settings)
    return {
        "clock": "virtual",
        "definition": DEFINITION,
        "hardware": system.spec.name,
        "tensor_parallel": system.tensor_parallel,
        "model": system.shape.name,
        "dtype": system.dtype,
        "kv_capacity_tokens": system.kv_capacity_tokens,
        "seed": arguments.seed,
        "workload": {
            "name": found.name,
            "source": found.source,
            "num_requests": arguments.requests,
            "num_dropped": sample.num_dropped,
        },
        "slo": slo and {"ttft_s": slo.ttft_s, "tbt_s": slo.tbt_s, "source": slo_source},
        "runs": [
            _run(system, policy, settings[policy], rate_per_s, requests, slo)
            for rate_per_s, requests in loads
            for policy in arguments.policy
        ],
    }


def _run(
    system: System,
    policy: str,
    settings: dict[str, Any],
    rate_per_s: float | None,
    requests: tuple[ServingRequest, ...],
    slo: Slo | None,
) -> dict[str, Any]:
    from pytest_npubench.cli.simulation import simulate
    from pytest_npubench.serving.metrics import summarize

    started_s = time.perf_counter()
    result = simulate(system, policy, settings, requests)
    took_s = time.perf_counter() - started_s
    metrics = summarize(result, slo, num_experts=system.shape.num_experts)
    found = {metric.name: metric.value for metric in metrics}
    served_s = result.ended_s - result.started_s
    asked = "as replayed" if rate_per_s is None else f"at {rate_per_s:g} requests/s"
    print(
        f"{policy} {asked}: {len(requests)} requests, {served_s:.1f} s simulated in {took_s:.2f} s",
        file=sys.stderr,
        flush=True,
    )
    return {
        "policy": policy,
        "settings": dict(result.settings),
        "rate_per_s": rate_per_s,
        "realised_rate_per_s": found["realised_rate_per_s"],
        "realised_cv": found["realised_cv"],
        "metrics": [asdict(metric) for metric in metrics],
    }


def _system(arguments: argparse.Namespace) -> System:
    from pytest_npubench.cli.simulation import BLOCK_SIZE_TOKENS, System
    from pytest_npubench.engines.hf_config import named_or_read
    from pytest_npubench.engines.virtual.memory import default_kv_capacity_tokens

    spec, shape, devices = _hardware(arguments.hardware), named_or_read(arguments.model), arguments.tensor_parallel
    room = default_kv_capacity_tokens(shape, spec, tensor_parallel=devices, dtype=spec.dtype)
    capacity = arguments.kv_capacity or room
    if not BLOCK_SIZE_TOKENS <= capacity <= room:
        raise ConfigError(
            f"--kv-capacity {capacity}: want {BLOCK_SIZE_TOKENS} (a block) to {room} tokens, which is what {devices} x "
            f"{spec.name} hold beside {shape.name}"
        )
    return System(
        shape=shape,
        spec=spec,
        tensor_parallel=devices,
        dtype=spec.dtype,
        kv_capacity_tokens=capacity,
        seed=arguments.seed,
    )


def _hardware(name: str) -> HardwareSpec:
    from pytest_npubench.suites.hardware_files import known_folders, load_all, load_hardware

    if name.endswith(".toml"):
        return load_hardware(Path(name))
    specs = load_all(known_folders())
    if name not in specs:
        shipped = f"shipped: {', '.join(specs)}; or give a path to a .toml"
        raise ConfigError(f"no hardware file is named {name!r}; {shipped}{did_you_mean(name, specs)}")
    return specs[name]


def _slo(arguments: argparse.Namespace, spec: HardwareSpec) -> tuple[Slo | None, str]:
    from pytest_npubench.serving.metrics import Slo

    if arguments.slo_ttft is not None:
        return Slo(ttft_s=arguments.slo_ttft, tbt_s=arguments.slo_tbt), "the command line"
    found = spec.slo_for(arguments.model, arguments.workload)
    return (Slo(ttft_s=found.ttft_s, tbt_s=found.tbt_s), found.source) if found else (None, "")


def _loads(
    arguments: argparse.Namespace, system: System, found: Any
) -> tuple[LengthSample, list[tuple[float | None, tuple[ServingRequest, ...]]]]:
    """The sample of lengths, and for each rate the requests as they arrive."""
    from pytest_npubench.cli.simulation import arriving, arriving_at, drawn_lengths, replayed_rows
    from pytest_npubench.serving.arrivals import replay

    num_requests, most_tokens = arguments.requests, system.kv_capacity_tokens
    if arguments.replay:
        rows = replayed_rows(found, num_requests, most_tokens=most_tokens)
        assert rows.arrival_s is not None
        return rows, [(None, arriving_at(replay(rows.arrival_s), rows.requests))]
    sample = drawn_lengths(found, num_requests, seed=arguments.seed, most_tokens=most_tokens)
    return sample, [
        (rate, arriving(sample.requests, rate_per_s=rate, cv=arguments.cv, seed=arguments.seed))
        for rate in arguments.rate
    ]


def _settings(policy: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """What was given and the policy has. Raises RegistryError for an unknown policy."""
    from pytest_npubench.serving.schedulers import setting_names

    known = setting_names(policy)
    given = {name: getattr(arguments, option) for name, option in SETTINGS.items()}
    chosen = {name: value for name, value in given.items() if value is not None} | dict(arguments.set)
    return {name: value for name, value in chosen.items() if name in known}


def _check_options_used(arguments: argparse.Namespace, settings: dict[str, dict[str, Any]]) -> None:
    given = {option: f"--{option.replace('_', '-')}" for option in SETTINGS.values()}
    asked = {flag for option, flag in given.items() if getattr(arguments, option) is not None}
    asked |= {f"--set {name}" for name, _ in arguments.set}
    used = {name for chosen in settings.values() for name in chosen}
    known = {given[option] for name, option in SETTINGS.items() if name in used} | {f"--set {name}" for name in used}
    if unused := sorted(asked - known):
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


def _limit(text: str) -> float:
    """Seconds of a time with its unit: "125ms" is 0.125."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s)", text.strip())
    value, scale = (found[1], 1e-3 if found[2] == "ms" else 1.0) if found else ("none", 1.0)
    want = f"a time above 0 with its unit, s or ms, such as 10s or 125ms, up to {LONGEST_S} s"
    try:
        return scale * number(value, want, lambda amount: 0 < amount * scale <= LONGEST_S)
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(f"{text[:LONGEST_SHOWN]!r}: want {want}") from None


def _cv(text: str) -> float:
    return number(text, f"a number from {LEAST_CV:g} to {MOST_CV:g}", lambda value: LEAST_CV <= value <= MOST_CV)
