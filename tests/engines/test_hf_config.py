"""Shapes read from config.json: against transformers' own models, and every refusal by key."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_npubench.core.measurement import Phase
from pytest_npubench.engines.hf_config import check_config, read_shape, shape_of, stated_context_tokens
from pytest_npubench.engines.model_directory import config_of
from pytest_npubench.engines.shapes import SHAPES, DecoderShape, ExpertShape, RopeScaling, decoder_shape
from pytest_npubench.errors import ConfigError
from pytest_npubench.extensions.compilers.hub.graph import GraphSpec

WRITTEN = [shape for shape in SHAPES.values() if shape.architecture == "llama"]
COMMON: dict[str, Any] = {
    "vocab_size": 96,
    "hidden_size": 48,
    "intermediate_size": 40,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "tie_word_embeddings": False,
}
EXPERTS = {"num_local_experts": 5, "num_experts_per_tok": 2}
# transformers' configuration class, and what it is told beside COMMON
MODELS = {
    "Llama": {},
    "Mistral": {"sliding_window": None},
    "Mixtral": {**EXPERTS, "sliding_window": None},
    "Qwen2": {},
    "Qwen3": {},
    "Qwen3Moe": {"num_experts": 7, "num_experts_per_tok": 3, "moe_intermediate_size": 24, "norm_topk_prob": True},
    "GptOss": EXPERTS,
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("tied", [False, True])
def test_parameters_and_cache_are_those_of_transformers(tmp_path: Path, name: str, tied: bool) -> None:
    """The model is built by transformers on torch's meta device, the cache filled by one pass of 5 tokens."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    torch = pytest.importorskip("torch", reason="torch is not installed")
    told = {**COMMON, **MODELS[name], "tie_word_embeddings": tied}
    if name == "Qwen2":
        told["head_dim"] = told["hidden_size"] // told["num_attention_heads"]
    config = getattr(transformers, f"{name}Config")(**told)
    config.save_pretrained(tmp_path)
    with torch.device("meta"):
        model = getattr(transformers, f"{name}ForCausalLM")(config)
    shape = read_shape(tmp_path)
    assert shape.num_parameters == sum(weight.numel() for weight in model.parameters())
    layer = sum(weight.numel() for weight in model.model.layers[1].parameters())
    assert shape.parameters_per_layer == layer
    attention = model.model.layers[0].self_attn
    keys, values = attention.k_proj.weight.shape[0], attention.v_proj.weight.shape[0]
    assert shape.kv_bytes_per_token(2) == 2 * 3 * (keys + values)
    assert shape.name == tmp_path.name


@pytest.mark.parametrize("shape", WRITTEN, ids=lambda shape: shape.name)
def test_what_is_written_is_read(tmp_path: Path, shape: DecoderShape) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config_of(shape, "bf16")), encoding="utf-8")
    found = read_shape(tmp_path / "config.json")
    assert found.name == tmp_path.name
    (tmp_path / "config.json").rename(tmp_path / "Mine-2.5.json")
    assert read_shape(tmp_path / "Mine-2.5.json").name == "Mine-2.5"
    assert dataclasses.replace(found, name=shape.name, source=shape.source) == shape


@given(
    st.builds(
        DecoderShape,
        name=st.just("any"),
        source=st.just("config.json of any"),
        vocab_size=st.integers(1, 10**6),
        hidden=st.integers(1, 10**5),
        num_layers=st.integers(1, 500),
        num_heads=st.just(12),
        num_kv_heads=st.sampled_from([1, 2, 3, 4, 6, 12]),
        head_dim=st.integers(1, 512),
        intermediate=st.integers(1, 10**6),
        rope_theta=st.floats(1, 1e8),
        rms_eps=st.floats(1e-9, 1e-2),
        tied_embeddings=st.booleans(),
        qk_norm=st.just(True),
        experts=st.none()
        | st.builds(ExpertShape, num_experts=st.integers(9, 999), experts_per_token=st.integers(1, 9)),
        rope_scaling=st.none()
        | st.builds(
            RopeScaling,
            factor=st.floats(1, 64),
            low_freq_factor=st.floats(0.5, 2),
            high_freq_factor=st.floats(3, 8),
            original_context=st.integers(1, 10**6),
        ),
    )
)
def test_any_shape_survives_its_file(shape: DecoderShape) -> None:
    read = json.loads(json.dumps(config_of(shape, "fp32")))
    assert shape_of(read, "any", Path("config.json")) == shape


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model_type": "mamba2", "architectures": ["Other"]}, "model_type is 'mamba2', which is not known here"),
        (
            {"model_type": "arcee", "architectures": None, "hidden_act": "relu2"},
            "hidden_act is 'relu2': with two matrices",
        ),
        (
            {"architectures": ["MixtralForCausalLM"]},
            "architectures is ['MixtralForCausalLM']; want ['Qwen3MoeForCausalLM']",
        ),
        ({"hidden_size": "48"}, "hidden_size is '48'; want a whole number from 1"),
        ({"hidden_size": None}, "hidden_size is 'missing'; want a whole number from 1"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0; want a whole number from 1"),
        ({"num_hidden_layers": 10**30}, "want a whole number from 1 to 10000"),
        ({"hidden_size": 10**30}, "want a whole number from 1 to 100000000"),
        ({"vocab_size": True}, "vocab_size is True; want a whole number"),
        ({"num_key_value_heads": 5}, "num_key_value_heads is 5; want a divisor of num_attention_heads, 8"),
        ({"num_experts_per_tok": 33}, "num_experts_per_tok is 33; want 32 at most, the number of experts"),
        ({"mlp_only_layers": [0]}, "mlp_only_layers is [0]; m wants []"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'; m wants 'silu'"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps is nan; want a number above 0"),
        ({"tie_word_embeddings": "no"}, "tie_word_embeddings is 'no'; want true or false"),
    ],
)
def test_what_no_shape_describes_is_refused_by_key(tmp_path: Path, change: dict[str, object], words: str) -> None:
    (tmp_path / "m").mkdir()
    path = tmp_path / "m" / "config.json"
    path.write_text(json.dumps({**config_of(decoder_shape("small-moe"), "fp32"), **change}), encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        read_shape(tmp_path / "m")
    assert str(caught.value).startswith(f"{path}: ")
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"norm_topk_prob": False}, "norm_topk_prob is False; small-moe wants True"),
        ({"use_sliding_window": True}, "use_sliding_window is True; small-moe wants False"),
        ({"rope_parameters": {"rope_type": "linear"}}, "rope_type is 'linear'; want 'default' or 'llama3'"),
    ],
)
def test_what_changes_values_alone_is_planned_with_and_no_checkpoint(change: dict[str, object], words: str) -> None:
    shape, path = decoder_shape("small-moe"), Path("m/config.json")
    config = {**config_of(shape, "fp32"), **change}
    read = shape_of(config, shape.name, path)
    assert dataclasses.replace(read, source=shape.source) == shape
    with pytest.raises(ConfigError) as caught:
        check_config(config, shape, path)
    assert words in str(caught.value)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("left_out", [(), ("num_key_value_heads", "head_dim")])
