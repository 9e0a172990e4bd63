"""A tiny MaxText model with random weights under the adapter, in MaxText's own environment: what it does, as JSON.

    python child_program.py

MaxText 0.2.5 without JetStream has a ResultTokens of its own that jit does not know; later revisions make it known, and
so does this program.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import jax
import maxtext
import numpy as np
from maxtext.inference.maxengine.maxengine import engine_api

from pytest_npubench.core.measurement import Request
from pytest_npubench.extensions.adapters.maxtext.engine import MaxTextEngine
from pytest_npubench.extensions.adapters.maxtext.opening import open_maxengine

SETTINGS = {
    "run_name": "tiny",
    "base_emb_dim": 64,
    "base_num_query_heads": 4,
    "base_num_kv_heads": 2,
    "base_mlp_dim": 128,
    "base_num_decoder_layers": 2,
    "head_dim": 16,
    "vocab_size": 256,
    "max_prefill_predict_length": 64,
    "max_target_length": 96,
    "inference_microbenchmark_prefill_lengths": "16,32,128",
    "per_device_batch_size": 3,
    "decode_sampling_strategy": "greedy",
    "attention": "dot_product",
    "dtype": "float32",
    "weight_dtype": "float32",
    "scan_layers": "false",
    "enable_checkpointing": "false",
    "skip_jax_distributed_system": "true",
    "hardware": "cpu",
}
PROMPT_TOKENS, OUTPUT_TOKENS = (10, 16, 60), (12, 33, 5)
COMPILE_EVENT = "/jax/core/compile/backend_compile_duration"


def _register_result_tokens() -> None:
    kind = engine_api.ResultTokens
    fixed = ("tokens_idx", "valid_idx", "length_idx", "samples_per_slot")
    jax.tree_util.register_pytree_node(
        kind,
        lambda result: ((result.data, result.log_prob), tuple(getattr(result, name) for name in fixed)),
        lambda names, arrays: kind(data=arrays[0], log_prob=arrays[1], **dict(zip(fixed, names, strict=True))),
    )


def main() -> None:
    if getattr(engine_api, "_IS_STUB", False):
        _register_result_tokens()
    configuration = Path(maxtext.__file__).parent / "configs" / "base.yml"
    arguments = [str(configuration), *(f"{key}={value}" for key, value in SETTINGS.items())]
    adapter = MaxTextEngine(open_maxengine(arguments))
    adapter.load(adapter.buckets)
    compiles: list[str] = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, duration, **rest: compiles.append(event) if event == COMPILE_EVENT else None
    )
    random = np.random.default_rng(0)
    prompts = [random.integers(0, SETTINGS["vocab_size"], length, dtype=np.int32) for length in PROMPT_TOKENS]
    together = adapter.generate(prompts, OUTPUT_TOKENS).tokens
    turned = adapter.generate(prompts[::-1], OUTPUT_TOKENS[::-1]).tokens[::-1]
    alone = [
        adapter.generate([prompt], [count]).tokens[0] for prompt, count in zip(prompts, OUTPUT_TOKENS, strict=True)
    ]
    run = adapter.run(
        [Request(input_tokens=n, output_tokens=m) for n, m in zip(PROMPT_TOKENS, OUTPUT_TOKENS, strict=True)]
    )
    found = {
        "buckets": adapter.buckets,
        "batch_size": adapter.batch_size,
        "tokens": [together, turned, alone],
        "compiled": [record.name for record in adapter.compiles],
        "late_compiles": len(compiles),
        "segments": [(part.phase.value, part.bucket, part.num_steps) for part in run.segments],
        "covered": sum(part.duration_s for part in run.segments) / run.e2e_s,
    }
    sys.stdout.write("\n" + json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
