"""engines.protocol.Engine on NxD Inference: the context encoding model, then the token generation model step by step.

What LENS must know of it: where ctx_batch_size is the batch size, a batch is encoded at once, padded to its longest
prompt (prefill_shared); where it is 1, one prompt after the other. Rows that ended go on stepping until the longest
answer ends, as under HuggingFaceGenerationAdapter (finished = "grow"), or repeat their last step ("freeze"), where a
row must not outgrow its own lengths. The cache has one allocation of max_length that buckets take a part of, so it
never moves.

Worked example: prompts of 100 and 120 tokens, 3 and 9 output tokens: both are encoded in the bucket of 120; decode has
8 steps of both rows, with KV caches of 121 to 128 tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from pytest_npubench.core.measurement import CompileRecord, Move, Phase, Request, Run
from pytest_npubench.engines.protocol import Engine, Finished
from pytest_npubench.engines.request_batch import Generation, Prompt, as_requests, check_batch, random_prompts
from pytest_npubench.engines.run_trace import RunTrace
from pytest_npubench.errors import ConfigError, LengthError
from pytest_npubench.extensions.adapters.nxd.buckets import declared_buckets
from pytest_npubench.extensions.adapters.nxd.interface import NeuronModel

# settings under which a call makes another number of tokens than one a row, or does not wait for the device
REFUSED = ("async_mode", "is_medusa", "enable_fused_speculation", "speculation_length")
WHOSE = {"grow": ", the longest prompt's with the longest answer's", "freeze": ""}


class NxdEngine(Engine):
    """An engine on a loaded model; `compiles` are the records of opening it. Raises ConfigError for a configuration
    whose steps cannot be timed one by one, or whose batches are encoded in parts."""

    name = "nxd"

    def __init__(
        self,
        model: NeuronModel,
        *,
        compiles: Sequence[CompileRecord] = (),
        finished: Literal["grow", "freeze"] = "grow",
        seed: int = 0,
    ) -> None:
        neuron = model.config.neuron_config
        _check(neuron)
        self.keys = declared_buckets(neuron)
        self.buckets = tuple(sorted({*self.keys.prefill_buckets, *self.keys.decode_buckets}))
        self.batch_size: int = neuron.tkg_batch_size
        self.prefill_shared: bool = neuron.ctx_batch_size == neuron.tkg_batch_size
        self.finished: Finished = finished
        self.compiles = compiles
        self._model, self._seed, self._num_runs = model, seed, 0
        self._samples_on_device = neuron.on_device_sampling_config is not None

    def load(self, buckets: Sequence[int]) -> None:
        """Compiles nothing: opening compiled all. Raises ConfigError for a bucket that is not declared."""
        for bucket in buckets:
            if bucket not in self.buckets:
                raise ConfigError(f"bucket {bucket} is not in the engine's set {self.buckets}")

    def run(self, requests: Sequence[Request]) -> Run:
        """Run seeded random prompts of these lengths, others in each run; see generate()."""
        self._check_lengths(requests)
        config = self._model.config
        self._num_runs += 1
        prompts = random_prompts(requests, config.vocab_size, seed=self._seed, run=self._num_runs, avoid=self._padding)
        return self.generate(prompts, [request.output_tokens for request in requests]).counted_run

    def generate(self, prompts: Sequence[Prompt], output_tokens: Sequence[int]) -> Generation:
        """Tokens of each prompt (int32 [l_in]), its own number of them, with the timing of the whole batch.

        Raises LengthError for a batch or a length that does not fit, and for a prompt of one token, which NxD Inference
        takes for a decode step.
        """
        self._check_lengths(as_requests(prompts, output_tokens))
        self._model.reset()
        groups = [range(len(prompts))] if self.prefill_shared else [[row] for row in range(len(prompts))]
        lengths = [len(prompt) for prompt in prompts]
        trace = RunTrace()
        first: list[int] = []
        for rows in groups:
            with trace.segment(Phase.PREFILL, self.keys.prefill_key(max(lengths[row] for row in rows))):
                first += self._encode([prompts[row] for row in rows], list(rows))
        steps, lasts = [first], self._last_lengths(lengths, output_tokens)
        lengths = list(map(min, lengths, lasts))
        for _ in range(max(output_tokens) - 1):
            with trace.segment(Phase.DECODE, self.keys.decode_key(max(lengths) + 1, self.batch_size)):
                steps.append(self._step(steps[-1], lengths))
            lengths = [min(length + 1, last) for length, last in zip(lengths, lasts, strict=True)]
        run = trace.finish()
        tokens = tuple(tuple(step[row] for step in steps[:count]) for row, count in enumerate(output_tokens))
        return Generation(run=_counted(run, len(prompts)) if self.prefill_shared else run, tokens=tokens)

    def time_move(self, from_bucket: int, to_bucket: int) -> Move:
        """Raises ConfigError: the cache is one allocation of max_length and never moves."""
        raise ConfigError(f"move {from_bucket} -> {to_bucket}: NxD Inference's KV cache never moves")

    @property
    def _padding(self) -> int:
        return getattr(self._model.config, "pad_token_id", None) or 0

    def _encode(self, prompts: Sequence[Prompt], rows: Sequence[int]) -> list[int]:
        """Returns the first token of each prompt, padded on the right to the longest."""
        import torch

        longest = max(map(len, prompts))
        ids = torch.full((len(prompts), longest), self._padding, dtype=torch.int64)
        for row, prompt in enumerate(prompts):
            ids[row, : len(prompt)] = torch.tensor(prompt.tolist())
        mask = _mask([len(prompt) for prompt in prompts], longest)
        positions = (mask.cumsum(-1) - 1).masked_fill(mask == 0, 1)
        return self._call(ids, mask, positions, rows)

    def _step(self, last_tokens: Sequence[int], lengths: Sequence[int]) -> list[int]:
        """Returns the next token of each row; `lengths` are the KV cache's before it."""
        import torch

        ids, positions = torch.tensor(last_tokens).unsqueeze(1), torch.tensor(lengths).unsqueeze(1)
        return self._call(ids, _mask(lengths, max(lengths)), positions, range(len(lengths)))

    def _call(self, ids: Any, mask: Any, positions: Any, rows: Sequence[int]) -> list[int]:
        """Reading the tokens waits for the device."""
        import torch

        output = self._model(
            input_ids=ids, attention_mask=mask, position_ids=positions, seq_ids=torch.tensor(list(rows))
        )
        tokens = output.tokens if self._samples_on_device else output.logits[:, -1, :].argmax(-1)
        last_tokens: list[int] = tokens.reshape(len(rows), -1)[:, -1].tolist()
        return last_tokens

    def _check_lengths(self, requests: Sequence[Request]) -> None:
        check_batch(requests, self.batch_size)
        longest = max(request.input_tokens for request in requests)
        shortest = longest if self.prefill_shared else min(request.input_tokens for request in requests)
        if shortest < 2:
            raise LengthError("a prompt of 1 token, which NxD Inference runs as a decode step; want at least 2")
        if longest > self.keys.max_input_tokens:
            raise LengthError(f"a prompt of {longest} tokens; max_context_length is {self.keys.max_input_tokens}")
        final = self._final_length(requests)
        if final > self.keys.max_kv_tokens:
            raise LengthError(
                f"a KV cache of {final} tokens{WHOSE[self.finished]}; max_length is {self.keys.max_kv_tokens}"
            )

    def _last_lengths(self, lengths: Sequence[int], output_tokens: Sequence[int]) -> list[int]:
        """Returns the KV length of each row before its last step; a row kept at its length repeats that step."""
        if self.finished == "grow":
            output_tokens = [max(output_tokens)] * len(lengths)
        return [length + count - 2 for length, count in zip(lengths, output_tokens, strict=True)]

    def _final_length(self, requests: Sequence[Request]) -> int:
        lengths, counts = zip(*((one.input_tokens, one.output_tokens) for one in requests), strict=True)
        return max(self._last_lengths(lengths, counts)) + 1


def _check(neuron: Any) -> None:
    for name in REFUSED:
        if getattr(neuron, name, None):
            raise ConfigError(f"NeuronConfig.{name} is {getattr(neuron, name)}; want it off, to time each step")
    if neuron.padding_side != "right":
        raise ConfigError(f"NeuronConfig.padding_side is {neuron.padding_side!r}; want 'right'")
    if neuron.ctx_batch_size not in (1, neuron.tkg_batch_size):
        raise ConfigError(
            f"NeuronConfig.ctx_batch_size is {neuron.ctx_batch_size}; want 1 or tkg_batch_size, "
            f"{neuron.tkg_batch_size}: LENS knows one prefill a batch or one a prompt"
        )


def _mask(lengths: Sequence[int], longest: int) -> Any:
    """[rows, longest]: 1 for each row's own tokens."""
    import torch

    return (torch.arange(longest) < torch.tensor(lengths).unsqueeze(1)).to(torch.int64)


def _counted(run: Run, num_prompts: int) -> Run:
    """A prefill of several prompts at once is one stretch of time, and counts prompts."""
    prefill, *decode = run.segments
    return replace(run, segments=(replace(prefill, num_steps=num_prompts), *decode))
