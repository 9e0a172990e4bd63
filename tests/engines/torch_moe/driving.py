"""Plans cut at random, as no scheduler would: chunks, layer groups, both at once, pauses and preemptions.

Whatever the cut, each request must get the tokens that it gets alone in one piece.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

from pytest_npubench.serving.iteration import (
    Executor,
    IterationOutcome,
    IterationPlan,
    LayerGroup,
    LayerPass,
    PrefillRow,
)


@dataclass
class Progress:
    """One request on its way. A chunk of `count` tokens from `first` on is before `layer`; count 0: no chunk yet."""

    request: int
    prompt_tokens: int
    output_tokens: int
    tokens: list[int] = field(default_factory=list)
    first: int = 0
    count: int = 0
    layer: int = 0
    decoding: bool = False

    @property
    def known(self) -> int:
        return self.prompt_tokens + len(self.tokens)

    @property
    def done(self) -> bool:
        return len(self.tokens) >= self.output_tokens


@dataclass(frozen=True)
class Ran:
    """A plan, what came of it, and the positions that its decode rows were at."""

    plan: IterationPlan
    outcome: IterationOutcome
    decode_positions: tuple[int, ...]


def whole(executor: Executor, request: int, prompt_tokens: int, output_tokens: int) -> list[int]:
    """A request alone: its prompt in one piece, then one token after another."""
    layers = LayerGroup(0, executor.num_layers)
    executor.begin(request, prompt_tokens, output_tokens)
    prompt = PrefillRow(request, 0, prompt_tokens)
    first = executor.run(IterationPlan(passes=(LayerPass(layers, (prompt,)),), finishing=(request,)))
    tokens = [first.tokens[request]]
    while len(tokens) < output_tokens:
        outcome = executor.run(IterationPlan(decode=(request,), passes=(LayerPass(layers),)))
        tokens.append(outcome.tokens[request])
    executor.end(request)
    return tokens


def drive(
    executor: Executor, lengths: Mapping[int, tuple[int, int]], choices: Random, *, most_preemptions: int = 3
) -> tuple[dict[int, list[int]], list[Ran]]:
    """Serve requests of (prompt, output) tokens with plans of random cut; their tokens, and all that ran."""
    progress = {request: Progress(request, *pair) for request, pair in lengths.items()}
    for request, (prompt_tokens, output_tokens) in lengths.items():
        executor.begin(request, prompt_tokens, output_tokens)
    ran: list[Ran] = []
    num_preemptions = 0
    while running := [item for item in progress.values() if not item.done]:
        dropped: tuple[int, ...] = ()
        if num_preemptions < most_preemptions and choices.random() < 0.15:
            victim = choices.choice(running)
            victim.first = victim.count = victim.layer = 0
            victim.decoding = False
            dropped, num_preemptions = (victim.request,), num_preemptions + 1
        ran.append(_iterate(executor, running, dropped, choices))
        for item in progress.values():
            if item.done and item.decoding:
                item.decoding = False
                executor.end(item.request)
    return {item.request: item.tokens for item in progress.values()}, ran


def _iterate(executor: Executor, running: list[Progress], dropped: tuple[int, ...], choices: Random) -> Ran:
    decoding = [item for item in running if item.decoding and choices.random() < 0.8]
    filling = {item.request: item for item in running if not item.decoding and choices.random() < 0.7}
    moves = {request: _move(item, executor.num_layers, choices) for request, item in filling.items()}
    finishing = tuple(
        request
        for request, (_, stop) in moves.items()
        if stop == executor.num_layers and filling[request].first + filling[request].count == filling[request].known
    )
    plan = IterationPlan(
        decode=tuple(item.request for item in decoding),
        passes=_passes(filling, moves, executor.num_layers, bool(decoding)),
        finishing=finishing,
        dropped=dropped,
    )
    positions = tuple(item.known - 1 for item in decoding)
    outcome = executor.run(plan)
    for request, (_, stop) in moves.items():
        _advance(filling[request], stop, executor.num_layers)
    for request, token in outcome.tokens.items():
        next(item for item in running if item.request == request).tokens.append(token)
    for request in finishing:
        filling[request].decoding = True
    return Ran(plan, outcome, positions)


def _move(item: Progress, num_layers: int, choices: Random) -> tuple[int, int]:
    """The layers that the request's chunk runs through now; a new chunk where there is none."""
    if item.count == 0:
        item.count, item.layer = choices.randint(1, item.known - item.first), 0
    return item.layer, choices.randint(item.layer + 1, num_layers)


def _advance(item: Progress, stop: int, num_layers: int) -> None:
    item.layer = stop
    if stop == num_layers:
        item.first, item.count, item.layer = item.first + item.count, 0, 0


def _passes(
    filling: Mapping[int, Progress], moves: Mapping[int, tuple[int, int]], num_layers: int, all_layers: bool
) -> tuple[LayerPass, ...]:
    """Cut wherever a row comes or goes; segments that nothing runs through are left out where they may be."""
    cuts = sorted({0, num_layers, *(edge for move in moves.values() for edge in move)})
    passes = []
    for first, stop in pairwise(cuts):
        rows = tuple(
            PrefillRow(request, filling[request].first, filling[request].count)
            for request, (start, end) in moves.items()
            if start <= first and stop <= end
        )
        if rows or all_layers:
            passes.append(LayerPass(LayerGroup(first, stop), rows))
    return tuple(passes)
