"""One engine iteration as data: which rows run through which layers. A scheduler writes plans, an executor runs them.

Every policy is nothing but its plans, so a comparison of policies compares plans on the same kernels (Layered Prefill,
section 4.2). Layers are counted from 0 and a group is [first, stop).

Worked example: 4 layers, requests 1 and 2 decoding, the 8 tokens of prompt 7 in the second of two layer groups (the
first one ran an iteration ago):

    IterationPlan(
        decode=(1, 2),
        passes=(
            LayerPass(group=LayerGroup(0, 2)),
            LayerPass(group=LayerGroup(2, 4), prefill=(PrefillRow(request=7, first_token=0, num_tokens=8),)),
        ),
        finishing=(7,),
    )

After it requests 1, 2 and 7 have one token more, and 7 has its first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

made = tuple.__new__
"""Of a named tuple's class and a tuple of its fields, in less than half the time of calling the class."""


class LayerGroup(NamedTuple):
    """Contiguous layers [first, stop)."""

    first: int
    stop: int

    @property
    def num_layers(self) -> int:
        return self.stop - self.first


class PrefillRow(NamedTuple):
    """Tokens [first_token, first_token + num_tokens) of one request's prompt. After a preemption its generated tokens
    belong to the prompt, since their keys and values have to be made again."""

    request: int
    first_token: int
    num_tokens: int


class LayerPass(NamedTuple):
    """One layer group with the prefill rows that run through it beside the iteration's decode rows.

    A row enters layer 0 by its embedding and any other layer by the hidden states that the pass before it, in this
    iteration or an earlier one, left behind.
    """

    group: LayerGroup
    prefill: tuple[PrefillRow, ...] = ()

    @property
    def num_prefill_tokens(self) -> int:
        return sum(row.num_tokens for row in self.prefill)


@dataclass(slots=True)  # neither frozen nor kw_only: each makes it take three times as long to make one
class IterationPlan:
    """What one iteration runs: every decode row through all passes, each prefill row through those that name it.

    The passes are in layer order and do not overlap. With decode rows they cover all layers; without, they may cover
    only those that prefill. `decode` holds requests that feed their latest token; each gets one more. `finishing` are
    the requests whose last prompt token leaves the last layer: they get a token as well. `dropped` are requests whose
    keys, values and hidden states must be freed before anything runs: preempted. `num_padding_rows` are rows
    a static batch keeps for requests that have ended: they cost time, and never count.
    """

    decode: tuple[int, ...] = ()
    passes: tuple[LayerPass, ...] = ()
    finishing: tuple[int, ...] = ()
    dropped: tuple[int, ...] = ()
    num_padding_rows: int = 0

    @property
    def num_prefill_tokens(self) -> int:
        """Prompt tokens times the fraction of layers is work; this counts the tokens of the widest pass."""
        return max((item.num_prefill_tokens for item in self.passes), default=0)


@dataclass(slots=True)
class IterationOutcome:
    """What an iteration cost and gave.

    duration_s is None on the wall clock, which has moved by itself, and the modelled seconds on a virtual one. `tokens`
    are the new token ids by request, empty where no tensors run. `expert_activations` are distinct experts over the
    union of prefill and decode rows, summed over layers (Layered Prefill, section 3.1); padding rows never count there
    but in `padded_expert_activations`, which is the number with them. expert_load_bytes are activations times the bytes
    of one expert. kv_bytes and hidden_bytes are held when the iteration ends; energy_j is None where nothing tells it.
    host_s is from the iteration's start until its last launch returned, where the device computes beside the host and
    the host never waits for it; None elsewhere, as on a CPU.
    """

    duration_s: float | None = None
    tokens: Mapping[int, int] = field(default_factory=dict)
    expert_activations: int = 0
    padded_expert_activations: int = 0
    expert_load_bytes: int = 0
    kv_bytes: int = 0
    hidden_bytes: int = 0
    energy_j: float | None = None
    host_s: float | None = None


class Executor(Protocol):
    """Runs plans on one device: the torch engine on the wall clock, the cost model on a virtual one."""

    num_layers: int
    kv_capacity_tokens: int
    block_size_tokens: int

    def begin(self, request: int, prompt_tokens: int, output_tokens: int) -> None:
        """A request will be planned. Its prompt's token ids are the executor's own, the same for every policy."""
        ...

    def run(self, plan: IterationPlan) -> IterationOutcome:
        """Run one iteration to its end. Raises MeasurementError where the device has no memory for it."""
        ...

    def end(self, request: int) -> None:
        """The request has ended: free what it holds."""
        ...
