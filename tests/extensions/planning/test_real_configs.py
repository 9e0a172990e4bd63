"""The real config.json files of aiconfigurator-core, where it is installed (`make preflight` has one).

Weights are those that transformers 5.19 and 5.24 count: `AutoModelForCausalLM.from_config(config)` on torch's meta
device, of what writes the text, and the sum of `numel()` over its parameters. Of the 82 files that are read 77 are so
counted; Step 3.7, MiMo-7B, Nemotron-NAS and MiniMax-M3-NVFP4 have no class there that takes their file.
"""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from pytest_npubench.engines.hf_config import read_shape
from pytest_npubench.errors import ConfigError

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "benchmarks"))
from real_configs import shipped_configs, table  # noqa: E402 # a program of the checkout; `make preflight` has no conftest

pytestmark = pytest.mark.skipif(find_spec("aiconfigurator_core") is None, reason="aiconfigurator-core is not installed")

WEIGHTS = {
    228_689_748_992: """MiniMaxAI--MiniMax-M2.5 MiniMaxAI--MiniMax-M2.7 nvidia--MiniMax-M2.5-NVFP4
        nvidia--MiniMax-M2.7-NVFP4""",
    426_174_565_632: "MiniMaxAI--MiniMax-M3",
    596_049_920: "Qwen--Qwen3-0.6B",
    1_720_574_976: "Qwen--Qwen3-1.7B Qwen--Qwen3-VL-2B-Instruct",
    235_093_634_560: """Qwen--Qwen3-235B-A22B Qwen--Qwen3-235B-A22B-FP8 Qwen--Qwen3-VL-235B-A22B-Instruct
        nvidia--Qwen3-235B-A22B-NVFP4""",
    30_532_122_624: "Qwen--Qwen3-30B-A3B Qwen--Qwen3-30B-A3B-FP8 Qwen--Qwen3-VL-30B-A3B-Instruct",
    32_762_123_264: """Qwen--Qwen3-32B Qwen--Qwen3-32B-FP8 Qwen--Qwen3-32B-FP8-Static-PerTensor
        Qwen--Qwen3-VL-32B-Instruct Qwen--Qwen3-VL-32B-Thinking""",
    8_190_735_360: "Qwen--Qwen3-8B Qwen--Qwen3-VL-8B-Instruct",
    480_154_875_392: "Qwen--Qwen3-Coder-480B-A35B-Instruct",
    4_022_468_096: "Qwen--Qwen3-VL-4B-Instruct",
    122_111_526_912: "Qwen--Qwen3.5-122B-A10B nvidia--Qwen3.5-122B-A10B-NVFP4",
    26_895_998_464: "Qwen--Qwen3.5-27B nvidia--Qwen3.6-27B-NVFP4",
    34_660_610_688: "Qwen--Qwen3.5-35B-A3B nvidia--Qwen3.6-35B-A3B-NVFP4",
    396_346_350_336: "Qwen--Qwen3.5-397B-A17B nvidia--Qwen3.5-397B-A17B-NVFP4",
    308_778_768_832: "XiaomiMiMo--MiMo-V2-Flash",
    671_026_404_352: "deepseek-ai--DeepSeek-R1 deepseek-ai--DeepSeek-V3 nvidia--DeepSeek-V3.1-NVFP4",
    671_877_929_216: "deepseek-ai--DeepSeek-V3.2 nvidia--DeepSeek-V3.2-NVFP4",
    25_233_141_760: "google--gemma-4-26B-A4B nvidia--Gemma-4-26B-A4B-NVFP4",
    400_711_848_960: "meta-llama--Llama-4-Maverick-17B-128E-Instruct",
    107_769_861_120: "meta-llama--Llama-4-Scout-17B-16E-Instruct",
    405_853_388_800: "meta-llama--Meta-Llama-3.1-405B",
    70_553_706_496: "meta-llama--Meta-Llama-3.1-70B nvidia--Llama-3.1-70B-Instruct-FP8",
    8_030_261_248: "meta-llama--Meta-Llama-3.1-8B",
    140_620_634_112: "mistralai--Mixtral-8x22B-v0.1",
    46_702_792_704: "mistralai--Mixtral-8x7B-v0.1",
    1_026_408_209_408: """moonshotai--Kimi-K2-Instruct moonshotai--Kimi-K2.5 nvidia--Kimi-K2.5-NVFP4
        nvidia--Kimi-K2.6-NVFP4 nvidia--Kimi-K2.7-Code-NVFP4""",
    743_911_199_232: """nvidia--GLM-5-NVFP4 nvidia--GLM-5.1-NVFP4 zai-org--GLM-5 zai-org--GLM-5-FP8
        zai-org--GLM-5.1 zai-org--GLM-5.1-FP8""",
    743_377_000_704: """nvidia--GLM-5.2-NVFP4 nvidia--GLM-5.3-NVFP4 zai-org--GLM-5.2 zai-org--GLM-5.2-FP8
        zai-org--GLM-5.3 zai-org--GLM-5.3-FP8""",
    30_697_345_280: "nvidia--Gemma-4-31B-IT-NVFP4",
    31_577_937_344: """nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16 nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4
        nvidia--NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4""",
    120_668_687_360: """nvidia--NVIDIA-Nemotron-3-Super-120B-A12B-FP8
        nvidia--NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4""",
    549_308_968_960: """nvidia--NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16
        nvidia--NVIDIA-Nemotron-3-Ultra-550B-A55B-FP8
        nvidia--NVIDIA-Nemotron-3-Ultra-550B-A55B-NVFP4""",
    56_324_350_464: "nvidia--Nemotron-H-56B-Base-8K",
    116_829_156_672: "openai--gpt-oss-120b",
    20_914_757_184: "openai--gpt-oss-20b",
}
_PATTERNS = """layer_types hybrid_override_pattern layers_block_type full_attention_interval attn_type_list
    sliding_window hybrid_layer_pattern block_configs no_rope_layers index_topk sparse_attention_config
    attention_other_setting"""
