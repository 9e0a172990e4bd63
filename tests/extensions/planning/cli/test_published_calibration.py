"""A real run of vLLM, calibrated on its first requests: how far off the others may be predicted.

The data (casys-kaist/LLMServingSim, MIT) is not part of the project; without it there is nothing to calibrate on.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from cli.conftest import Answer

MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}
PEAK = """title = "NVIDIA RTX PRO 6000 Blackwell"
[peak]
memory_bandwidth_bytes_per_s = { value = 1792, unit = "GB/s", source = "datasheet" }
memory_bytes = { value = 96, unit = "GB", source = "datasheet" }
flops_per_s.bf16 = { value = 503.8, unit = "TFLOP/s", source = "datasheet, dense" }
"""


@pytest.mark.parametrize("number", [75, 15])
def test_the_others_are_predicted(
    call: Callable[..., Answer], published_run: Path, tmp_path: Path, number: int
) -> None:
    model, peak, cost = (tmp_path / name for name in ("config.json", "rtx-pro-6000.toml", "cost.json"))
    model.write_text(json.dumps(MODEL), encoding="utf-8")
    peak.write_text(PEAK, encoding="utf-8")
    options = ["--model", model, "--hardware", peak, "--num-requests", number, "-o", cost, "--json"]
    done = call("calibrate", published_run, *options)
    assert done.status == 0, done.err
    errors = done.json["errors"]
    for metric, limit in (("ttft", 0.03), ("e2e", 0.02 if number == 75 else 0.03), ("tpot", 0.02)):
        assert abs(errors[f"{metric}_mean"]) < limit, metric
        for part in ("p50", "p90", "p99"):
            assert abs(errors[f"{metric}_{part}"]) < 0.05, (metric, part)
