"""The real config.json files of aiconfigurator-core, where it is installed (`make preflight` has one).

Weights are those that transformers 5.19 counts: `AutoModelForCausalLM.from_config(config)` on torch's meta device, of
what writes the text, and the sum of `numel()` over its parameters.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from pytest_npubench.engines.hf_config import read_shape
from pytest_npubench.errors import ConfigError

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "benchmarks"))
from real_configs import shipped_configs, table  # noqa: E402 # a program of the checkout

pytestmark = pytest.mark.skipif(find_spec("aiconfigurator_core") is None, reason="aiconfigurator-core is not installed")

WEIGHTS = {
    "MiniMaxAI--MiniMax-M2.5": 228_689_748_992,
    "MiniMaxAI--MiniMax-M3": 426_174_565_632,
    "Qwen--Qwen3-235B-A22B": 235_093_634_560,
    "Qwen--Qwen3.5-122B-A10B": 122_111_526_912,
    "Qwen--Qwen3.5-27B": 26_895_998_464,
    "Qwen--Qwen3.5-35B-A3B": 34_660_610_688,
    "Qwen--Qwen3.5-397B-A17B": 396_346_350_336,
    "XiaomiMiMo--MiMo-V2-Flash": 308_778_768_832,
    "deepseek-ai--DeepSeek-V3": 671_026_404_352,
    "deepseek-ai--DeepSeek-V3.2": 671_877_929_216,
    "google--gemma-4-26B-A4B": 25_233_141_760,
    "meta-llama--Llama-4-Maverick-17B-128E-Instruct": 400_711_848_960,
    "meta-llama--Llama-4-Scout-17B-16E-Instruct": 107_769_861_120,
    "moonshotai--Kimi-K2.5": 1_026_408_209_408,
    "nvidia--Gemma-4-31B-IT-NVFP4": 30_697_345_280,
    "nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": 31_577_937_344,
    "nvidia--NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16": 549_308_968_960,
    "nvidia--Nemotron-H-56B-Base-8K": 56_324_350_464,
    "zai-org--GLM-5": 743_911_199_232,
    "zai-org--GLM-5.3": 743_377_000_704,
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_are_those_that_transformers_counts(name: str) -> None:
    assert read_shape(shipped_configs() / f"{name}_config.json").num_parameters == WEIGHTS[name]


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
