"""A model directory as servers read them: config.json and model.safetensors, written from a named shape and a seed.

There is no tokenizer: requests are token ids. Qwen3MoeForCausalLM for shapes with experts, Qwen3ForCausalLM for dense
ones with norms on each head's q and k, LlamaForCausalLM for those without. Also good for any server that reads Hugging
Face directories, and for engines/torch_moe, whose tokens are the oracle of this engine's.

A directory is whole or not there: it is written under another name and then renamed. Written again with the same
shape, dtype and seed it is left as it is.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from pytest_npubench.core.regular_file import SMALL_BYTES, read_text
from pytest_npubench.engines.moe_shapes import MOE_SHAPES, MoeShape
from pytest_npubench.engines.shapes import SHAPES, DecoderShape, RopeScaling
from pytest_npubench.engines.vllm.random_tensors import RandomTensors
from pytest_npubench.engines.vllm.safetensors_file import is_whole, num_bytes, write_safetensors
from pytest_npubench.errors import ConfigError, RegistryError

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
ORIGIN_FILE = "npubench-model.json"
FORMAT = 1  # of the random values; another one for other values under the same seed
MAX_POSITIONS = 131_072
TORCH_DTYPE = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}


def named_shape(name: str) -> MoeShape | DecoderShape:
    """A shape of either suite. Raises RegistryError with the known names."""
    shape = MOE_SHAPES.get(name) or SHAPES.get(name)
    if shape is None:
        raise RegistryError(f"no model shape {name!r}; known: {', '.join(sorted({*MOE_SHAPES, *SHAPES}))}")
    return shape


def write_model_directory(
    folder: Path, shape: MoeShape | DecoderShape, *, seed: int = 0, dtype: str = "fp32", is_ours: bool = False
) -> Path:
    """The directory, written unless it is there. Raises ConfigError for a shape or dtype that cannot be written, a
    folder that holds something else, and a disk without room.

    is_ours: nobody else writes there, so what holds something else, or lacks a part, is removed and written anew.
    """
    tensors = RandomTensors(shape=_as_moe_shape(shape), qk_norm=_has_qk_norm(shape), seed=seed)
    origin = {"format": FORMAT, "shape": shape.name, "seed": seed, "dtype": dtype, "config": model_config(shape, dtype)}
    if _holds(folder, origin):
        return folder
    if is_ours:
        _remove(folder)
    if folder.exists():
        raise ConfigError(f"{folder}: is there, and no directory of {shape.name} with seed {seed} in {dtype}")
    dims = tensors.shapes()
    _check_room(folder, num_bytes(dims, dtype))
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as unfinished:
        written = Path(unfinished) / "model"
        written.mkdir()
        (written / CONFIG_FILE).write_text(json.dumps(origin["config"], indent=1), encoding="utf-8")
        write_safetensors(written / WEIGHTS_FILE, dims, tensors.make, dtype=dtype)
        (written / ORIGIN_FILE).write_text(json.dumps(origin), encoding="utf-8")
        _rename(written, folder)
    return folder


def _holds(folder: Path, origin: dict[str, Any]) -> bool:
    """Whether the directory is of that origin, with all its weights."""
    try:
        found, config = (_read(folder / name) for name in (ORIGIN_FILE, CONFIG_FILE))
    except ConfigError:
        return False
    return found == origin and config == origin["config"] and is_whole(folder / WEIGHTS_FILE)


def _remove(folder: Path) -> None:
    try:
        if folder.is_dir() and not folder.is_symlink():
            shutil.rmtree(folder)
        else:
            folder.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(f"{folder}: is no whole model directory and cannot be removed: {error}") from error


def check_model_directory(folder: Path) -> dict[str, Any]:
    """Its config.json. Raises ConfigError where the directory, its config or every weight file is missing."""
    if not folder.is_dir():
        raise ConfigError(f"{folder}: no such model directory; want one with {CONFIG_FILE} and *.safetensors")
    config = _read(folder / CONFIG_FILE)
    if not any(folder.glob("*.safetensors")):
        raise ConfigError(f"{folder}: no *.safetensors in it; want the weights that {CONFIG_FILE} describes")
    return config


def kv_bytes_per_token(config: dict[str, Any], dtype_bytes: int) -> int:
    """Bytes of keys and values that one token leaves in the cache, over all layers, by config.json."""
    heads = config["num_attention_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    return int(2 * config["num_hidden_layers"] * config.get("num_key_value_heads", heads) * head_dim * dtype_bytes)


def model_config(shape: MoeShape | DecoderShape, dtype: str) -> dict[str, Any]:
    """config.json of the shape, in the form that transformers 4 and 5 both read."""
    moe = _as_moe_shape(shape)
    if dtype not in TORCH_DTYPE:
        raise ConfigError(f"dtype {dtype!r}; weights are written in {', '.join(TORCH_DTYPE)}")
    return {
        **_kind(moe, _has_qk_norm(shape)),
        "vocab_size": moe.vocab_size,
        "hidden_size": moe.hidden,
        "num_hidden_layers": moe.num_layers,
        "num_attention_heads": moe.num_heads,
        "num_key_value_heads": moe.num_kv_heads,
        "head_dim": moe.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": moe.rms_eps,
        **_rope(moe, shape.rope_scaling if isinstance(shape, DecoderShape) else None),
        "max_position_embeddings": MAX_POSITIONS,
        "tie_word_embeddings": moe.tied_embeddings,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "use_cache": True,
        "torch_dtype": TORCH_DTYPE[dtype],
        "bos_token_id": 0,
        "eos_token_id": 1,
    }


def _kind(shape: MoeShape, qk_norm: bool) -> dict[str, Any]:
    if not qk_norm:
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "intermediate_size": shape.expert_intermediate,
        }
    sliding = {"use_sliding_window": False, "sliding_window": None}
    if shape.is_dense:
        return {
            "architectures": ["Qwen3ForCausalLM"],
            "model_type": "qwen3",
            "intermediate_size": shape.expert_intermediate,
            **sliding,
        }
    return {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "intermediate_size": shape.expert_intermediate * shape.experts_per_token,  # of dense layers: there are none
        "moe_intermediate_size": shape.expert_intermediate,
        "num_experts": shape.num_experts,
        "num_experts_per_tok": shape.experts_per_token,
        "norm_topk_prob": True,
        "mlp_only_layers": [],
        "decoder_sparse_step": 1,
        **sliding,
    }


def _rope(shape: MoeShape, scaling: RopeScaling | None) -> dict[str, Any]:
    """transformers 4 reads rope_theta and rope_scaling, 5 reads rope_parameters."""
    if scaling is None:
        kind: dict[str, Any] = {"rope_type": "default"}
        older: dict[str, Any] = {}
    else:
        kind = {
            "rope_type": "llama3",
            "factor": scaling.factor,
            "low_freq_factor": scaling.low_freq_factor,
            "high_freq_factor": scaling.high_freq_factor,
            "original_max_position_embeddings": scaling.original_context,
        }
        older = {"rope_scaling": kind}
    return {"rope_theta": shape.rope_theta, **older, "rope_parameters": {**kind, "rope_theta": shape.rope_theta}}


def _as_moe_shape(shape: MoeShape | DecoderShape) -> MoeShape:
    """Raises ConfigError for an architecture whose tensors are not written here."""
    if isinstance(shape, MoeShape):
        if shape.architecture != "qwen3":
            raise ConfigError(f"{shape.name}: no random directory of architecture {shape.architecture}; want qwen3")
        return shape
    return MoeShape(
        name=shape.name,
        source=shape.source,
        architecture="qwen3",
        vocab_size=shape.vocab_size,
        hidden=shape.hidden,
        num_layers=shape.num_layers,
        num_heads=shape.num_heads,
        num_kv_heads=shape.num_kv_heads,
        head_dim=shape.head_dim,
        num_experts=1,
        experts_per_token=1,
        expert_intermediate=shape.intermediate,
        rope_theta=shape.rope_theta,
        rms_eps=shape.rms_eps,
        tied_embeddings=shape.tied_embeddings,
    )


def _has_qk_norm(shape: MoeShape | DecoderShape) -> bool:
    return isinstance(shape, MoeShape) or shape.qk_norm


def _check_room(folder: Path, wanted: int) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder.parent).free
    if wanted > free:
        raise ConfigError(f"{folder}: weights of {wanted / 1e9:.1f} GB; the disk has {free / 1e9:.1f} GB free")


def _rename(written: Path, folder: Path) -> None:
    try:
        os.rename(written, folder)  # noqa: PTH104 - must fail, not merge, where another process was faster
    except OSError as error:
        if not (folder / ORIGIN_FILE).is_file():
            raise ConfigError(f"{folder}: cannot be written: {error}") from error


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(read_text(path, SMALL_BYTES))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read as JSON: {error}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: holds a {type(content).__name__}; want an object")
    return content
