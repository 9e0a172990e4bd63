"""The part of NxD Inference that is used here.

Read in aws-neuron/neuronx-distributed-inference (models/config.py, models/model_base.py, models/model_wrapper.py,
modules/autobucketing.py, utils/hf_adapter.py) and in its API guide (AWS Neuron documentation, release 2.28.1,
libraries/nxd-inference/api-guides):

- NeuronConfig(batch_size, ctx_batch_size, tkg_batch_size, max_context_length, max_length, seq_len, enable_bucketing,
  context_encoding_buckets, token_generation_buckets, on_device_sampling_config, padding_side, async_mode, ...);
  torch_dtype as text, float32 or bfloat16; is_continuous_batching, without which a prompt is not encoded into the line
  of its sequence id, and with which each is encoded alone (ctx_batch_size is 1);
- models/llama/modeling_llama.py: NeuronLlamaForCausalLM, models/qwen3/modeling_qwen3.py: NeuronQwen3ForCausalLM;
- MODEL.get_config_cls()(neuron_config, load_config=load_pretrained_config(PATH)), MODEL(PATH, config), `.compile(DIR)`,
  `.load(DIR)`, `.reset()`;
- forward(input_ids, attention_mask, position_ids, seq_ids): inputs of more than one token go to the context encoding
  model, those of one token to token generation. Keys and values stay on the device, a line a sequence id;
- the output has `tokens` where sampling is on the device, `logits` [rows, 1, vocabulary] where it is not;
- a batch larger than ctx_batch_size is encoded in several calls, and rows that are missing are filled up.

HuggingFaceGenerationAdapter calls that forward in a loop and times nothing; the loop here does what its own does
(greedy, padding on the right, all rows stepping until the longest answer ends), so that each step can be timed.
"""

from __future__ import annotations

from typing import Any, Protocol


class NeuronModel(Protocol):
    """A loaded application, as NeuronLlamaForCausalLM. config.neuron_config is its NeuronConfig."""

    config: Any

    def __call__(self, *, input_ids: Any, attention_mask: Any, position_ids: Any, seq_ids: Any) -> Any: ...

    def reset(self) -> None:
        """A new batch begins."""
        ...
