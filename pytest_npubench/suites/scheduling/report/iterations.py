"""Who ran in which layers, iteration by iteration, with the policies one under another (as in Layered Prefill, Fig. 1).

A log keeps how many layers prefilled in an iteration, and not which. Groups follow each other from the first layer on,
and nobody sets off before the flight has passed the last one, so the layers follow from the numbers before them. Whose
prompt it was follows from the records: a request is on its way from when it was scheduled until its first token.
After a preemption neither is sure, so blocks with one are not drawn, nor those of two devices at once.

Worked example: prefill in 2, 2 and then 4 of 4 layers is in layers 1 to 2, 3 to 4 and 1 to 4.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pytest_npubench.campaign.served_block import RUN, ServedBlock
from pytest_npubench.campaign.visits import Round, columns_of
from pytest_npubench.errors import MeasurementError
from pytest_npubench.reports import number_text
from pytest_npubench.reports.build import chart, table
from pytest_npubench.reports.page import Chart, Rounds
from pytest_npubench.reports.plot_parts import BLUE, GREY, DrawnSeries, Shape, axis, category_axis
from pytest_npubench.suites.scheduling.points import SERVED

ITERATIONS = (
    "Each box is an iteration, as wide as it took; the first layer is at the top. A full box with a number is prefill "
    "of that request's prompt (3+: of request 3 and others), in the layers that it covers; a pale, dashed one is "
    "decode, which runs in all layers."
)
REPORTED = (
    "Layered Prefill, Fig. 1: chunked prefill takes a part of the prompt through all layers in each iteration, "
    "layered prefill the whole prompt through one group of them."
)
NUM_ITERATIONS = 24
ROUNDING_S = 2e-6
"""Times in a journal are rounded to microseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnIteration:
    """Seconds after the block began; layers [first, stop) that prefilled, and the requests on their way."""

    start_s: float
    end_s: float
    num_decode: int
    num_prefill_tokens: int
    first: int
    stop: int
    requests: tuple[int, ...]

    @property
    def layers(self) -> str:
        return f"{self.first + 1} to {self.stop}" if self.num_prefill_tokens else number_text.UNKNOWN

    @property
    def numbers(self) -> str:
        return ", ".join(map(str, self.requests)) or number_text.UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    name: str
    num_layers: int
    iterations: tuple[DrawnIteration, ...]


def iterations_chart(rounds: Rounds, points: Iterable[str] = ()) -> Chart | None:
    """Draws the first round and the load that show most policies; of settings of one policy those in `points`, the
    names of points that cases are about, else the first. It is None where no round has such a block."""
    preferred = frozenset(points)
    for record in rounds:
        load, blocks = _blocks(record["points"], preferred)
        rows = _window(blocks)
        if rows:
            return _chart(load, rows)
    return None


def iterations_of(block: ServedBlock) -> tuple[DrawnIteration, ...]:
    """Raises MeasurementError where it cannot be told who ran where."""
    log = block.log
    if any(record.num_preemptions for record in block.records):
        raise MeasurementError("a request was preempted")
    if len({len(column) for column in log.columns().values()}) > 1:
        raise MeasurementError("columns of iterations of several lengths")
    if any(end_s > next_s + ROUNDING_S for end_s, next_s in zip(log.end_s, log.start_s[1:], strict=False)):
        raise MeasurementError("iterations of several devices")
    iterations, at_layer = [], 0
    for index, (start_s, end_s) in enumerate(zip(log.start_s, log.end_s, strict=True)):
        num_tokens, num_layers = log.num_prefill_tokens[index], log.num_prefill_layers[index]
        first = at_layer
        if num_tokens:
            if num_layers < 1 or first + num_layers > block.num_layers:
                raise MeasurementError("layer groups that do not follow each other")
            at_layer = (first + num_layers) % block.num_layers
        iterations.append(
            DrawnIteration(
                start_s=start_s - block.started_s,
                end_s=end_s - block.started_s,
                num_decode=log.num_decode[index],
                num_prefill_tokens=num_tokens,
                first=first if num_tokens else 0,
                stop=first + num_layers if num_tokens else 0,
                requests=tuple(_on_their_way(block, start_s, end_s)) if num_tokens else (),
            )
        )
    return tuple(iterations)


def _on_their_way(block: ServedBlock, start_s: float, end_s: float) -> Iterator[int]:
    for record in block.records:
        if record.scheduled_s is None or not record.token_times_s:
            continue
        if record.scheduled_s <= start_s + ROUNDING_S and record.token_times_s[0] >= end_s - ROUNDING_S:
            yield record.id


