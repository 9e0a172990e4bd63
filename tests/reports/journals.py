"""Journals of a made-up device whose times stand in a table, judged by the real case kinds.

Every duration is counted step by step below, so what reports and predictions must come to is known by hand: TTFT, TBT
and the moves are the table's, prediction errors are 0 unless a workload is slowed down, and round r of a point takes
ROUND_FACTORS[r] times its table time, which have mean 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from made_records import H200, HOST, judged_case

from pytest_npubench.campaign.campaign import by_name
from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.protocol import campaign_digest
from pytest_npubench.core.buckets import bucket_of
from pytest_npubench.core.hardware import RunSize
from pytest_npubench.core.hardware_reader import default_directory
from pytest_npubench.core.measurement import CacheState, CompileRecord
from pytest_npubench.store.fingerprint import Fingerprint
from pytest_npubench.store.journal import JournalWriter
from pytest_npubench.suites import case_kind
from pytest_npubench.suites.buckets.plan import BucketPlan
from pytest_npubench.suites.buckets.points import BucketPoint
from pytest_npubench.suites.hardware_files import load_hardware
from pytest_npubench.verdict.result import JudgedCase

BUCKETS = (128, 256, 512)
TTFT_S = {128: 0.010, 256: 0.018, 512: 0.034}
TBT_S = {128: 0.002, 256: 0.003, 512: 0.005}
MOVE_S = {256: 0.001, 512: 0.0025}
ROUND_FACTORS = (1.2, 0.9, 0.9)
WORKLOADS = ("lens-sharegpt", "lens-writing-prompts")
KINDS = ("prediction", "mean_error", "profile", "steps")


def make_plan(batch_size: int = 1, model: str = "tiny-llama") -> BucketPlan:
    size = RunSize(
        name="quick",
        models=(model,),
        batch_sizes=(batch_size,),
        buckets=BUCKETS,
        workloads=WORKLOADS,
        num_draws=2,
        min_rounds=3,
        max_rounds=3,
        budget_s=1,
    )
    spec = load_hardware(default_directory() / "cpu.toml")
    return BucketPlan(spec=spec, size=size, model=model, batch_size=batch_size, case_error=0.1, mean_error=0.05)


def make_fingerprint(accelerator: str = "NVIDIA H200", uuid: str = "GPU-1") -> Fingerprint:
    device = replace(H200, name=accelerator, compiler=None, extra=(("devices", uuid),))
    return Fingerprint(device=device, host=HOST)


def duration_s(point: BucketPoint) -> float:
    """Table time of a point, counted prompt by prompt and step by step; the batch decodes in its longest cache."""
    if point.move is not None:
        return MOVE_S[point.move[1]]
    requests = point.requests
    total = sum(TTFT_S[bucket_of(BUCKETS, item.input_tokens)] for item in requests)
    cache = bucket_of(BUCKETS, min(item.input_tokens for item in requests))
    for step in range(max(item.output_tokens for item in requests) - 1):
        longest = max(item.input_tokens + min(step + 1, item.output_tokens - 1) for item in requests)
        total += TBT_S[bucket_of(BUCKETS, longest)]
    longest_ever = max(item.input_tokens + item.output_tokens - 1 for item in requests)
    return total + sum(MOVE_S[bucket] for bucket in BUCKETS if cache < bucket <= bucket_of(BUCKETS, longest_ever))


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One campaign's points with their rounds, and how they are judged."""

    plan: BucketPlan
    points: tuple[BucketPoint, ...]
    measured: Measured

    @property
    def digest(self) -> str:
        return campaign_digest(self.plan, self.points)


