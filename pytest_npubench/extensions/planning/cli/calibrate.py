"""`npubench calibrate`: what an iteration of one's own server costs, from the requests of a run.

The load is simulated under drawn costs until the simulated run answers as the real one did
(planning/virtual/calibration.py). What is found is written as a file for `npubench simulate --cost`, and judged on the
requests that were not calibrated on.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npubench.cli.arguments import (
    Commands,
    add_command,
    add_json_option,
    check_other_file,
    columns,
    percent,
    print_document,
    request_count,
    say,
    seed,
    token_count,
)
from pytest_npubench.errors import ConfigError
from pytest_npubench.extensions.planning.cli.system_options import add_system_options, stated_by_run, system_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    import numpy.typing as npt

    from pytest_npubench.engines.shapes import DecoderShape
    from pytest_npubench.extensions.planning.cli.seen_iterations import SeenIterations
    from pytest_npubench.extensions.planning.cli.simulation import System
    from pytest_npubench.extensions.planning.measured_run import MeasuredRun
    from pytest_npubench.extensions.planning.stated_engine import EngineArguments
    from pytest_npubench.extensions.planning.virtual.calibrated import CalibratedCost
    from pytest_npubench.extensions.planning.virtual.calibration import Calibration, Prior
    from pytest_npubench.extensions.planning.virtual.cost_file import CostFile, Seen
    from pytest_npubench.extensions.planning.virtual.step_calibration import StepSamples
    from pytest_npubench.serving.result import ServingResult
    from pytest_npubench.serving.settings import Setting

EXAMPLE = "npubench calibrate runs/monday --model Llama-3.1-8B/config.json --hardware nvidia-h100 -o cost.json"
METRICS = ("ttft", "e2e", "tpot")


def add_parser(commands: Commands, about: str) -> None:
    parser = add_command(commands, "calibrate", about, EXAMPLE)
    parser.add_argument(
        "source",
        metavar="RUN",
        type=Path,
        help="a folder with requests.jsonl, vLLM's benchmark JSON or step log, or a journal",
    )
    add_system_options(
        parser, hardware="whose peaks: a shipped file, or a .toml with [peak]; iterations can do without"
    )
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument(
        "--num-requests", metavar="K", type=request_count, help="calibrate on the first K (default: all)"
    )
    chosen.add_argument("--first", metavar="PERCENT", type=percent, help="or on this part of them, such as 25%%")
    parser.add_argument("--chunk-size", metavar="TOKENS", type=token_count, help="default: the run's, or 512")
    parser.add_argument("--max-batch", metavar="N", type=request_count, help="default: the run's, or 256")
    parser.add_argument("--synchronous", action="store_true", help="the engine plans an iteration after the one before")
    parser.add_argument(
        "--from", metavar="COST", type=Path, dest="other", help="a cost of another device or stack to start from"
    )
    parser.add_argument("--seed", type=seed, default=0, help="of the draws (default 0)")
    parser.add_argument("-o", "--output", metavar="PATH", type=Path, required=True, help="the file to write")
    add_json_option(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Raises WorkloadError, JournalError for a run that cannot be read, ConfigError for one that does not tell the
    cost, OSError where nothing can be written."""
    from pytest_npubench.extensions.planning.cli.seen_iterations import is_journal, is_step_log
    from pytest_npubench.extensions.planning.measured_run import META, REQUESTS
    from pytest_npubench.extensions.planning.virtual.cost_file import read_cost_file, write_cost_file

    others = [arguments.other] if arguments.other else []
    check_other_file(arguments.output, *others, arguments.source, arguments.source / REQUESTS, arguments.source / META)
    if not arguments.output.parent.is_dir():
        raise ConfigError(f"-o {arguments.output}: there is no folder {arguments.output.parent}")
    are_iterations = is_journal(arguments.source) or is_step_log(arguments.source)
    if arguments.hardware is None and (arguments.other or not are_iterations):
        raise ConfigError("want --hardware: factors are over its peaks")
    other = read_cost_file(arguments.other) if arguments.other else None
    fit = _fit_iterations if are_iterations else _fit_requests
    calibration, content, words = fit(arguments, other)
    write_cost_file(arguments.output, content)
    if arguments.json:
        print_document(
            "step-cost-written",
            output=arguments.output,
            factors=calibration.factors(),
            errors=content.errors,
            doubts=content.doubts,
        )
    else:
        _say(arguments, calibration, content, words)
    return 0


