"""Hidden states of prompts between two layer groups: what a layered prefill keeps from one iteration to the next.

Worked number: a token of qwen3-30b-a3b in bf16 keeps 2048 x 2 = 4 KiB, a merged batch of 8192 of them 32 MiB.
"""

from __future__ import annotations

from torch import Tensor

from pytest_npubench.errors import MeasurementError
from pytest_npubench.serving.iteration import PrefillRow


class HiddenStates:
    """States [tokens, hidden] of prefill rows by request and first token, each with the layer it enters next."""

    def __init__(self) -> None:
        self._kept: dict[int, dict[int, tuple[int, Tensor]]] = {}

    @property
    def num_bytes(self) -> int:
        return sum(states.nbytes for rows in self._kept.values() for _, states in rows.values())

    def keep(self, row: PrefillRow, layer: int, states: Tensor) -> None:
        """What enters `layer` next. Copied, since a slice would keep the states of the whole batch alive."""
        self._kept.setdefault(row.request, {})[row.first_token] = (layer, states.clone())

    def take(self, row: PrefillRow, layer: int) -> Tensor:
        """The states, which are kept no longer. Raises MeasurementError unless the row left layer - 1 last."""
        rows = self._kept.get(row.request, {})
        at, states = rows.pop(row.first_token, (0, None))
        if not rows:
            self._kept.pop(row.request, None)
        if states is None or at != layer or len(states) != row.num_tokens:
            found = "none are kept" if states is None else f"those kept are of {len(states)} tokens before layer {at}"
            raise MeasurementError(
                f"request {row.request}: the plan runs {row.num_tokens} tokens from token {row.first_token} on into "
                f"layer {layer} and wants their hidden states; {found}"
            )
        return states

    def check_none(self, request: int) -> None:
        """Raises MeasurementError where a part of the request is between two layers."""
        if request in self._kept:
            raise MeasurementError(f"request {request} has a prompt between two layers; want it through all of them")

    def free(self, request: int) -> None:
        self._kept.pop(request, None)
