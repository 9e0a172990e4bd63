"""What a simulated load is served by: the options of `npubench simulate` and `npubench calibrate`, and what they mean.

What no option says is taken from a run that was served or a cost that was calibrated, as far as those state it.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npubench.cli.arguments import device_count, percent, whole_number
from pytest_npubench.errors import ConfigError, did_you_mean
from pytest_npubench.extensions.planning.cli.simulation import BLOCK_SIZE_TOKENS, System

if TYPE_CHECKING:
    from pytest_npubench.core.hardware import HardwareSpec
    from pytest_npubench.engines.shapes import DecoderShape
    from pytest_npubench.extensions.planning.stated_engine import EngineArguments
    from pytest_npubench.extensions.planning.virtual.cost_file import CostFile
    from pytest_npubench.extensions.planning.virtual.step_cost import StepCost

cached_count = whole_number(10**12)
IDS = "ids"
DTYPES = ("fp32", "bf16", "fp16", "fp8", "int8", "int4")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """Of an engine, by itself; None: not known."""

    tensor_parallel: int | None = None
    pipeline_parallel: int | None = None
    data_parallel: int | None = None
    is_expert_parallel: bool = False
    dtype: str | None = None
    kv_dtype: str | None = None
    kv_capacity_tokens: int | None = None
    is_capacity_guessed: bool = False
    memory_fraction: float | None = None
    block_size_tokens: int | None = None
    keeps_blocks: bool | None = None
    is_asynchronous: bool | None = None
    keeps_windows: bool | None = None
    doubts: tuple[str, ...] = ()

    def as_vllm(self) -> Stated:
        """With vLLM's defaults: what freed blocks hold is kept, and an iteration is planned ahead."""
        kept, ahead = self.keeps_blocks is not False, self.is_asynchronous is not False
        return replace(self, keeps_blocks=kept, is_asynchronous=ahead)


def add_system_options(parser: argparse.ArgumentParser, *, hardware: str) -> None:
    """hardware: its help."""
    parser.add_argument("--hardware", metavar="NAME_OR_PATH", help=hardware)
    parser.add_argument(
        "--model", metavar="SHAPE", required=True, help="a shape by name, or a folder or path of a model's config.json"
    )
    parser.add_argument("--tensor-parallel", metavar="N", type=device_count, help="devices of a stage (default 1)")
    parser.add_argument(
        "--pipeline-parallel", metavar="N", type=device_count, help="stages of a replica, on as many devices each"
    )
    parser.add_argument(
        "--data-parallel", metavar="N", type=device_count, help="replicas that share a load (default 1)"
    )
    parser.add_argument(
        "--expert-parallel", action="store_true", help="the replicas share their experts, and iterate in lock step"
    )
    parser.add_argument("--dtype", choices=DTYPES, help="of the weights (default: the hardware file's)")
    parser.add_argument("--kv-dtype", choices=DTYPES, help="of keys and values (default: the config's or --dtype)")
    parser.add_argument(
        "--prefix-hit",
        metavar="PERCENT",
        type=_prefix_hit,
        default=0.0,
        help="of each prompt in the cache (default 0%%), or ids: what prompts have in common, by the load's own ids",
    )
    parser.add_argument(
        "--no-prefix-caching", action="store_true", help="a preempted request finds nothing of it in the cache"
    )
    parser.add_argument(
        "--kv-capacity", metavar="TOKENS", type=cached_count, help="of a replica (default: what memory leaves)"
    )


def stated_by_run(engine: EngineArguments, model: str) -> Stated:
    """vLLM shares the experts of a model over its replicas whether it splits their matrices or not, and a block of its
    is of one group of layers. model: as --model has it."""
    from pytest_npubench.engines.hf_config import named_or_read, stated_context_tokens
    from pytest_npubench.engines.kv_capacity import kv_groups

    shape, doubts = named_or_read(model), tuple[str, ...]()
    if (capacity := engine.kv_capacity_tokens) and not engine.keeps_windows and (groups := kv_groups(shape)):
        if blocks := engine.blocks_of(groups, stated_context_tokens(model)):
            values = blocks * (engine.block_tokens or BLOCK_SIZE_TOKENS) * groups.values
            capacity = ceil(values / shape.kv_bytes_per_token(1))
        else:
            doubts = (
                f"{capacity} KV tokens are read as tokens of all layers, and vLLM counts those of a model with windows "
                "in another way; want num_gpu_blocks, or vllm_version from 0.28 on, max_model_len and "
                "max_num_batched_tokens beside num_kv_tokens",
            )
    return Stated(
        tensor_parallel=engine.tensor_parallel,
        pipeline_parallel=engine.pipeline_parallel,
        data_parallel=engine.data_parallel,
        is_expert_parallel=engine.data_parallel > 1 and not shape.is_dense,
        dtype=engine.dtype,
        kv_dtype=engine.kv_dtype,
        kv_capacity_tokens=capacity,
        keeps_windows=engine.keeps_windows,
        memory_fraction=engine.memory_fraction,
        block_size_tokens=engine.block_tokens,
        keeps_blocks=engine.keeps_blocks,
        is_asynchronous=engine.is_asynchronous,
        doubts=doubts,
    )


