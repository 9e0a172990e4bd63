"""A bucket profile from where users have one: a JSON file, or the rounds that a campaign left in a journal.

From a journal, the profile points of the campaign's rounds (profile/BUCKET/OUTPUT_TOKENS, whole batches end to end) are
fitted as the campaign itself fits them (LENS, Eq. 14 and 15). The moves of the KV cache (move/SMALLER/LARGER) go in
where every one was measured: a campaign measures those that its workloads need.

A campaign of compiled binaries has no rounds of a device: each bucket's TTFT and TBT are then what its compiler
estimated, and every answer from them says so.

Worked example: in campaign h200-tiny-b4, profile/128/1 of 40 ms and profile/128/33 of 104 ms give bucket 128 a TTFT of
40 / 4 = 10 ms and a TBT of 64 / 32 = 2 ms.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from pytest_npubench.campaign.points import Measured
from pytest_npubench.core.measurement import NOT_RUN, CompileRecord, Phase
from pytest_npubench.core.regular_file import read_bytes
from pytest_npubench.errors import JournalError, StoreError, did_you_mean
from pytest_npubench.predictors.profile import BucketProfile, BucketTiming
from pytest_npubench.predictors.protocol import PartSamples, ProfileSamples
from pytest_npubench.predictors.two_point import ProfilePoint, fit
from pytest_npubench.store.journal_reader import Journal, Record
from pytest_npubench.store.json_text import JsonError, decode
from pytest_npubench.suites.buckets.estimated_binaries import profile_of_estimates
from pytest_npubench.suites.buckets.points import MOVE, PROFILE, BucketVisit, Variant, canary_samples

COMPILED = "compiled/profile/"  # how the keys of its cases begin
MAX_BYTES = 64 * 1024 * 1024
SHALLOW = re.compile(r"(b(?P<batch>\d{1,9})(?P<buckets>(?:-\d{1,9})+)-layers(?P<layers>\d{1,9})/)profile/")
_BATCH = re.compile(r".*-b(\d{1,9})(?:-[a-z][\w.-]*)?$")  # and the engine, where it is not the reference


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcedProfile:
    """A profile and, in words, where it came from and what it lacks. samples: what rivals of LENS are fitted on, None
    where only the profile was kept."""

    profile: BucketProfile
    source: str
    samples: ProfileSamples | None = None
    remarks: tuple[str, ...] = ()


def profile_from_file(path: Path) -> SourcedProfile:
    """Reads a profile. Raises StoreError naming the file and the position in it that is wrong."""
    try:
        data = decode(read_bytes(path, MAX_BYTES))
        return SourcedProfile(profile=BucketProfile.from_json(data), source=str(path))
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}") from error
    except JsonError as error:
        position = f" line {error.line} column {error.column}" if error.line else ""
        raise StoreError(f"{path}{position}: {error}") from error
    except StoreError as error:
        raise StoreError(f"{path}: {error}") from error


def profile_from_journal(journal: Journal, campaign: str, *, literal: bool = False) -> SourcedProfile:
    """Returns the profile of the campaign's latest fingerprint, by the latest of its runs with the most profile points.

    A later run of a few selected cases has fewer points, and a profile with buckets missing would predict wrongly.
    Raises JournalError where the journal has no rounds of the campaign, where they hold no profile points, a point
    failed, or a bucket between two others is missing; MeasurementError where the fit comes out at 0 or below.
    """
    rounds = _rounds(journal, campaign)
    where = f"journal {journal.path}: campaign {campaign}"
    _check_failures(where, rounds)
    samples, moves_s = _samples(rounds, PROFILE), _samples(rounds, MOVE)
    if not samples:
        raise JournalError(f"{where}: its rounds hold no profile points; run its profile or prediction cases")
    _check_gaps(where, {bucket for bucket, _ in samples}, moves_s)
    buckets = sorted({bucket for bucket, _ in samples})
    transitions_s, remarks = _transitions(buckets, moves_s)
    points, batch_size = _points(samples), _batch_size(where, campaign)
    compiles = journal.compiles(rounds[-1]["campaign_digest"], rounds[-1]["fingerprint"])
    estimates, why_not = profile_of_estimates(compiles, buckets, batch_size=batch_size)
    return SourcedProfile(
        profile=fit(points, batch_size=batch_size, literal=literal, transitions_s=transitions_s),
        samples=ProfileSamples(
            samples_s=points,
            batch_size=batch_size,
            moves_s={larger: values for (_, larger), values in moves_s.items()} if transitions_s else {},
            compiles=compiles,
            estimates=estimates,
            why_no_estimates=why_not,
            parts=_parts(campaign, rounds, compiles, tuple(points)),
            canaries_s=canary_samples([record["points"] for record in rounds]),
        ),
        source=f"{campaign}, {len(rounds)} rounds of session {rounds[-1]['session']} in {journal.path}",
        remarks=(*remarks, *([journal.left_out] if journal.damage else [])),
    )


def _parts(
    campaign: str, rounds: Sequence[Record], compiles: Sequence[CompileRecord], points: Sequence[ProfilePoint]
) -> PartSamples:
    """Returns the samples of parts of the model, for rivals that add up parts. The model is taken from the campaign's
    name."""
    from pytest_npubench.engines.shapes import SHAPES
    from pytest_npubench.predictors import names as predictor_names
    from pytest_npubench.suites.buckets.profile_samples import samples_of_parts

    named = [shape for shape in SHAPES.values() if f"-{shape.name}-b" in campaign]
    if not named:
        return PartSamples(why_not=f"campaign {campaign} names no decoder whose layers are known")
    variants = {
        match[1]: Variant(
            batch_size=int(match["batch"]),
            buckets=tuple(map(int, match["buckets"].split("-")[1:])),
            num_layers=int(match["layers"]),
        )
        for record in rounds
        for name in record["points"]
        if (match := SHALLOW.match(name))
    }
    return samples_of_parts(
        Measured(
            rounds=[record["points"] for record in rounds],
            failures={name: why for record in rounds for name, why in dict(record.get("failures", {})).items()},
            compiles=tuple(compiles),
        ),
        points,
        rivals=predictor_names(),
        num_layers=max(named, key=lambda shape: len(shape.name)).num_layers,
        shallow={variant.num_layers: variant for variant in variants.values() if variant.num_layers is not None},
        why_not="the journal's rounds were measured without it; run with --npubench-predictors all",
    )


def estimates_from_journal(journal: Journal, campaign: str) -> SourcedProfile | None:
    """Returns the profile that the latest compiler of a campaign of compiled binaries estimated; None for a campaign of
    another kind. Raises JournalError where the compiler estimates no times."""
    cases = [
        record
        for record in journal.records
        if record["record"] == "case" and record.get("campaign") == campaign and record["case"].startswith(COMPILED)
    ]
    if not cases:
        return None
    latest = [record for record in cases if record["fingerprint"] == cases[-1]["fingerprint"]]
    where = f"journal {journal.path}: campaign {campaign}"
    failed = next((record["id"] for record in latest if record["verdict"]["kind"] == "failed"), None)
    if failed is not None:
        raise JournalError(f"{where}: {failed} failed, so the profile has a hole")
    steps = {record["detail"]["bucket"]: record["detail"].get("steps") for record in latest}
    times = {
        bucket: [estimates[phase.value]["estimated_s"] for phase in Phase] if estimates else [None]
        for bucket, estimates in sorted(steps.items())
    }
    if any(None in estimates for estimates in times.values()):
        raise JournalError(f"{where}: {NOT_RUN}, and this compiler tells no times; want rounds on a device")
    return SourcedProfile(
        profile=BucketProfile(
            buckets={bucket: BucketTiming(ttft_s=ttft_s, tbt_s=tbt_s) for bucket, (ttft_s, tbt_s) in times.items()},
            batch_size=_batch_size(where, campaign),
        ),
        source=f"{campaign}, {NOT_RUN}, in {journal.path}",
        remarks=(
            f"all times are the compiler's estimates ({NOT_RUN}), added up by LENS's equations; nothing was measured",
            "moves of the KV cache are left out",
        ),
    )


def _rounds(journal: Journal, campaign: str) -> tuple[Record, ...]:
    records = [record for record in journal.records if record["record"] == "round"]
    of_campaign = [record for record in records if record["campaign"] == campaign]
    if not of_campaign:
        campaigns = dict.fromkeys(record["campaign"] for record in records)
        damage = f"; {journal.left_out}" if journal.damage else ""
        there = f"campaigns there: {', '.join(campaigns) or 'none'}{damage}{did_you_mean(campaign, campaigns)}"
        raise JournalError(f"journal {journal.path}: no rounds of campaign {campaign!r}; {there}")
    fingerprint = of_campaign[-1]["fingerprint"]
    latest_first = dict.fromkeys(
        record["campaign_digest"] for record in reversed(of_campaign) if record["fingerprint"] == fingerprint
    )
    runs = [journal.rounds(campaign, digest, fingerprint) for digest in latest_first]
    return max(runs, key=_num_profile_points)  # of equal ones the first, so the latest


def _num_profile_points(rounds: Sequence[Record]) -> int:
    return len({name for record in rounds for name in record["points"] if PROFILE.fullmatch(name)})


def _samples(rounds: Sequence[Record], pattern: re.Pattern[str]) -> dict[tuple[int, int], list[float]]:
    """Maps the two numbers in a point's name to its samples in seconds over all rounds."""
    measured = Measured(rounds=[record["points"] for record in rounds])
    named = {match[0]: match for row in measured.rounds for name in row if (match := pattern.fullmatch(name))}
    return {
        (int(match[1]), int(match[2])): [
            visit.seconds for visits in measured.visits(name, BucketVisit) for visit in visits
        ]
        for name, match in named.items()
    }


