"""The part of MaxText's MaxEngine that is used here.

Read in AI-Hypercomputer/maxtext, src/maxtext/inference/maxengine/maxengine.py (revision 000e6d8), and in
AI-Hypercomputer/JetStream, jetstream/engine/engine_api.py (revision 00dc5a6), whose Engine it implements; run with
MaxText 0.2.5:

- `prefill` runs one prompt, padded by the caller, and gives its keys and values ("prefix") and its first token; each
  padded length is a program of its own.
- `insert` copies a prefix into a slot of the decode state, and consumes both (they are donated).
- `generate` advances all slots by one token, whether a slot is in use or not, and consumes the state it is given.
- The first two return before the device is done, as all of JAX does.
- A slot's keys and values have room for max_prefill_predict_length tokens of a prompt and, apart from them, for
  max_target_length - max_prefill_predict_length generated ones, used as a ring: more steps overwrite the oldest.
- `insert` and `generate` are compiled anew for a state that another call made.
- MaxEngine's methods also take `rng`; without it, it draws one, as under JetStream's own server.
"""

from __future__ import annotations

from typing import Any, Protocol


class ResultTokens(Protocol):
    """`data`, [slots, columns] on the device: columns tokens_idx[0] to tokens_idx[1] are the new tokens."""

    data: Any
    tokens_idx: tuple[int, int]


class MaxEngine(Protocol):
    """`config` has the keys of MaxText's configuration files as attributes."""

    config: Any

    @property
    def max_concurrent_decodes(self) -> int:
        """Slots: per_device_batch_size times devices."""
        ...

    def load_params(self, *args: Any, **kwargs: Any) -> Any: ...

    def init_decode_state(self, *args: Any, **kwargs: Any) -> Any: ...

    def prefill(self, *, params: Any, padded_tokens: Any, true_length: int) -> tuple[Any, ResultTokens]: ...

    def insert(self, prefix: Any, decode_state: Any, slot: int) -> Any: ...

    def generate(self, params: Any, decode_state: Any) -> tuple[Any, ResultTokens]: ...
