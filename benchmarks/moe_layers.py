"""Write pytest_npubench/extensions/planning/virtual/moe_layers.toml anew from aiconfigurator-core's wheel, unpacked.

python benchmarks/moe_layers.py FOLDER   FOLDER holds aiconfigurator_core/; wants pyarrow
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

import pyarrow.parquet as parquet

TARGET = Path(__file__).parents[1] / "pytest_npubench" / "engines" / "virtual" / "moe_layers.toml"
# our name: theirs, and the vLLM that they measured with
DEVICES = {
    "nvidia-a100": ("a100_sxm", "0.14.0"),
    "nvidia-h100": ("h100_sxm", "0.24.0"),
    "nvidia-h200": ("h200_sxm", "0.24.0"),
    "nvidia-b200": ("b200_sxm", "0.24.0"),
}
VERSION = "0.12.0"
# hidden, intermediate, experts, experts a token
SHAPES = {"qwen3-30b-a3b": (2048, 768, 128, 8)}
ROUTINGS = {"balanced": "balanced", "power_law_1.2": "power-law"}
HEAD = f"""# Seconds of a MoE layer by the tokens that run through it, measured with vLLM by NVIDIA's
# aiconfigurator-core {VERSION} (https://pypi.org/project/aiconfigurator-core/), its files moe_perf.parquet.
#
# Copyright NVIDIA CORPORATION & AFFILIATES, licensed under the Apache License, Version 2.0
# (https://www.apache.org/licenses/LICENSE-2.0). Changed: these rows of bf16 experts that no replicas share were chosen,
# milliseconds were made microseconds and rounded to four digits. Made by benchmarks/moe_layers.py.
#
# us: of one layer on one of so many tensor-parallel devices, in the order of tokens.
"""


def main() -> None:
    folder = Path(sys.argv[1]) / "aiconfigurator_core" / "systems" / "data"
    lines = [HEAD]
    for device, (name, vllm) in DEVICES.items():
        rows = parquet.read_table(folder / name / "moe" / "vllm" / vllm / "moe_perf.parquet").to_pylist()
        for model, wanted in SHAPES.items():
            found: dict[tuple[int, str], dict[int, float]] = defaultdict(dict)
            for row in rows:
                shape = row["hidden_size"], row["inter_size"], row["num_experts"], row["topk"]
                if shape == wanted and row["moe_dtype"] == "bfloat16" and row["moe_ep_size"] == 1:
                    routing = ROUTINGS.get(row["distribution"])
                    if routing and row["moe_tp_size"] in (1, 2, 4):
                        found[row["moe_tp_size"], routing][row["num_tokens"]] = row["latency"]
            for (devices, routing), times_ms in sorted(found.items()):
                tokens = sorted(times_ms)
                lines += [
                    "[[layers]]",
                    f'device = "{device}"\nvllm = "{vllm}"\nmodel = "{model}"',
                    f'tensor_parallel = {devices}\nrouting = "{routing}"',
                    f"tokens = {tokens}",
                    f"us = [{', '.join(f'{1e3 * times_ms[number]:.4g}' for number in tokens)}]\n",
                ]
    TARGET.write_text("\n".join(lines), encoding="utf-8")
    print(f"{TARGET.name}: {TARGET.stat().st_size} bytes")


if __name__ == "__main__":
    main()