def _stated_by_cost(cost: CostFile) -> Stated:
    return Stated(
        tensor_parallel=cost.tensor_parallel,
        pipeline_parallel=cost.pipeline_parallel,
        data_parallel=cost.data_parallel,
        is_expert_parallel=cost.is_expert_parallel,
        dtype=cost.dtype,
        kv_dtype=cost.kv_dtype,
        kv_capacity_tokens=cost.kv_capacity_tokens,
        is_capacity_guessed=cost.is_capacity_guessed,
        keeps_blocks=cost.keeps_blocks,
        is_asynchronous=cost.asynchronous,
    )


def system_of(arguments: argparse.Namespace, stated: Stated, *, may_exceed_memory: bool) -> System:
    """Raises ConfigError, HardwareFileError for what cannot be served. may_exceed_memory: a capacity that is given is
    the engine's own."""
    from pytest_npubench.engines.hf_config import named_or_read, stated_context_tokens
    from pytest_npubench.engines.kv_capacity import USABLE_FRACTION, default_kv_capacity_tokens

    shares_prefixes = arguments.prefix_hit == IDS
    if shares_prefixes and arguments.no_prefix_caching:
        raise ConfigError("--prefix-hit ids is about a prefix cache; want it or --no-prefix-caching")
    spec = None if arguments.hardware is None else hardware(arguments.hardware)
    shape = named_or_read(arguments.model)
    devices = arguments.tensor_parallel or stated.tensor_parallel or 1
    stages = arguments.pipeline_parallel or stated.pipeline_parallel or 1
    replicas = arguments.data_parallel or stated.data_parallel or 1
    is_shared = arguments.expert_parallel or (stated.is_expert_parallel and replicas > 1)
    if is_shared and (shape.is_dense or replicas == 1):
        why = f"{shape.name} has no experts" if shape.is_dense else "one replica shares with nobody"
        raise ConfigError(f"--expert-parallel: {why}; want a model with experts and --data-parallel above 1")
    dtype = arguments.dtype or stated.dtype or (spec.dtype if spec else "bf16")
    of_config = shape.weight_bits.kv_dtype if shape.weight_bits else None
    kv_dtype = arguments.kv_dtype or stated.kv_dtype or of_config
    capacity = arguments.kv_capacity or stated.kv_capacity_tokens
    block_size_tokens = stated.block_size_tokens or BLOCK_SIZE_TOKENS
    is_guessed = capacity is None or (not arguments.kv_capacity and stated.is_capacity_guessed)
    if capacity is None or (not may_exceed_memory and spec is not None and spec.peak.memory_bytes is not None):
        if spec is None:
            raise ConfigError("want --kv-capacity, or --hardware with the memory of a device")
        room = default_kv_capacity_tokens(
            shape,
            spec,
            tensor_parallel=devices,
            dtype=dtype,
            kv_dtype=kv_dtype,
            num_sharing=replicas if is_shared else 1,
            num_stages=stages,
            usable_fraction=stated.memory_fraction or USABLE_FRACTION,
        )
        capacity = capacity or room
        if not block_size_tokens <= capacity <= room:
            raise ConfigError(
                f"--kv-capacity {capacity}: want {block_size_tokens} (a block) to {room} tokens, which is what "
                f"{devices * stages} x {spec.name} hold beside {shape.name}"
            )
    return System(
        shape=replace(shape, doubts=shape.doubts + stated.doubts),
        spec=spec,
        tensor_parallel=devices,
        pipeline_parallel=stages,
        data_parallel=replicas,
        is_expert_parallel=is_shared,
        dtype=dtype,
        kv_dtype=kv_dtype,
        kv_capacity_tokens=capacity,
        block_size_tokens=block_size_tokens,
        is_capacity_guessed=is_guessed,
        seed=arguments.seed,
        keeps_windows=bool(stated.keeps_windows),
        is_asynchronous=bool(stated.is_asynchronous),
        # the blocks of a preempted request are worth nothing without its states
        keeps_blocks=bool(stated.keeps_blocks) and not arguments.no_prefix_caching and not shape.state_bytes(1),
        prefix_hit_fraction=0.0 if shares_prefixes else arguments.prefix_hit,
        shares_prefixes=shares_prefixes,
        context_tokens=stated_context_tokens(arguments.model),
    )