def _fit_requests(arguments: argparse.Namespace, other: CostFile | None) -> tuple[Calibration, CostFile, str]:
    """What was found, as a file, and what it was found on and is judged on, in words."""
    from pytest_npubench.extensions.planning.cli.simulation import check_lengths
    from pytest_npubench.extensions.planning.measured_run import measured_run
    from pytest_npubench.extensions.planning.stated_engine import EngineArguments
    from pytest_npubench.extensions.planning.virtual.calibration import (
        LEAST_KNOWN,
        LEAST_REQUESTS,
        NUM_GENERATIONS,
        calibrate,
        latencies,
    )
    from pytest_npubench.extensions.planning.virtual.cost_file import filled, seen_in
    from pytest_npubench.extensions.planning.virtual.doubts import doubts, untold

    measured = measured_run(arguments.source)
    engine = measured.engine or EngineArguments()  # of one that nothing is said of, what vLLM does by default
    system, settings = _system(arguments, engine), _settings(arguments, engine)
    check_lengths(system, measured)
    there = len(measured.requests)
    number = _number(arguments, there)
    times = latencies(measured.requests)
    calibration = calibrate(
        system.shape,
        _prior(system, other),
        lambda cost: _latencies(_served(system, settings, measured, cost)),
        times[:number],
        least=LEAST_KNOWN if other else LEAST_REQUESTS,
        seed=arguments.seed,
        on_generation=lambda done: print(
            f"npubench: {done} of {NUM_GENERATIONS} generations of draws", file=sys.stderr, flush=True
        ),
    )
    served = _served(system, settings, measured, calibration.best)
    simulated = _latencies(served)
    others = zip(METRICS, simulated[number:].T, times[number:].T, strict=True)
    errors = {name: error for latency in others for name, error in _spread(*latency).items()}
    off = dict(zip(METRICS, _residuals(simulated[:number], times[:number]).T, strict=True))
    until_s = measured.requests[number - 1].last_token_s
    kept = system.kv_dtype or system.dtype
    seen = seen_in(served.log, system.shape, kept, until_s=until_s)
    room = filled(seen_in(served.log, system.shape, kept), system.guessed_tokens)
    said = measured.doubts + system.shape.doubts + _assumed(settings, served.settings)
    content = replace(
        _content(system, calibration, seen, measured.source, number, errors),
        stack=measured.stack,
        doubts=doubts({name: off[name] for name in ("tpot", "e2e")}) + untold(calibration) + room + said,
    )
    return calibration, content, f"the first {number} of {measured.taken},"


def _fit_iterations(arguments: argparse.Namespace, other: CostFile | None) -> tuple[Calibration, CostFile, str]:
    from pytest_npubench.engines.hf_config import named_or_read
    from pytest_npubench.engines.kv_capacity import dtype_bytes
    from pytest_npubench.extensions.planning.cli.seen_iterations import (
        SeenIterations,
        is_journal,
        logged_iterations,
        rounds_of,
        stated_engine,
    )
    from pytest_npubench.extensions.planning.stated_engine import EngineArguments
    from pytest_npubench.extensions.planning.virtual.cost_file import seen_in
    from pytest_npubench.extensions.planning.virtual.doubts import doubts
    from pytest_npubench.extensions.planning.virtual.drift import calibrate_blocks
    from pytest_npubench.extensions.planning.virtual.step_calibration import pooled, samples_of
    from pytest_npubench.serving.log import merged

    if arguments.num_requests:
        raise ConfigError("--num-requests: iterations are calibrated on; want --first, such as 50%")
    shape = named_or_read(arguments.model)
    # our own loop plans an iteration when the one before has ended, and frees what is preempted
    engine, unread = EngineArguments(keeps_blocks=False, is_asynchronous=False), tuple[str, ...]()
    of_journal = is_journal(arguments.source)
    if not of_journal:
        engine, unread = stated_engine(arguments.source)
    system = _system(arguments, engine)
    if system.pipeline_parallel > 1:
        raise ConfigError(
            f"pipeline parallel {system.pipeline_parallel}: iterations overlap there; want requests of that run, or "
            "iterations of one stage"
        )
    kept = system.kv_dtype or system.dtype
    token_bytes = shape.kv_bytes_per_token(dtype_bytes(kept))
    if of_journal:
        rounds = rounds_of(arguments.source, shape)
    else:
        capacity = system.kv_capacity_tokens
        log = logged_iterations(arguments.source, shape, kv_token_bytes=token_bytes, kv_capacity_tokens=capacity)
        rounds = [{"": SeenIterations(log)}]
    blocks = [
        {
            name: samples_of(one.log, shape, kv_token_bytes=token_bytes, arrivals_s=one.arrivals_s)
            for name, one in own.items()
        }
        for own in rounds
    ]
    samples = pooled([one for own in blocks for one in own.values()])
    there = len(samples.seconds)
    number = max(1, round((arguments.first or 1.0) * there))
    first, rest = samples.part(0, number), samples.part(number, there)
    prior = _prior(system, other, first) if system.spec else None
    calibrated = calibrate_blocks(shape, _first_of(blocks, number), prior, seed=arguments.seed)
    calibration, doubtful = _drifting(calibrated, blocks, number)
    errors = _spread("step", rest.predicted(calibration.best), rest.seconds)
    seen = seen_in(merged([one.log for own in rounds for one in own.values()]), shape, kept)
    doubtful_steps = doubts({"step": _residuals(first.predicted(calibration.best), first.seconds)})
    content = replace(
        _content(system, calibration, seen, str(arguments.source), number, errors),
        doubts=(*doubtful_steps, *doubtful, *unread, *system.shape.doubts),
        experts=_experts(rounds, shape) if of_journal else (),
    )
    return calibration, content, f"the first {number} of {there} iterations"


