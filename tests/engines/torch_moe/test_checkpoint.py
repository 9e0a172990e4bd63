"""Directories that cannot be used are refused by name: path, key or tensor, and what was wanted."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
safetensors_torch = pytest.importorskip("safetensors.torch", reason="safetensors is not installed")

from engines.hugging_face import random_model, save  # noqa: E402
from pytest_npubench.engines.shapes import ExpertShape, RopeScaling  # noqa: E402
from pytest_npubench.engines.torch_moe.checkpoint import load_weights  # noqa: E402
from pytest_npubench.errors import ConfigError  # noqa: E402

from .small_shapes import GPT_OSS, QWEN_MOE  # noqa: E402

pytestmark = pytest.mark.skipif(find_spec("transformers") is None, reason="transformers is not installed")
Change = Callable[[dict[str, Any]], object]


def load(shape: Any, folder: Path) -> Any:
    return load_weights(shape, folder, device=torch.device("cpu"), dtype=torch.float32)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save(random_model(QWEN_MOE, seed=0), tmp_path)


def change_config(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def change_tensors(folder: Path, change: Change) -> None:
    path = folder / "model.safetensors"
    tensors = safetensors_torch.load_file(path)
    change(tensors)
    safetensors_torch.save_file(tensors, path)


def refusal(shape: Any, folder: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        load(shape, folder)
    return str(caught.value)


def test_no_directory(tmp_path: Path) -> None:
    assert str(tmp_path / "nowhere" / "config.json") in refusal(QWEN_MOE, tmp_path / "nowhere")


def test_another_architecture(folder: Path) -> None:
    assert "architectures is ['Qwen3MoeForCausalLM']; test-gpt-oss wants ['GptOssForCausalLM']" in refusal(
        GPT_OSS, folder
    )


@pytest.mark.parametrize(
    ("field", "other", "key"),
    [
        ("num_layers", 4, "num_hidden_layers is 5"),
        ("num_kv_heads", 3, "num_key_value_heads is 2"),
        ("rope_theta", 1.0, "rope_theta is 10000.0"),
        ("experts", ExpertShape(num_experts=10, experts_per_token=2), "num_experts_per_tok is 3"),
        ("experts", ExpertShape(num_experts=11, experts_per_token=3), "num_experts is 10"),
        ("intermediate", 25, "moe_intermediate_size is 24"),
        ("tied_embeddings", False, "tie_word_embeddings is True"),
        ("rope_scaling", RopeScaling(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_context=64), ""),
    ],
)
def test_another_size(folder: Path, field: str, other: object, key: str) -> None:
    """Every figure of the shape is compared."""
    message = refusal(dataclasses.replace(QWEN_MOE, **{field: other}), folder)
    assert f"{key}; test-qwen-moe wants " in message if key else "rope_scaling is None" in message


def test_shares_that_are_not_renormalised(folder: Path) -> None:
    change_config(folder, norm_topk_prob=False)
    assert refusal(QWEN_MOE, folder).endswith("norm_topk_prob is False; test-qwen-moe wants True")


def test_quantised_tensors(folder: Path) -> None:
    change_config(folder, quantization_config={"quant_method": "mxfp4"})
    assert "quantised (mxfp4)" in refusal(QWEN_MOE, folder)


def test_figures_of_transformers_4(folder: Path) -> None:
    """rope_theta on the top level, the number of experts under its older name."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["rope_theta"] = config.pop("rope_parameters")["rope_theta"]
    config["num_experts"] = config.pop("num_local_experts", None) or config["num_experts"]
    path.write_text(json.dumps({**config, "rope_scaling": None}))
    assert load(QWEN_MOE, folder).layers[0].qkv.shape[1] == QWEN_MOE.hidden


def test_a_missing_tensor(folder: Path) -> None:
    name = "model.layers.3.mlp.experts.7.up_proj.weight"
    change_tensors(folder, lambda tensors: tensors.pop(name))
    message = refusal(QWEN_MOE, folder)
    assert message == f"{folder / 'model.safetensors'}: no tensor {name}; want one of shape [24, 48]"


def test_a_tensor_of_another_shape(folder: Path) -> None:
    name = "model.layers.0.mlp.gate.weight"
    change_tensors(folder, lambda tensors: tensors.update({name: tensors[name].t().contiguous()}))
    assert f"tensor {name} has shape [48, 10]" in refusal(QWEN_MOE, folder)
    assert "want [10, 48]" in refusal(QWEN_MOE, folder)


def test_a_tensor_of_integers(folder: Path) -> None:
    name = "model.norm.weight"
    change_tensors(folder, lambda tensors: tensors.update({name: tensors[name].to(torch.uint8)}))
    assert "dtype torch.uint8" in refusal(QWEN_MOE, folder)


def test_a_missing_file(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    message = refusal(QWEN_MOE, folder)
    assert str(folder / "model.safetensors") in message
    assert "model.embed_tokens.weight of shape [101, 48]" in message


def test_a_missing_shard(tmp_path: Path) -> None:
    save(random_model(QWEN_MOE, seed=0), tmp_path, max_shard_size="100KB")
    gone = sorted(tmp_path.glob("*.safetensors"))[1]
    gone.unlink()
    assert str(gone) in refusal(QWEN_MOE, tmp_path)


def test_a_file_that_is_no_safetensors(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"not what it says")
    assert str(folder / "model.safetensors") in refusal(QWEN_MOE, folder)


def test_a_config_that_is_no_json(folder: Path) -> None:
    (folder / "config.json").write_text("{")
    assert f"{folder / 'config.json'}: cannot be read as JSON" in refusal(QWEN_MOE, folder)