def _check_failures(where: str, rounds: Sequence[Record]) -> None:
    for record in rounds:
        for name, reason in dict(record.get("failures", {})).items():
            if PROFILE.fullmatch(name):
                raise JournalError(f"{where}: {name} failed, so the profile has a hole: {reason}")


def _check_gaps(where: str, buckets: Collection[int], moves_s: Collection[tuple[int, int]]) -> None:
    """Raises JournalError unless both buckets of each move are in the profile: moves go between neighbours."""
    for smaller, larger in moves_s:
        if missing := {smaller, larger} - set(buckets):
            raise JournalError(f"{where}: no profile points of bucket {min(missing)}; run the whole campaign")


def _transitions(
    buckets: Sequence[int], moves_s: Mapping[tuple[int, int], list[float]]
) -> tuple[dict[int, float] | None, tuple[str, ...]]:
    """Mean seconds of the move into each bucket but the smallest; None and a remark where one is missing."""
    means_s = {larger: fmean(values) for (_, larger), values in moves_s.items()}
    missing = [str(bucket) for bucket in buckets[1:] if bucket not in means_s]
    if missing:
        return None, (f"moves of the KV cache are left out: none was measured into bucket {', '.join(missing)}",)
    return means_s or None, ()


def _points(samples: Mapping[tuple[int, int], list[float]]) -> dict[ProfilePoint, list[float]]:
    """Returns the points as plan_points makes them: prompts of the bucket less the longer of its two outputs."""
    longest: dict[int, int] = {}
    for bucket, output in samples:
        longest[bucket] = max(output, longest.get(bucket, 0))
    return {
        ProfilePoint(bucket=bucket, input_tokens=bucket - longest[bucket], output_tokens=output): values
        for (bucket, output), values in sorted(samples.items())
    }


def _batch_size(where: str, campaign: str) -> int:
    match = _BATCH.search(campaign)
    if match is None:
        raise JournalError(
            f"{where}: the name says no batch size; want one that ends in -bN, such as cpu-tiny-llama-b4"
        )
    return int(match[1])
