"""vLLM's V1 model runner, with iterations that take some rows through one layer group only.

Two methods differ. `_prepare_inputs` marks the rows that have layers before them yet, so that the token sampled for
them is thrown away, as vLLM does with chunks of a prompt. `_model_forward` runs the stage; the layers outside its group
see attention metadata and KV slots of the other rows alone.

This is the runner for CUDA; cpu.py has the one for CPUs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from vllm.forward_context import get_forward_context
from vllm.model_executor.models.utils import extract_layer_index
from vllm.v1.attention.backend import CommonAttentionMetadata
from vllm.v1.worker.gpu_model_runner import GPUModelRunner

from pytest_npubench.extensions.vllm.layered.flight import FlightStage
from pytest_npubench.extensions.vllm.layered.refusals import check_attention, supported_decoder
from pytest_npubench.extensions.vllm.layered.rows import Rows, split_rows
from pytest_npubench.extensions.vllm.layered.stage_pass import StageStates, run_stage


@dataclass(slots=True, kw_only=True)
class StageCounts:
    """num_token_layers: (prompt token, layer) pairs that ran; without preemption, prompt tokens x layers in all."""

    num_stages: int = 0
    num_whole_stages: int = 0
    num_token_layers: int = 0


class LayeredModelRunner(GPUModelRunner):  # type: ignore[misc] # vLLM is absent where types are checked
    """Runs the plans of LayeredScheduler. Raises ConfigError for a model or an attention backend it does not know."""

    def __init__(self, vllm_config: Any, device: Any) -> None:
        super().__init__(vllm_config, device)
        self._states = StageStates()
        self._stage: FlightStage | None = None
        self._rows: Rows | None = None
        self._decoder: Any = None
        self._counts = StageCounts()

    def load_model(self, *args: Any, **kwargs: Any) -> None:
        super().load_model(*args, **kwargs)
        self._decoder = supported_decoder(self.get_model())

    def initialize_metadata_builders(self, *args: Any, **kwargs: Any) -> None:
        super().initialize_metadata_builders(*args, **kwargs)
        check_attention(self.attn_groups)

    def layered_counts(self) -> dict[str, int]:
        """Stages so far, and the bytes of hidden states held now and at most."""
        num_bytes = {"hidden_bytes": self._states.num_bytes, "peak_hidden_bytes": self._states.peak_bytes}
        return {**asdict(self._counts), **num_bytes}

    def _update_states(self, scheduler_output: Any) -> Any:
        """Whoever has ended, was aborted or preempted has no hidden states any more, also where no forward follows."""
        self._stage = getattr(scheduler_output, "stage", None)
        self._states.drop_all_but(() if self._stage is None else self._stage.requests)
        return super()._update_states(scheduler_output)

    def _prepare_inputs(self, scheduler_output: Any, num_scheduled_tokens: Any) -> Any:
        prepared = super()._prepare_inputs(scheduler_output, num_scheduled_tokens)
        if self._stage is not None:
            self._rows = split_rows(self.input_batch.req_ids, num_scheduled_tokens, self._stage.requests)
            self._count(self._stage, self._rows)
            if not self._stage.is_last:
                self._discard_tokens_of(self._stage.requests)
        return prepared

    def _discard_tokens_of(self, requests: tuple[str, ...]) -> None:
        for request in requests:
            self.discard_request_mask.np[self.input_batch.req_id_to_index[request]] = True
        self.discard_request_mask.copy_to_gpu(self.input_batch.num_reqs)

    def _count(self, stage: FlightStage, rows: Rows) -> None:
        self._counts.num_stages += 1
        self._counts.num_whole_stages += stage.is_whole
        self._counts.num_token_layers += rows.num_staged_tokens * stage.group.num_layers

    def _model_forward(
        self,
        input_ids: Any = None,
        positions: Any = None,
        intermediate_tensors: Any = None,
        inputs_embeds: Any = None,
        **model_kwargs: Any,
    ) -> Any:
        stage, rows = self._stage, self._rows
        if stage is None or stage.is_whole:
            return super()._model_forward(input_ids, positions, intermediate_tensors, inputs_embeds, **model_kwargs)
        assert rows is not None, "_prepare_inputs comes first"
        assert inputs_embeds is None, "a model of text alone has token ids"
        self._narrow_attention(stage, rows)
        return run_stage(
            self._decoder, stage, rows, input_ids[: rows.num_tokens], positions[: rows.num_tokens], self._states
        )

    def _narrow_attention(self, stage: FlightStage, rows: Rows) -> None:
        """Layers outside the group attend with the rest rows; the forward context is this iteration's own."""
        context = get_forward_context()
        context.is_padding = None  # eager: there are no padding rows, and the mask is as long as the batch
        context.all_moe_layers = None  # layers may be left out, so each must go by its own name
        if not len(rows.rest_tokens):
            return  # nobody runs outside the group
        metadata, slots = rest_attention(self, rows, context.slot_mapping)
        for name in metadata:
            if not stage.group.first <= extract_layer_index(name) < stage.group.stop:
                context.attn_metadata[name], context.slot_mapping[name] = metadata[name], slots[name]


def rest_attention(
    runner: Any, rows: Rows, slots: Mapping[str, torch.Tensor]
) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Metadata and KV slots by layer name of the rows outside a stage, from a V1 model runner whose inputs have been
    prepared. `slots` are all rows. vLLM builds metadata for the whole batch out of its persistent buffers; here the
    same builders and buffers serve some of the rows. B rest requests with r tokens: query_start_loc (B + 1,), seq_lens
    (B,), block table (B, blocks), slots (r,)."""
    tokens = torch.from_numpy(rows.rest_tokens).to(runner.device)
    metadata: dict[str, Any] = {}
    rest_slots: dict[str, torch.Tensor] = {}
    for group_id, group in enumerate(runner.kv_cache_config.kv_cache_groups):
        slot_mapping = slots[group.layer_names[0]][tokens]
        common = _common_metadata(runner, rows, tokens, group_id, slot_mapping)
        rest_slots.update(dict.fromkeys(group.layer_names, slot_mapping))
        for attention in runner.attn_groups[group_id]:
            metadata.update(dict.fromkeys(attention.layer_names, attention.build_metadata(common)))
    return metadata, rest_slots


def _common_metadata(
    runner: Any, rows: Rows, tokens: torch.Tensor, group_id: int, slot_mapping: torch.Tensor
) -> CommonAttentionMetadata:
    batch = runner.input_batch
    indices = torch.from_numpy(rows.rest_requests)
    on_device = indices.to(runner.device)
    starts = torch.from_numpy(np.concatenate(([0], np.cumsum(rows.rest_counts))).astype(np.int32))
    lengths = runner.optimistic_seq_lens_cpu[indices]
    return CommonAttentionMetadata(
        query_start_loc=starts.to(runner.device),
        query_start_loc_cpu=starts,
        seq_lens=runner.seq_lens[on_device],
        seq_lens_cpu_upper_bound=lengths,
        num_reqs=len(rows.rest_requests),
        num_actual_tokens=len(rows.rest_tokens),
        max_query_len=int(rows.rest_counts.max()),
        max_seq_len=int(lengths.max()),
        block_table_tensor=batch.block_table[group_id].get_device_tensor(batch.num_reqs)[on_device],
        slot_mapping=slot_mapping,
        causal=True,
        is_prefilling=(batch.num_computed_tokens_cpu_tensor < batch.num_prompt_tokens_cpu_tensor)[indices],
        positions=runner.positions[tokens],
    )