def _blocks(points: Round, preferred: frozenset[str]) -> tuple[str, Mapping[str, ServedBlock]]:
    """Returns the load with most policies, and the block of each."""
    by_load: dict[str, dict[str, ServedBlock]] = {}
    behind = f"/{RUN}"
    names = (column.removesuffix(behind) for column in points if column.endswith(behind))
    for name in sorted(names, key=lambda name: (name not in preferred, name)):
        match = SERVED.fullmatch(name)
        if match is None or match[1] in by_load.get(match[3], {}):
            continue
        try:
            (block,) = ServedBlock.of_columns(columns_of(points, name))
            has_prefill = any(one.num_prefill_tokens for one in iterations_of(block))
        except MeasurementError:
            continue
        if has_prefill:
            by_load.setdefault(match[3], {})[match[1]] = block
    return max(by_load.items(), key=lambda item: len(item[1]), default=("", {}))


def _window(blocks: Mapping[str, ServedBlock]) -> list[_Row]:
    """Cuts the same stretch of time out of every policy: from the first prefill that had to share an iteration with
    decode, or else from the first at all, until the quickest policy has run so many iterations, or all are done."""
    whole = {policy: iterations_of(block) for policy, block in sorted(blocks.items())}
    prefills = [one for own in whole.values() for one in own if one.num_prefill_tokens]
    if not prefills:
        return []
    starts_s = [one.start_s for one in prefills if one.num_decode] or [one.start_s for one in prefills]
    from_s = min(starts_s)
    shown = {policy: [one for one in own if one.end_s > from_s + ROUNDING_S] for policy, own in whole.items()}
    ends_s = [own[NUM_ITERATIONS - 1].end_s for own in shown.values() if len(own) >= NUM_ITERATIONS]
    until_s = min(ends_s) if ends_s else max(one.end_s for own in shown.values() for one in own)
    return [
        _Row(
            name=f"{policy}: {blocks[policy].num_layers} layers",
            num_layers=blocks[policy].num_layers,
            iterations=tuple(one for one in own if one.start_s < until_s),
        )
        for policy, own in shown.items()
    ]


def _chart(load: str, rows: Sequence[_Row]) -> Chart:
    title = f"Who ran in which layers, {load}"
    every = [(row, one) for row in rows for one in row.iterations]
    summaries = (
        f"{row.name.partition(':')[0]} prefills up to {max(sizes)} of {row.num_layers} layers at once"
        for row in rows
        if (sizes := [one.stop - one.first for one in row.iterations if one.num_prefill_tokens])
    )
    return chart(
        title,
        f"Iterations under {load}: {', '.join(summaries)}.",
        (ITERATIONS, REPORTED),
        [
            _boxes("decode", ((row, one) for row, one in every if one.num_decode), whole=True),
            _boxes("prefill", ((row, one) for row, one in every if one.num_prefill_tokens), whole=False),
        ],
        (axis("ms since the block began"), category_axis(row.name for row in rows)),
        table(
            title,
            (
                ("policy", lambda item: item[0].name.partition(":")[0]),
                ("from ms", lambda item: number_text.milliseconds(item[1].start_s)),
                ("to ms", lambda item: number_text.milliseconds(item[1].end_s)),
                ("prefill of requests", lambda item: item[1].numbers),
                ("prompt tokens", lambda item: f"{item[1].num_prefill_tokens:,}"),
                ("in layers", lambda item: item[1].layers),
                ("decode rows", lambda item: f"{item[1].num_decode:,}"),
            ),
            every,
        ),
    )


def _boxes(name: str, items: Iterable[tuple[_Row, DrawnIteration]], *, whole: bool) -> DrawnSeries:
    """Boxes of decode span all layers, boxes of prefill their own."""
    drawn = list(items)
    return DrawnSeries(
        name=name,
        shape=Shape.BOXES,
        x=[one.start_s * 1e3 for _, one in drawn],
        y=[row.name for row, _ in drawn],
        color=GREY if whole else BLUE,
        pattern="/" if whole else "",
        opacity=0.6 if whole else 1,
        x_ends=[(one.start_s * 1e3, one.end_s * 1e3) for _, one in drawn],
        y_ends=[(0.0, 1.0) if whole else (one.first / row.num_layers, one.stop / row.num_layers) for row, one in drawn],
        labels=[] if whole else [_label(one.requests) for _, one in drawn],
        says=[_in_words(one) for _, one in drawn],
        in_legend=bool(drawn),
    )


def _label(requests: Sequence[int]) -> str:
    """Labels a box with the first of several requests: it is as narrow as boxes are."""
    return "".join(map(str, requests[:1])) + ("+" if len(requests) > 1 else "")


def _in_words(iteration: DrawnIteration) -> str:
    """What an iteration ran: "prefill of request 3 (64 tokens) in layers 1 to 2 and decode of 4, 12 to 15 ms"."""
    prefill = (
        f"prefill of request {iteration.numbers} ({iteration.num_prefill_tokens:,} tokens) in layers {iteration.layers}"
    )
    decode = f"decode of {iteration.num_decode:,}"
    parts = [*([prefill] if iteration.num_prefill_tokens else ()), *([decode] if iteration.num_decode else ())]
    start, end = map(number_text.milliseconds, (iteration.start_s, iteration.end_s))
    return f"{' and '.join(parts)}, {start} to {end} ms"