def measure(
    plan: BucketPlan, *, slow: Mapping[str, float] | None = None, failures: Mapping[str, str] | None = None
) -> Measurement:
    """Rounds of all points. `slow` multiplies points whose name begins so; `failures` are points without samples."""
    cases = [(case_kind(name), axes) for name in KINDS for axes in case_kind(name).axes(plan)]
    points = by_name(
        [point for kind, axes in cases for point in kind.points(plan.case(kind.suite, kind.name, axes), plan)]
    )
    factors = {
        point.name: next((value for name, value in (slow or {}).items() if point.name.startswith(name)), 1.0)
        for point in points
    }
    rounds = [
        {
            point.name: (duration_s(point) * factor * factors[point.name],) * 2
            for point in points
            if point.name not in (failures or {})
        }
        for factor in ROUND_FACTORS
    ]
    compiles = tuple(
        CompileRecord(name=f"{phase}-{plan.model}-b{plan.batch_size}-{bucket}", compile_s=0.5, cache=CacheState.COLD)
        for bucket in plan.buckets
        for phase in ("prefill", "decode")
    )
    measured = Measured(rounds=list(rounds), failures=dict(failures or {}), compiles=compiles, measure_s=3.0)
    return Measurement(plan=plan, points=points, measured=measured)


def judge(
    measurement: Measurement, *, fingerprint: str | None, device: str = "cuda:0", kinds: Sequence[str] = KINDS
) -> list[JudgedCase]:
    """Every case of these kinds; one that cannot be judged is invalid with the reason, as in a run."""
    from pytest_npubench.errors import NpubenchError
    from pytest_npubench.verdict import Verdict, VerdictKind
    from pytest_npubench.verdict.result import Judgement

    judged = []
    for name in kinds:
        kind = case_kind(name)
        for axes in kind.axes(measurement.plan):
            case = measurement.plan.case(kind.suite, kind.name, axes)
            try:
                judgement = kind.judge(case, measurement.plan, measurement.measured)
            except NpubenchError as error:
                judgement = Judgement(verdict=Verdict(kind=VerdictKind.INVALID, reason=str(error)))
            if not measurement.plan.is_reference:  # as a run does it
                judgement = replace(judgement, engine=measurement.plan.engine)
            judged.append(
                judged_case(
                    case,
                    judgement,
                    digest=case.digest(measurement.plan.settings),
                    device=device,
                    fingerprint=fingerprint,
                    duration_s=1.5,
                    limits={"case_error": measurement.plan.case_error, "mean_error": measurement.plan.mean_error},
                    campaign=measurement.plan.key,
                )
            )
    return judged


def write_rounds(writer: JournalWriter, measurement: Measurement, fingerprint: str) -> None:
    about = {"campaign": measurement.plan.key, "campaign_digest": measurement.digest, "duration_s": 1.0}
    records = round_records(measurement.measured.rounds, fingerprint=fingerprint, **about)
    for record in records:
        writer.append(record | ({} if record["round"] else {"failures": measurement.measured.failures}))


def round_records(rounds: Sequence[Mapping[str, object]], **about: object) -> list[dict[str, object]]:
    """The records of a whole campaign's rounds, of ten seconds each unless `about` says otherwise."""
    shared = {"campaign_digest": "0123456789ab", "failures": {}, "duration_s": 10.0, "num_late_compiles": 0, **about}
    return [
        {"record": "round", "round": index, "points": points, "complete": index == len(rounds) - 1, **shared}
        for index, points in enumerate(rounds)
    ]


def open_journal(path: Path, worker: str | None = None, run: str | None = None) -> JournalWriter:
    return JournalWriter.open(path, host=HOST, settings={"profile": "quick"}, worker=worker, run=run)


def write_run(
    path: Path, measurement: Measurement, *, worker: str | None = None, accelerator: str = "NVIDIA H200"
) -> str:
    """One whole session: device, rounds, cases, end. Returns its id."""
    with open_journal(path, worker) as writer:
        digest = writer.device(make_fingerprint(accelerator))
        write_rounds(writer, measurement, digest)
        for judged in judge(measurement, fingerprint=digest):
            writer.append({"record": "case", **judged.to_json()})
            about = {"case": judged.case.key, "device": judged.device}
            writer.append({"record": "outcome", **about, "outcome": "passed"})
        writer.append({"record": "end", "exit_status": 0, "counts": {}})
        return writer.session


def only(measurement: Measurement, *names: str) -> Measurement:
    """The measurement narrowed to points whose names begin so, as a run of a few selected cases leaves it."""
    points = tuple(point for point in measurement.points if point.name.startswith(names))
    kept = {point.name for point in points}
    rounds = [{name: row[name] for name in row if name in kept} for row in measurement.measured.rounds]
    return replace(measurement, points=points, measured=replace(measurement.measured, rounds=list(rounds)))