def _experts(rounds: Sequence[Mapping[str, SeenIterations]], shape: DecoderShape) -> tuple[tuple[float, float], ...]:
    """What a journal's own counts say; vLLM's log has none."""
    from pytest_npubench.extensions.planning.virtual.measured_router import MeasuredRouter

    logs = [one.log for own in rounds for one in own.values()]
    return () if shape.is_dense else MeasuredRouter.of(logs, shape.num_layers).knots


def _first_of(blocks: Sequence[Mapping[str, StepSamples]], number: int) -> list[StepSamples]:
    """So many iterations of all, by block."""
    residuals = []
    for samples in (samples for own in blocks for samples in own.values()):
        residuals.append(samples.part(0, number))
        number -= len(residuals[-1].seconds)
    return [samples for samples in residuals if len(samples.seconds)]


def _drifting(
    fitted: Calibration, blocks: Sequence[Mapping[str, StepSamples]], number: int
) -> tuple[Calibration, tuple[str, ...]]:
    """With the drift between those rounds that it was wholly calibrated on in its draws, or the doubt that there is
    none."""
    import numpy as np

    from pytest_npubench.extensions.planning.virtual.drift import with_drift

    ends = np.cumsum([sum(len(one.seconds) for one in own.values()) for own in blocks])
    whole = [own for own, end in zip(blocks, ends, strict=True) if end <= number]
    common = [name for name in whole[0] if all(name in own for own in whole)] if len(whole) > 1 else []
    if not common:
        return fitted, ("no two rounds of the same blocks: what the machine's speed does between them is in no band",)
    return with_drift(fitted, np.array([[own[name].slow(fitted.best) for name in common] for own in whole])), ()


def _prior(system: System, other: CostFile | None, samples: StepSamples | None = None) -> Prior:
    """samples: where iterations are known. Raises ConfigError for another cost whose factors are not over peaks."""
    from pytest_npubench.extensions.planning.virtual.calibration import prior_of
    from pytest_npubench.extensions.planning.virtual.step_prior import told_by

    assert system.spec is not None
    prior = prior_of(
        system.shape,
        system.spec,
        tensor_parallel=system.tensor_parallel,
        dtype=system.dtype,
        kv_dtype=system.kv_dtype,
        num_sharing=system.num_sharing,
    )
    if samples is not None:
        prior = told_by(prior, samples)
    if other is None:
        return prior
    if not other.is_over_peaks:
        raise ConfigError(
            "--from: that cost was calibrated without --hardware, and its factors are over no peaks; want one with"
        )
    return prior.moved_from(other.calibration_as_is(system.shape))


def _content(
    system: System, calibration: Calibration, seen: Seen, source: str, number: int, errors: dict[str, float]
) -> CostFile:
    from pytest_npubench.extensions.planning.virtual.cost_file import CostFile

    return CostFile(
        model=system.shape.name,
        num_layers=system.shape.num_layers,
        num_parameters=system.shape.num_parameters,
        has_experts=not system.shape.is_dense,
        hardware=system.hardware,
        tensor_parallel=system.tensor_parallel,
        pipeline_parallel=system.pipeline_parallel,
        data_parallel=system.data_parallel,
        is_expert_parallel=system.is_expert_parallel,
        dtype=system.dtype,
        kv_dtype=system.kv_dtype,
        kv_capacity_tokens=system.kv_capacity_tokens,
        is_capacity_guessed=system.is_capacity_guessed,
        keeps_blocks=system.keeps_blocks,
        asynchronous=system.is_asynchronous,
        terms=calibration.prior.names,
        unit_s=tuple(calibration.prior.unit_s.tolist()),
        curve=calibration.prior.curve,
        logs=tuple(tuple(round(value, 5) for value in row) for row in calibration.logs.tolist()),
        centre=tuple(calibration.centre.tolist()),
        seen=seen,
        source=source,
        num_seen=number,
        errors=errors,
    )


