"""A stand-in of MaxText's MaxEngine: its signatures and what it demands of a caller, a toy for a model.

Signatures are those of AI-Hypercomputer/maxtext, src/maxtext/inference/maxengine/maxengine.py (revision 000e6d8):

    load_params(*args, params=None, rng=None, **kwargs)     init_decode_state(*args, rng=None, **kwargs)
    prefill(*, params, existing_prefix=None, padded_tokens, ..., true_length, sampler=None, rng=None, slot=None, ...)
    insert(prefix, decode_state, slot, request_id=None)     generate(params, decode_state, sampler=None, rng=None, ...)

As there, results are there later than the call returns, prefixes and states are consumed by the call they are given
to, every slot steps, and insert and generate compile anew for a state that another call made (seen with MaxText 0.2.5
on a CPU). The toy's first token is the sum of the prompt modulo the vocabulary; every other one is three times the last
plus the row's length so far, modulo the vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np

VOCAB = 97
CONFIG = {
    "inference_microbenchmark_prefill_lengths": "4,8,16,64",
    "max_prefill_predict_length": 32,
    "max_target_length": 48,
    "vocab_size": VOCAB,
}


class OnDevice:
    """An array that is not there before somebody waits for it."""

    def __init__(self, values: np.ndarray, log: list[str], name: str) -> None:
        self._values, self._log, self._name, self._there = values, log, name, False

    def block_until_ready(self) -> OnDevice:
        if not self._there:
            self._log.append(f"wait {self._name}")
            self._there = True
        return self

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        assert self._there, f"{self._name} was read before it was waited for"
        return np.array(self._values, dtype=dtype)


@dataclass(eq=False)
class Consumed:
    """A prefix or a state: good for one call. made_by: the call it came out of."""

    tokens: np.ndarray
    lengths: np.ndarray
    made_by: str
    is_gone: bool = False

    def take(self, made_by: str) -> Consumed:
        assert not self.is_gone, "used again after it was donated"
        self.is_gone = True
        return Consumed(self.tokens.copy(), self.lengths.copy(), made_by)


@dataclass
class StandIn:
    slots: int = 3
    config: SimpleNamespace = field(default_factory=lambda: SimpleNamespace(**CONFIG))
    log: list[str] = field(default_factory=list)
    fail_generate: bool = False
    compiled: set[tuple[str, ...]] = field(default_factory=set)

    @property
    def max_concurrent_decodes(self) -> int:
        return self.slots

    @property
    def max_prefill_length(self) -> int:
        return self.config.max_prefill_predict_length

    def load_params(self, *args, params=None, rng=None, **kwargs):
        self.log.append("load_params")
        return "parameters"

    def init_decode_state(self, *args, rng=None, **kwargs):
        self.log.append("init_decode_state")
        return Consumed(np.zeros(self.slots, int), np.zeros(self.slots, int), "init")

    def prefill(self, *, params, existing_prefix=None, padded_tokens, true_length, sampler=None, rng=None, slot=None):
        assert params == "parameters"
        assert len(padded_tokens) <= self.max_prefill_length
        self._compile("prefill", str(len(padded_tokens)))
        self.log.append(f"prefill {len(padded_tokens)}")
        first = int(np.sum(padded_tokens[:true_length])) % VOCAB
        prefix = Consumed(np.array([first]), np.array([true_length]), str(len(padded_tokens)))
        return prefix, self._result(np.array([first]), "prefill")

    def insert(self, prefix, decode_state, slot, request_id=None):
        self._compile("insert", prefix.made_by, decode_state.made_by)
        self.log.append(f"insert {slot}")
        prefix, state = prefix.take(""), decode_state.take("insert")
        state.tokens[slot], state.lengths[slot] = prefix.tokens[0], prefix.lengths[0]
        return state

    def generate(self, params, decode_state, sampler=None, rng=None, algorithm=None, topk=None):
        assert params == "parameters"
        self._compile("generate", decode_state.made_by)
        state = decode_state.take("generate")
        if self.fail_generate:
            raise RuntimeError("RESOURCE_EXHAUSTED")
        self.log.append("generate")
        state.tokens = (3 * state.tokens + state.lengths) % VOCAB
        state.lengths += 1
        return state, self._result(state.tokens, "generate")

    def _compile(self, *program: str) -> None:
        if program not in self.compiled:
            self.compiled.add(program)
            self.log.append(f"compile {' '.join(program)}")

    def _result(self, tokens: np.ndarray, name: str) -> SimpleNamespace:
        """Columns: token, validity, length."""
        data = np.stack([tokens, np.ones_like(tokens), np.zeros_like(tokens)], axis=1)
        return SimpleNamespace(
            data=OnDevice(data, self.log, name), tokens_idx=(0, 1), valid_idx=(1, 2), length_idx=(2, 3)
        )


def expected_tokens(prompt: np.ndarray, count: int) -> tuple[int, ...]:
    """The toy's answer, by a plain loop."""
    tokens, length = [int(prompt.sum()) % VOCAB], len(prompt)
    while len(tokens) < count:
        tokens.append((3 * tokens[-1] + length) % VOCAB)
        length += 1
    return tuple(tokens)