def test_what_a_file_leaves_out_is_what_transformers_takes(
    tmp_path: Path, name: str, left_out: tuple[str, ...]
) -> None:
    """A file of sizes alone, and the file that transformers writes once it has read that one."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    config_class = getattr(transformers, f"{name}Config")
    sizes = {
        "vocab_size": 96,
        "hidden_size": 256,
        "intermediate_size": 40,
        "num_hidden_layers": 3,
        "num_attention_heads": 32,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": 64,
        **{key: value for key, value in MODELS[name].items() if key not in ("sliding_window", "norm_topk_prob")},
    }
    bare = {"model_type": config_class.model_type, **{key: size for key, size in sizes.items() if key not in left_out}}
    for folder in (tmp_path / "bare" / "m", tmp_path / "whole" / "m"):
        folder.mkdir(parents=True)
    (tmp_path / "bare" / "m" / "config.json").write_text(json.dumps(bare), encoding="utf-8")
    config_class.from_pretrained(tmp_path / "bare" / "m").save_pretrained(tmp_path / "whole" / "m")
    read, whole = (read_shape(tmp_path / kind / "m") for kind in ("bare", "whole"))
    assert read == whole


@pytest.mark.parametrize(
    ("name", "told", "tokens"),
    [
        ("mistral", {"sliding_window": 4096}, 4096),  # mistralai/Mistral-7B-v0.1
        ("mistral", {}, 4096),
        ("mistral", {"sliding_window": None}, 32768),
        ("qwen2", {"sliding_window": 1024, "use_sliding_window": False}, 32768),
        ("qwen2", {"sliding_window": 1024, "use_sliding_window": True}, 1024),
        # Qwen3's model card: YaRN of factor 4 for 131,072 tokens
        (
            "qwen3",
            {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}},
            131072,
        ),
        ("llama", {"rope_scaling": {"type": "linear", "factor": 2.0}}, 65536),
        ("llama", {"max_position_embeddings": None}, None),
    ],
)
def test_the_context_that_a_file_states(tmp_path: Path, name: str, told: dict[str, Any], tokens: int | None) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": name, **COMMON, "max_position_embeddings": 32768, **told}))
    assert stated_context_tokens(str(path)) == tokens
    shape = read_shape(path)
    assert shape.sliding_window is None
    said = (f"windows of {tokens} tokens end the context that is planned, and longer requests are left out",)
    assert shape.doubts == (said if tokens in (1024, 4096) else ())


def test_a_folder_without_a_config_and_a_file_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"config\.json: cannot be read as JSON"):
        read_shape(tmp_path)
    (tmp_path / "config.json").write_text("[" * 100_000, encoding="utf-8")
    with pytest.raises(ConfigError, match="cannot be read as JSON"):
        read_shape(tmp_path)
    (tmp_path / "config.json").write_text("[]", encoding="utf-8")
    with pytest.raises(ConfigError, match="holds a list; want an object"):
        read_shape(tmp_path)


@pytest.mark.parametrize(
    ("name", "digest"),
    [
        ("tiny-llama", "526a8275279c"),
        ("tiny-qwen", "0909bc6015fc"),
        ("llama-3.2-1b", "0bebd72a511e"),
        ("mistral-7b-v0.3", "2971680e9f9e"),
        ("qwen3-14b", "734687c53bc8"),
    ],
)
def test_graphs_on_ai_hub_keep_the_digests_of_dense_shapes(name: str, digest: str) -> None:
    """As they were before shapes had experts; a graph of another shape has another one."""
    spec = GraphSpec(shape=decoder_shape(name), phase=Phase.DECODE, bucket=8, batch_size=2)
    assert spec.digest == digest
    mixed = dataclasses.replace(spec.shape, experts=ExpertShape(num_experts=4, experts_per_token=2))
    assert dataclasses.replace(spec, shape=mixed).digest != digest
