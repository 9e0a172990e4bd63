"""Joules a token of a bucket, by the two points that tell its seconds (LENS, Eq. 14 and 15, with energy for time).

    output token    (E_2 - E_1) / (N (T_2 - T_1))
    prompt token    E_1 / (N l) - (T_1 - 1) / l of an output token      T_1 is 1 unless the file says otherwise

# N prompts of l tokens, T output tokens of each; E in joules, the mean over all visits

A counter moves in steps (NVML's every 20 to 100 ms), and a visit may be shorter than one: what a visit is told is then
right in the mean alone. So a point has to have run for LEAST_S in all. It is the energy of the device, with what it
takes while it waits, and for a counter of the host that of the whole machine.

Worked number: 8 prompts of 95 tokens take 76 J and 8 times 33 tokens 332 J: 0.1 J a prompt token, 256 / (8 * 32) = 1 J
an output token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from pytest_npubench.campaign.points import Measured
from pytest_npubench.errors import MeasurementError
from pytest_npubench.suites.buckets.points import BucketPoint, BucketVisit
from pytest_npubench.suites.buckets.profile_detail import EnergyDetail
from pytest_npubench.verdict.result import Metric

MARGIN = 0.05  # of a figure that a session has once, out of two means
LEAST_S = 2.0  # twenty steps of the slowest counter


def bucket_energy(measured: Measured, shorter: BucketPoint, longer: BucketPoint) -> EnergyDetail:
    """Returns a bucket's energy by its two points. Raises MeasurementError where one failed or the counter stood."""
    seconds, joules = {}, {}
    for point in (shorter, longer):
        visits = [visit for row in measured.visits(point.name, BucketVisit) for visit in row]
        metered = [(visit.seconds, visit.energy_j) for visit in visits if visit.energy_j is not None]
        if len(metered) < len(visits):
            return EnergyDetail(why_not=_untold(measured))
        seconds[point.name], joules[point.name] = ([one[place] for one in metered] for place in (0, 1))
    return _of_points(shorter, longer, seconds, joules)


def _of_points(
    shorter: BucketPoint,
    longer: BucketPoint,
    seconds: Mapping[str, Sequence[float]],
    joules: Mapping[str, Sequence[float]],
) -> EnergyDetail:
    shortest_s = min(sum(own) for own in seconds.values())
    if shortest_s < LEAST_S:
        return EnergyDetail(why_not=f"a point ran for {shortest_s:.2g} s in all; a counter wants {LEAST_S:g}")
    all_s, all_j = (sum(sum(own) for own in one.values()) for one in (seconds, joules))
    if not all_j:
        raise MeasurementError(f"the device's energy counter stood still: 0 J in {all_s:.2g} s of work")
    first_j, second_j = fmean(joules[shorter.name]), fmean(joules[longer.name])
    if not 0 < first_j < second_j:
        return EnergyDetail(
            why_not="the point with more tokens took no more energy, so the counter cannot tell them apart"
        )
    batch_size, (first, *_), (second, *_) = len(shorter.requests), shorter.requests, longer.requests
    tokens = batch_size * (second.output_tokens - first.output_tokens)
    output_token_j = (second_j - first_j) / tokens
    return EnergyDetail(
        prompt_token_j=(first_j / batch_size - (first.output_tokens - 1) * output_token_j) / first.input_tokens,
        output_token_j=output_token_j,
        power_w=all_j / all_s,
    )


def _untold(measured: Measured) -> str:
    """What the device says of it, where any round knows."""
    whys = (item.state.energy_unknown for item in measured.watched if item.state is not None)
    return next(filter(None, whys), "unavailable: no energy counter was read around the visits")


def energy_metrics(detail: EnergyDetail) -> tuple[Metric, ...]:
    return tuple(
        Metric(name=name, unit="J", value=value, margin=MARGIN)
        for name in ("prompt_token_j", "output_token_j")
        if (value := getattr(detail, name)) is not None
    )