PATTERNS = _PATTERNS.split()
"""Keys by which layers differ, or keep something else beside."""


@pytest.mark.parametrize(("weights", "names"), WEIGHTS.items())
def test_weights_are_those_that_transformers_counts(weights: int, names: str) -> None:
    for name in names.split():
        assert read_shape(shipped_configs() / f"{name}_config.json").num_parameters == weights, name


def test_caches_of_alike_layers_are_those_of_their_heads_or_ranks() -> None:
    """Keys and values of each head; with compressed ones what a layer keeps of a token, and the rotated key."""
    seen = 0
    for path in shipped_configs().glob("*_config.json"):
        whole = json.loads(path.read_text(encoding="utf-8"))
        text = whole.get("text_config") or whole
        if "hidden_size" not in text or any(map(text.get, PATTERNS)):
            continue
        layers, heads = text["num_hidden_layers"], text["num_attention_heads"]
        if rank := text.get("kv_lora_rank"):
            values = layers * (rank + text["qk_rope_head_dim"])
        else:
            head_dim = text.get("head_dim") or text["hidden_size"] // heads
            values = 2 * layers * text["num_key_value_heads"] * head_dim
        try:
            shape = read_shape(path)
        except ConfigError:
            continue
        assert shape.kv_bytes_per_token(1) == values, path.name
        seen += 1
    assert seen == 36


def test_the_table_of_the_page_is_what_the_program_prints() -> None:
    printed = table(shipped_configs())
    assert printed in (ROOT / "docs" / "scheduling.md").read_text(encoding="utf-8")
    files = [row.split("|")[2].strip() for row in printed.splitlines()[2:]]
    assert sum(int(number) for number in files if number.isdecimal()) == 82


def test_no_key_of_what_is_read_is_left_unread() -> None:
    for path in shipped_configs().glob("*config.json"):
        try:
            doubts = () if "hf_quant" in path.name else read_shape(path).doubts
        except ConfigError:
            continue
        assert not any("not read" in words for words in doubts), path.name
