"""A stand-in of NxD Inference: its signatures and what it demands of a caller, a toy for a model.

As in aws-neuron/neuronx-distributed-inference: NeuronConfig's defaults (models/config.py), get_config_cls and
get_neuron_config_cls, MODEL(PATH, config), compile, load, reset, forward (models/application_base.py, model_base.py),
load_pretrained_config (utils/hf_adapter.py). An input of more than one token is context encoding, one of one token is
token generation; a line of the cache belongs to a sequence id; the mask of a step covers the cache before it.

The toy's first token is the sum of the prompt modulo the vocabulary; every other one is three times the last plus the
length of the cache before it, modulo the vocabulary.
"""

from __future__ import annotations

from types import SimpleNamespace

import torch

VOCAB, PAD = 97, 5


class NeuronConfig:
    def __init__(self, **kwargs) -> None:
        self.batch_size = kwargs.pop("batch_size", 1)
        self.padding_side = kwargs.pop("padding_side", "right")
        self.seq_len = kwargs.pop("seq_len", 128)
        self.max_context_length = kwargs.pop("max_context_length", self.seq_len)
        self.max_length = kwargs.pop("max_length", self.seq_len)
        self.ctx_batch_size = kwargs.pop("ctx_batch_size", self.batch_size)
        self.tkg_batch_size = kwargs.pop("tkg_batch_size", self.batch_size)
        self.is_continuous_batching = kwargs.pop("is_continuous_batching", False)
        self.on_device_sampling_config = kwargs.pop("on_device_sampling_config", None)
        self.async_mode = kwargs.pop("async_mode", False)
        self.enable_bucketing = kwargs.pop("enable_bucketing", False)
        self.context_encoding_buckets = kwargs.pop("context_encoding_buckets", None)
        self.token_generation_buckets = kwargs.pop("token_generation_buckets", None)
        self.is_prefix_caching = kwargs.pop("is_prefix_caching", False)
        self.speculation_length = kwargs.pop("speculation_length", 0)
        buckets = self.context_encoding_buckets or [1]
        assert buckets[-1] <= self.max_context_length, f"Context bucket {buckets[-1]} should be <= the longest"


class InferenceConfig:
    def __init__(self, neuron_config, load_config=None) -> None:
        self.neuron_config, self.vocab_size, self.pad_token_id = neuron_config, VOCAB, PAD
        if load_config is not None:
            load_config(self)

    @classmethod
    def get_neuron_config_cls(cls):
        return NeuronConfig


class StandInForCausalLM:
    def __init__(self, model_path, config) -> None:
        self.model_path, self.config = model_path, config
        self.calls: list[tuple] = []
        self._lines: dict[int, int] = {}

    @classmethod
    def get_config_cls(cls):
        return InferenceConfig

    def compile(self, compiled_model_path):
        self.calls.append(("compile", compiled_model_path))

    def load(self, compiled_model_path):
        self.calls.append(("load", compiled_model_path))

    def reset(self):
        self.calls.append(("reset",))

    def __call__(self, *args, **kwargs):
        return self.forward(*args, **kwargs)

    def forward(
        self, input_ids=None, seq_ids=None, attention_mask=None, position_ids=None, sampling_params=None
    ) -> SimpleNamespace:
        rows, length = input_ids.shape
        assert attention_mask.shape[0] == position_ids.shape[0] == len(seq_ids) == rows
        assert position_ids.shape[1] == length
        if length > 1:
            self.calls.append(("encode", rows, length))
            tokens = self._encode(input_ids, attention_mask, position_ids, seq_ids.tolist())
        else:
            self.calls.append(("step", rows, attention_mask.shape[1]))
            tokens = self._step(input_ids, attention_mask, position_ids, seq_ids.tolist())
        if self.config.neuron_config.on_device_sampling_config is not None:
            return SimpleNamespace(tokens=tokens, logits=None)
        return SimpleNamespace(tokens=None, logits=torch.nn.functional.one_hot(tokens, VOCAB).float().unsqueeze(1))

    def _encode(self, input_ids, mask, positions, seq_ids):
        assert len(seq_ids) <= self.config.neuron_config.ctx_batch_size
        assert mask.shape == input_ids.shape
        assert (input_ids[mask == 0] == PAD).all()
        assert (input_ids[mask == 1] != PAD).all()
        for row, seq_id in enumerate(seq_ids):
            self._lines[seq_id] = int(mask[row].sum())
            assert positions[row, : self._lines[seq_id]].tolist() == list(range(self._lines[seq_id]))
        return (input_ids * mask).sum(-1) % VOCAB

    def _step(self, input_ids, mask, positions, seq_ids):
        for row, seq_id in enumerate(seq_ids):
            before = int(positions[row, 0])
            assert before in (self._lines[seq_id], self._lines[seq_id] - 1)  # the next one, or the last one once more
            assert mask[row].tolist() == [1] * before + [0] * (mask.shape[1] - before)
            self._lines[seq_id] = before + 1
        assert max(self._lines.values()) <= self.config.neuron_config.max_length
        return (3 * input_ids[:, 0] + positions[:, 0]) % VOCAB


def stand_in(**settings) -> StandInForCausalLM:
    return StandInForCausalLM("no path", InferenceConfig(NeuronConfig(**settings)))


def expected_tokens(prompt, count: int) -> tuple[int, ...]:
    """The toy's answer, by a plain loop."""
    tokens, length = [int(prompt.sum()) % VOCAB], len(prompt)
    while len(tokens) < count:
        tokens.append((3 * tokens[-1] + length) % VOCAB)
        length += 1
    return tuple(tokens)
