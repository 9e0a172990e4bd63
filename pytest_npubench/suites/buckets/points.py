"""What a bucket campaign times, and what a visit of it leaves."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

from pytest_npubench.campaign.visits import Columns, Round, Visit, by_visit, columns_of
from pytest_npubench.core.measurement import Request
from pytest_npubench.core.parts import Part

if TYPE_CHECKING:
    from pytest_npubench.campaign.points import Measured

ValueT = TypeVar("ValueT")

DECLARED = "declared"
ENERGY = "energy_j"
RAN = "ran/"
PEAK = "peak_bytes"
CANARY = "canary/"
SERVED = "served/"
PAIR = "pair/"
PROFILE = re.compile(r"profile/(\d{1,9})/(\d{1,9})")
ANSWERS = "answers"
UNTIMED = (SERVED, PAIR, f"{ANSWERS}/")
MOVE = re.compile(r"move/(\d{1,9})/(\d{1,9})")
VISIT_S = 0.5
MAX_VISITS = 6
NUM_PAIRS = 8  # that a round serves
NUM_PAIR_STEPS = 16  # that are told: on two cores the 16th takes a tenth longer, the second twice as long


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One of several engines of a campaign: its compiled batch size, its buckets, and its layers where they are not all
    of the model's."""

    batch_size: int
    buckets: tuple[int, ...]
    num_layers: int | None = None

    @property
    def name(self) -> str:
        layers = () if self.num_layers is None else (f"layers{self.num_layers}",)
        return "-".join(map(str, (f"b{self.batch_size}", *self.buckets, *layers)))

    @property
    def prefix(self) -> str:
        """Begins the names of its points and binaries."""
        return f"{self.name}/"

    def of(self, point: BucketPoint) -> BucketPoint:
        """Returns a point as it is measured on this engine."""
        return replace(point, name=self.prefix + point.name, variant=self)

    def measured(self, measured: Measured) -> Measured:
        """What was measured and compiled on this engine, under the names that it has where there is no other."""

        def without_prefix(named: Mapping[str, ValueT]) -> dict[str, ValueT]:
            prefix = self.prefix
            return {name.removeprefix(prefix): value for name, value in named.items() if name.startswith(prefix)}

        compiles = without_prefix({record.name: record for record in measured.compiles})
        return replace(
            measured,
            rounds=[without_prefix(row) for row in measured.rounds],
            failures=without_prefix(measured.failures),
            compiles=tuple(replace(record, name=name) for name, record in compiles.items()),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketPoint:
    """One thing to time: a batch of requests end to end, a move of the KV cache between neighbouring buckets, a canary
    kernel by its name, or requests of a workload that are served as they arrive. With both `requests` and `workload` it
    is a pair of requests, with pauses as that workload has them. `answers` is no timing: the check of the
    engine's answers (engines/probe.py), which is made while the campaign is loaded and told by its first round.

    `pure_bucket` names the one bucket the batch must stay in; leaving it makes the point fail (LENS, section 4.3).
    `variant` names the engine where a campaign has several. `part` is what runs alone instead of a batch.
    `beside`: neither LENS nor a batch that it is judged on rests on it, so it is no part of what the campaign's digest
    tells. The same point of another case that is not beside takes its place.
    A round visits the point for about visit_s seconds in all, or once where that takes longer.
    """

    name: str
    requests: tuple[Request, ...] = ()
    move: tuple[int, int] | None = None
    kernel: str | None = None
    workload: str | None = None
    pure_bucket: int | None = None
    variant: Variant | None = None
    part: Part | None = None
    answers: bool = False
    beside: bool = False
    warm_up: bool = True
    visit_s: float = VISIT_S

    def visits(self, duration_s: float) -> int:
        """How often one round visits the point when it takes so long: 1 to 6 times; once where requests are served."""
        if self.answers:
            return 1
        if self.workload:
            return NUM_PAIRS if self.requests else 1
        return max(1, min(MAX_VISITS, int(self.visit_s / duration_s) if duration_s > 0 else MAX_VISITS))

    @property
    def definition(self) -> list[object] | None:
        """JSON form for the campaign's digest."""
        return (
            None
            if self.beside
            else [self.name, [[item.input_tokens, item.output_tokens] for item in self.requests], self.move]
        )


def canary_name(kernel: str) -> str:
    """Of a point that times a canary kernel."""
    return f"{CANARY}{kernel}"


def canary_samples(rounds: Iterable[Round]) -> dict[str, tuple[float, ...]]:
    """Returns seconds of each canary kernel that any of these rounds has, over all of them."""
    samples_s: dict[str, tuple[float, ...]] = {}
    for row in rounds:
        for name, values in row.items():
            if name.startswith(CANARY):
                kernel = name.removeprefix(CANARY)
                samples_s[kernel] = (*samples_s.get(kernel, ()), *values)
    return samples_s


def served_name(workload: str) -> str:
    """Names a point that serves requests; its columns are those of a campaign.served_block.ServedBlock."""
    return f"{SERVED}{workload}"


def pair_name(bucket: int) -> str:
    """Names a point of pairs of requests."""
    return f"{PAIR}{bucket}"


def profile_name(bucket: int, output_tokens: int) -> str:
    """Names a point that profiles a bucket; PROFILE reads it back."""
    return f"profile/{bucket}/{output_tokens}"


def move_name(smaller: int, larger: int) -> str:
    """Names a move of the KV cache; MOVE reads it back."""
    return f"move/{smaller}/{larger}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketVisit(Visit):
    """The seconds of a visit, the lengths that the engine said it pads prompts to, the joules that the device's counter
    grew by, and the most bytes of a device that the process has had so far; each of these two None where nothing tells.
    `ran`: how often each binary ran, and the tokens that came back (core.measurement.Run.counts); empty where the visit
    ran what the one before it had run, and in a visit that is read back: `ran_in` reads it.

    A round holds the seconds under the point's own name, and the lengths of all its visits as one series.
    Worked example: two visits of 0.1 and 0.2 s on buckets (16, 32) are {"": (0.1, 0.2), "declared": (16, 32, 16, 32)};
    had each run a prefill in 16, there would be "ran/prefill-16": (1,) of the first one.
    """

    seconds: float
    declared: tuple[int, ...] = ()
    energy_j: float | None = None
    peak_bytes: float | None = None
    ran: Mapping[str, int] = field(default_factory=dict)

    def columns(self) -> Columns:
        declared = {DECLARED: tuple(map(float, self.declared))} if self.declared else {}
        counted = {name: (value,) for name in (ENERGY, PEAK) if (value := getattr(self, name)) is not None}
        ran = {f"{RAN}{name}": (number,) for name, number in self.ran.items()}
        return {"": (self.seconds,), **declared, **counted, **ran}

    @classmethod
    def of_columns(cls, columns: Columns) -> tuple[BucketVisit, ...]:
        seconds = columns.get("", ())
        declared = by_visit(columns.get(DECLARED, ()), len(seconds), "declared lengths")
        joules, peaks = (_of_each(columns.get(name, ()), len(seconds)) for name in (ENERGY, PEAK))
        return tuple(
            cls(seconds=value, declared=tuple(map(int, lengths)), energy_j=energy_j, peak_bytes=peak_bytes)
            for value, lengths, energy_j, peak_bytes in zip(seconds, declared, joules, peaks, strict=True)
        )


def _of_each(values: Sequence[float], num_visits: int) -> Sequence[float | None]:
    """Gives each visit its value, and None to all where not all of a round were told."""
    return values if len(values) == num_visits else (None,) * num_visits


def declared_in(rounds: Iterable[Mapping[str, Sequence[float]]]) -> tuple[int, ...]:
    """Returns the lengths that any visit of these rounds was told, ascending; empty where the engine declared none."""
    return tuple(sorted({int(value) for row in rounds for name in row if _is_declared(name) for value in row[name]}))


def ran_in(rounds: Iterable[Round], name: str) -> dict[str, int]:
    """How often each binary ran in one visit of the point of that name, and its tokens; of visits that differ the
    fewest, so that work left out in some of them is seen. Empty where nothing was counted."""
    counts: dict[str, int] = {}
    for row in rounds:
        for column, values in columns_of(row, name).items():
            if column.startswith(RAN):
                what, fewest = column.removeprefix(RAN), int(min(values))
                counts[what] = min(counts.get(what, fewest), fewest)
    return counts


def seconds_in(row: Round) -> dict[str, tuple[float, ...]]:
    """Returns a round's points with their seconds alone."""
    return {
        name: values
        for name, values in row.items()
        if not (
            _is_declared(name)
            or name.endswith((f"/{ENERGY}", f"/{PEAK}"))
            or f"/{RAN}" in name
            or name.startswith(UNTIMED)
        )
    }


def _is_declared(column: str) -> bool:
    return column.endswith(f"/{DECLARED}")