def _prefix_hit(text: str) -> float | str:
    if text.strip() == IDS:
        return IDS
    try:
        return percent(text)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"{error}, or {IDS}") from None


def calibrated_system(
    arguments: argparse.Namespace, path: Path, engine: EngineArguments | None = None
) -> tuple[System, CostFile]:
    """What a cost file says of how it was served, unless an option or the engine of the run that is simulated says
    otherwise, under its cost. Raises as system_of, StoreError for a file that cannot be read, ConfigError for one of
    another model or of other devices. Devices go by the names of their hardware files, where both are known."""
    from pytest_npubench.extensions.planning.virtual.cost_file import read_cost_file

    costs = read_cost_file(path)
    stated = _stated_by_cost(costs)
    if engine is not None:
        by_run = stated_by_run(engine, arguments.model)
        given = {each.name: value for each in fields(by_run) if (value := getattr(by_run, each.name)) is not None}
        if by_run.kv_capacity_tokens is None:
            given["is_capacity_guessed"] = stated.is_capacity_guessed
        stated = replace(stated, **given)
    system = system_of(arguments, stated, may_exceed_memory=True)
    theirs, ours = (costs.tensor_parallel, costs.dtype), (system.tensor_parallel, system.dtype)
    if theirs != ours:
        raise ConfigError(f"{path} is of {theirs[0]} devices in {theirs[1]}, not of {ours[0]} in {ours[1]}")
    if costs.pipeline_parallel != system.pipeline_parallel:
        raise ConfigError(f"{path} is of {costs.pipeline_parallel} stages, not of {system.pipeline_parallel}")
    if (system.num_sharing > 1 or costs.is_expert_parallel) and system.num_sharing != costs.num_sharing:
        raise ConfigError(
            f"{path} is of {costs.num_sharing} replicas that share their experts, not of {system.num_sharing}"
        )
    cost = costs.calibration(system.shape).best
    if system.spec and costs.is_over_peaks and system.hardware != costs.hardware:
        raise ConfigError(
            f"{path} was calibrated on {costs.hardware}, not on {system.hardware}; want a cost of that one, such as "
            f"npubench calibrate --from {path} makes of requests there"
        )
    return replace(system, cost=cost, router=costs.router), costs


def is_calibrated(paths: Sequence[Path]) -> bool:
    """Whether it is one file that is neither a table nor a bucket profile: what `npubench calibrate` wrote, or whoever
    reads it says why not."""
    from pytest_npubench.core.regular_file import SMALL_BYTES, read_text
    from pytest_npubench.predictors.profile import FORMAT

    if len(paths) > 1 or paths[0].suffix == ".csv":
        return False
    try:
        return f'"{FORMAT}"' not in read_text(paths[0], SMALL_BYTES)
    except (OSError, UnicodeDecodeError):
        return True


def uncalibrated_cost(paths: Sequence[Path], shape: DecoderShape) -> StepCost:
    """A table of iterations, or LENS profiles of one batch size each. Raises StoreError for a file that cannot be read,
    ConfigError for profiles that do not go together."""
    if len(paths) == 1 and paths[0].suffix == ".csv":
        from pytest_npubench.extensions.planning.virtual.table import read_table

        return read_table(paths[0], shape.num_layers)
    from pytest_npubench.extensions.planning.virtual.buckets import BucketCost
    from pytest_npubench.suites.buckets.profile_source import profile_from_file

    profiles = [profile_from_file(path).profile for path in paths]
    if len({profile.batch_size for profile in profiles}) < len(profiles):
        raise ConfigError("two of the profiles are of one batch size; want each batch size once")
    return BucketCost({profile.batch_size: profile for profile in profiles})


def hardware(name: str) -> HardwareSpec:
    """A shipped file by name, or a file that may hold peaks alone. Raises ConfigError, HardwareFileError."""
    from pytest_npubench.core.hardware_reader import peaks_alone
    from pytest_npubench.suites.hardware_files import folders_of_runs, load_all, load_hardware

    if name.endswith(".toml"):
        return peaks_alone(Path(name)) or load_hardware(Path(name))
    specs = load_all(folders_of_runs())
    if name not in specs:
        shipped = f"shipped: {', '.join(specs)}; or give a path to a .toml"
        raise ConfigError(f"no hardware file is named {name!r}; {shipped}{did_you_mean(name, specs)}")
    return specs[name]