def _say(arguments: argparse.Namespace, calibration: Calibration, content: CostFile, calibrated: str) -> None:
    say(f"from    {calibrated} of {content.source}")
    rows = [
        (name, f"{1e6 * getattr(calibration.best, name):.4g} us", f"{middle:.2f}", f"{low:.2f} to {high:.2f}")
        for name, (middle, low, high) in calibration.factors().items()
    ]
    print(columns([("term", "seconds", "over peak" if arguments.hardware else "over first fit", "90 %"), *rows]))
    seen = content.seen
    say(
        f"seen    iterations of up to {seen.prefill_tokens} prompt tokens ({seen.prefill_pairs} that they look at), "
        f"{seen.decode_rows} decode rows and {seen.context_tokens} tokens of context"
    )
    if content.errors:
        errors = ", ".join(f"{name.replace('_', ' ').upper()} {value:+.1%}" for name, value in content.errors.items())
        say(f"error   on the others, predicted over measured: {errors}")
    else:
        say("error   not known: nothing was left to judge on; want --first or --num-requests")
    for words in content.doubts:
        say(f"doubt   {words}")
    say(f"wrote   {arguments.output}")


def _system(arguments: argparse.Namespace, engine: EngineArguments) -> System:
    stated = stated_by_run(engine, arguments.model).as_vllm()
    system = system_of(arguments, stated, may_exceed_memory=True)
    return replace(system, is_asynchronous=system.is_asynchronous and not arguments.synchronous)


def _settings(arguments: argparse.Namespace, engine: EngineArguments) -> dict[str, Setting]:
    """Where neither an option nor the run says: the defaults of the policy that `npubench simulate` runs."""
    given = {
        "chunk_size_tokens": arguments.chunk_size or engine.chunk_size_tokens,
        "max_batch_size": arguments.max_batch or engine.max_batch_size,
    }
    return {name: value for name, value in given.items() if value is not None}


def _assumed(settings: Mapping[str, Setting], used: Mapping[str, Setting]) -> tuple[str, ...]:
    """In words, what neither the run nor an option says of a policy that was run with `used`."""
    names = ("chunk_size_tokens", "max_batch_size")
    assumed = [f"{name} {used[name]}" for name in names if name not in settings]
    return (f"neither the run nor an option says {' and '.join(assumed)}: it is assumed",) if assumed else ()


def _number(arguments: argparse.Namespace, there: int) -> int:
    wanted = arguments.num_requests or (there if arguments.first is None else max(1, round(arguments.first * there)))
    if wanted > there:
        raise ConfigError(f"--num-requests {wanted}: the run has {there}")
    return int(wanted)


def _served(system: System, settings: dict[str, Setting], measured: MeasuredRun, cost: CalibratedCost) -> ServingResult:
    from pytest_npubench.extensions.planning.cli.simulation import simulate

    return simulate(replace(system, cost=cost, is_stamped=measured.is_stamped), "chunked", settings, measured.load())


def _latencies(served: ServingResult) -> npt.NDArray[np.float64]:
    import numpy as np

    return np.array([[one.ttft_s, one.e2e_latency_s, one.tpot_s or 0.0] for one in served.records])


def _residuals(predicted: npt.NDArray[np.float64], measured: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Logarithms of one over the other; not a number where there is none."""
    import numpy as np

    usable = (predicted > 0) & (measured > 0)
    errors: npt.NDArray[np.float64] = np.full(measured.shape, np.nan)
    return np.log(np.divide(predicted, measured, out=errors, where=usable), out=errors)


def _spread(name: str, predicted: npt.NDArray[np.float64], measured: npt.NDArray[np.float64]) -> dict[str, float]:
    """Predicted over measured - 1 of mean and percentiles; nothing where nothing was left."""
    import numpy as np

    if not measured.any():
        return {}
    percentiles = np.percentile(predicted, (50, 90, 99)) / np.percentile(measured, (50, 90, 99))
    ratios = zip(("mean", "p50", "p90", "p99"), (predicted.mean() / measured.mean(), *percentiles), strict=True)
    return {f"{name}_{part}": float(ratio - 1) for part, ratio in ratios}
