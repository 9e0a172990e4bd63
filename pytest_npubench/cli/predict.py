"""`npubench predict`: LENS latency of a request, a batch, or a workload's requests, from a stored profile or a journal.

A workload's lengths are one seeded sample (seed 0), and what no bucket holds is dropped and counted. With --batch the
sample is predicted in batches, and mean and quantiles are over the batches. --predictor puts rivals of LENS beside it,
fitted on the same rounds of a journal; a request of which no batch is told is a batch of its own to them.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_npubench.cli.arguments import Commands, add_command, columns, print_document, request_count
from pytest_npubench.core.measurement import Request
from pytest_npubench.errors import ConfigError, NpubenchError, RegistryError
from pytest_npubench.plain_text import plain

if TYPE_CHECKING:
    from pytest_npubench.predictors.lens import LensPredictor
    from pytest_npubench.predictors.profile import BucketProfile
    from pytest_npubench.suites.buckets.profile_source import SourcedProfile
    from pytest_npubench.workloads.sampling import LengthSample

QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
COVERAGE = 0.9
TIMES = ("prefill_s", "decode_s", "e2e_s")


def add_parser(commands: Commands, about: str) -> None:
    parser = add_command(
        commands, "predict", about, "npubench predict profile.json --input-tokens 100 --output-tokens 60"
    )
    parser.add_argument("profile", metavar="PROFILE.json", nargs="?", type=Path, help="a stored bucket profile")
    parser.add_argument("--journal", metavar="PATH", type=Path, help="take the profile from this journal instead")
    parser.add_argument("--campaign", metavar="KEY", help="the campaign in the journal, such as cpu-tiny-llama-b4")
    parser.add_argument("--input-tokens", metavar="N", type=int, help="tokens of the prompt")
    parser.add_argument("--output-tokens", metavar="M", type=int, help="tokens to generate, the first one from prefill")
    parser.add_argument("--workload", metavar="NAME_OR_PATH", help="predict requests of this workload")
    parser.add_argument("--num-requests", metavar="K", type=request_count, help="how many requests of the workload")
    parser.add_argument("--batch", metavar="B", type=request_count, help="predict batches of B requests")
    parser.add_argument("--attention", choices=("padded", "ragged"), help="of a batch (default padded)")
    parser.add_argument("--finished", choices=("grow", "freeze", "drop"), help="in a padded batch (default grow)")
    parser.add_argument("--literal", action="store_true", help="the paper's printed text: as many steps as tokens")
    parser.add_argument(
        "--predictor", metavar="NAME[,NAME]", type=_rivals, default=(), help="rivals of LENS beside it, or all of them"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=lambda arguments: run(parser, arguments))


def run(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    """Raises StoreError for a profile or journal that cannot be used, LengthError, WorkloadError and ConfigError."""
    _check_usage(parser, arguments)
    from pytest_npubench.predictors.lens import LensPredictor

    sourced = _profile(arguments)
    if (arguments.batch or 1) > sourced.profile.batch_size:
        raise ConfigError(f"--batch {arguments.batch}: the profile is compiled for 1 to {sourced.profile.batch_size}")
    predictor = LensPredictor(sourced.profile, literal=arguments.literal)
    answer: dict[str, Any] = {
        "profile": {
            "source": sourced.source,
            "buckets": list(sourced.profile.buckets),
            "batch_size": sourced.profile.batch_size,
            "remarks": list(sourced.remarks),
        }
    }
    answer |= _batch(predictor, arguments) if arguments.workload is None else _workload(predictor, arguments)
    if arguments.predictor:
        answer["predictors"] = _beside(sourced, arguments)
    if arguments.json:
        print_document("prediction", **answer)
    else:
        print("\n".join(_lines(answer)))


def _check_usage(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    """Wants exactly one profile and one question, and a batch with options that say how a batch decodes."""
    stored, measured = arguments.profile is not None, (arguments.journal is not None, arguments.campaign is not None)
    if stored == any(measured) or any(measured) != all(measured):
        parser.error("want a PROFILE.json, or --journal and --campaign together")
    single = (arguments.input_tokens is not None, arguments.output_tokens is not None)
    many = (arguments.workload is not None, arguments.num_requests is not None)
    if any(single) == any(many) or any(single) != all(single) or any(many) != all(many):
        parser.error("want --input-tokens and --output-tokens together, or --workload and --num-requests together")
    if arguments.batch is None and (arguments.attention or arguments.finished):
        parser.error("--attention and --finished are about a batch; want --batch as well")
    if arguments.attention == "ragged" and arguments.finished:
        parser.error("--finished is about a padded batch; it has no meaning with --attention ragged")


def _profile(arguments: argparse.Namespace) -> SourcedProfile:
    from pytest_npubench.suites.buckets.profile_source import (
        estimates_from_journal,
        profile_from_file,
        profile_from_journal,
    )

    if arguments.profile is not None:
        return profile_from_file(arguments.profile)
    from pytest_npubench.store.journal_reader import read_journal

    journal = read_journal(arguments.journal)
    return estimates_from_journal(journal, arguments.campaign) or profile_from_journal(
        journal, arguments.campaign, literal=arguments.literal
    )


def _batch(predictor: LensPredictor, arguments: argparse.Namespace) -> dict[str, Any]:
    """Predicts one request, or a batch of equal requests, with its band where the profile has standard errors."""
    request = (arguments.input_tokens, arguments.output_tokens)
    has_errors = all(timing.errors for timing in predictor.profile.buckets.values())
    if arguments.batch is None:
        prediction = predictor.predict(*request)
        band = predictor.band(*request, coverage=COVERAGE) if has_errors else None
    else:
        batch, how = [request] * arguments.batch, _how(arguments)
        prediction = predictor.predict_batch(batch, **how)
        band = predictor.band_batch(batch, **how, coverage=COVERAGE) if has_errors else None
    return {
        "request": {"input_tokens": request[0], "output_tokens": request[1], "batch": arguments.batch},
        **{name: getattr(prediction, name) for name in TIMES},
        "band": band and {"low_s": band.low_s, "high_s": band.high_s, "coverage": band.coverage},
    }


def _workload(predictor: LensPredictor, arguments: argparse.Namespace) -> dict[str, Any]:
    """The mean and quantiles over the requests of a workload, or over batches of them."""
    import numpy as np

    from pytest_npubench.workloads import workload

    sample = _sample(predictor.profile, arguments)
    pairs = [(item.input_tokens, item.output_tokens) for item in sample.requests]
    if arguments.batch is None:
        lengths = np.asarray(pairs, dtype=np.int64)
        predicted = predictor.predict(lengths[:, 0], lengths[:, 1])
        times_s = {name: getattr(predicted, name) for name in TIMES}
    else:
        batches = [pairs[start : start + arguments.batch] for start in range(0, len(pairs), arguments.batch)]
        rows = [predictor.predict_batch(batch, **_how(arguments)) for batch in batches]
        times_s = {name: np.asarray([getattr(row, name) for row in rows]) for name in TIMES}
    return {
        "workload": {
            "name": workload(arguments.workload).name,
            "num_requests": len(pairs),
            "num_drawn": sample.num_drawn,
            "num_dropped": sample.num_dropped,
            "batch": arguments.batch,
        },
        **{name: _summary(times_s[name]) for name in TIMES},
    }


def _rivals(text: str) -> tuple[str, ...]:
    from pytest_npubench.predictors import rivals

    try:
        return rivals([name.strip() for name in text.split(",") if name.strip()])
    except RegistryError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _beside(sourced: SourcedProfile, arguments: argparse.Namespace) -> dict[str, Any]:
    """What each rival predicts for the same batches, in seconds end to end, or why it has no prediction. Raises
    ConfigError for a profile without the samples that rivals are fitted on, and for options that only LENS has."""
    import numpy as np

    from pytest_npubench.predictors import predictor

    if sourced.samples is None:
        raise ConfigError("--predictor: rivals are fitted on rounds; want --journal and --campaign, not a PROFILE.json")
    if arguments.attention == "ragged" or arguments.literal:
        raise ConfigError("--predictor: --attention ragged and --literal are readings of LENS; want neither")
    samples = replace(sourced.samples, finished=arguments.finished or "grow")
    answer: dict[str, Any] = {}
    for name in arguments.predictor:
        try:
            rival = predictor(name)
            fitted = rival.fit(samples)
            e2e_s = [float(fitted.predict(batch)) for batch in _batches(sourced.profile, arguments)]
        except NpubenchError as error:
            answer[name] = {"reason": str(error)}
        else:
            answer[name] = {"e2e_s": e2e_s[0] if arguments.workload is None else _summary(np.asarray(e2e_s))}
            if rival.basis:
                answer[name]["basis"] = rival.basis
    return answer


def _batches(profile: BucketProfile, arguments: argparse.Namespace) -> list[tuple[Request, ...]]:
    """The requests that are asked about, in batches."""
    size = arguments.batch or 1
    if arguments.workload is None:
        return [(Request(input_tokens=arguments.input_tokens, output_tokens=arguments.output_tokens),) * size]
    requests = _sample(profile, arguments).requests
    return [requests[start : start + size] for start in range(0, len(requests), size)]


def _sample(profile: BucketProfile, arguments: argparse.Namespace) -> LengthSample:
    from pytest_npubench.workloads import workload

    longest = {"max_total_tokens": profile.decode_buckets[-1], "max_input_tokens": profile.prefill_buckets[-1]}
    return workload(arguments.workload).sample(arguments.num_requests, seed=0, **longest)


def _how(arguments: argparse.Namespace) -> dict[str, Any]:
    return {"attention": arguments.attention or "padded", "finished": arguments.finished or "grow"}


def _summary(times_s: Any) -> dict[str, float]:
    import numpy as np

    quantiles = {name: float(np.quantile(times_s, level)) for name, level in QUANTILES.items()}
    return {"mean": float(times_s.mean()), **quantiles}


def _lines(answer: Mapping[str, Any]) -> list[str]:
    profile = answer["profile"]
    buckets = ", ".join(map(str, profile["buckets"]))
    lines = [
        plain(f"profile    {profile['source']}"),
        f"buckets    {buckets}; compiled for a batch of {profile['batch_size']}",
    ]
    lines += [plain(f"note       {remark}") for remark in profile["remarks"]]
    lines += _request_lines(answer) if "request" in answer else _workload_lines(answer)
    return [*lines, *(_rival_line(name, told) for name, told in answer.get("predictors", {}).items())]


def _rival_line(name: str, answer: Mapping[str, Any]) -> str:
    """A rival's end-to-end line, beside LENS's lines: one time, or mean and quantiles."""
    if "reason" in answer:
        return plain(f"{name:<9}  none: {answer['reason']}")
    e2e_s, basis = answer["e2e_s"], f" ({answer['basis']})" if "basis" in answer else ""
    if isinstance(e2e_s, float):
        return f"{name:<9}  {e2e_s:.4g} s e2e{basis}"
    return f"{name:<9}  e2e " + ", ".join(f"{column} {value:.4g} s" for column, value in e2e_s.items()) + basis


def _request_lines(answer: Mapping[str, Any]) -> list[str]:
    request, band = answer["request"], answer["band"]
    alone = "alone" if request["batch"] is None else f"in a batch of {request['batch']} equal ones"
    lines = [f"request    {request['input_tokens']} tokens in, {request['output_tokens']} out, {alone}"]
    lines += [f"{name:<9}  {answer[name]:.4g} s" for name in TIMES]
    if band:
        low, high = band["low_s"], band["high_s"]
        lines[-1] += f" ({band['coverage']:.0%} band {low:.4g} to {high:.4g} s)"
    return lines


def _workload_lines(answer: Mapping[str, Any]) -> list[str]:
    workload = answer["workload"]
    size = "each alone" if workload["batch"] is None else f"in batches of {workload['batch']}"
    names = ("mean", *QUANTILES)
    rows = [("", *names)] + [(name, *(f"{answer[name][column]:.4g} s" for column in names)) for name in TIMES]
    return [
        f"workload   {workload['name']}: {workload['num_requests']} requests, {size}",
        f"dropped    {workload['num_dropped']} of {workload['num_drawn']} drawn, which no bucket holds",
        columns(rows),
    ]
