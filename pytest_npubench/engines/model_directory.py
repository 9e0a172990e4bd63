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

from pytest_npubench.engines.config_keys import CONFIG_FILE
from pytest_npubench.engines.hf_config import (
    FAMILIES,
    FIGURES,
    LLAMA3_ROPE,
    TORCH_DTYPE,
    ModelFamily,
    read_config,
)
from pytest_npubench.engines.random_tensors import RandomTensors
from pytest_npubench.engines.safetensors_file import is_whole, num_bytes, write_safetensors
from pytest_npubench.engines.shapes import DecoderShape
from pytest_npubench.errors import ConfigError

MAX_POSITIONS = 131_072
WRITTEN = ("llama", "qwen3", "qwen3_moe")  # model types that config_of() writes
WEIGHTS_FILE = "model.safetensors"
ORIGIN_FILE = "npubench-model.json"
FORMAT = 1  # of the random values; another one for other values under the same seed


def write_model_directory(
    folder: Path, shape: DecoderShape, *, seed: int = 0, dtype: str = "fp32", is_ours: bool = False
) -> Path:
    """The directory, written unless it is there. Raises ConfigError for a shape or dtype that cannot be written, a
    folder that holds something else, and a disk without room.

    is_ours: nobody else writes there, so what holds something else, or lacks a part, is removed and written anew.
    """
    origin = {"format": FORMAT, "shape": shape.name, "seed": seed, "dtype": dtype, "config": config_of(shape, dtype)}
    if _holds(folder, origin):
        return folder
    if is_ours:
        _remove(folder)
    if folder.exists():
        raise ConfigError(f"{folder}: is there, and no directory of {shape.name} with seed {seed} in {dtype}")
    tensors = RandomTensors(shape=shape, seed=seed)
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
    """Whether the directory has that origin and all its weights."""
    try:
        written, config = (read_config(folder / name) for name in (ORIGIN_FILE, CONFIG_FILE))
    except ConfigError:
        return False
    return written == origin and config == origin["config"] and is_whole(folder / WEIGHTS_FILE)


def _remove(folder: Path) -> None:
    try:
        if folder.is_dir() and not folder.is_symlink():
            shutil.rmtree(folder)
        else:
            folder.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(f"{folder}: is no whole model directory and cannot be removed: {error}") from error


def config_of(shape: DecoderShape, dtype: str) -> dict[str, Any]:
    """config.json of the shape, in the form that transformers 4 and 5 both read. Raises ConfigError for a shape or
    dtype that has none."""
    written = [family for family in FAMILIES if family.model_type in WRITTEN]
    family = next((family for family in written if family.holds(shape)), None)
    if family is None:
        classes = ", ".join(family.class_name for family in written)
        raise ConfigError(f"{shape.name}: no random directory of architecture {shape.architecture}; want {classes}")
    if dtype not in TORCH_DTYPE:
        raise ConfigError(f"dtype {dtype!r}; weights are written in {', '.join(TORCH_DTYPE)}")
    return {
        "architectures": [family.class_name],
        "model_type": family.model_type,
        family.width: shape.intermediate,
        **_kind(family, shape),
        **{key: getattr(shape, field) for field, key in FIGURES.items()},
        "hidden_act": "silu",
        "rms_norm_eps": shape.rms_eps,
        **_rope(shape),
        "max_position_embeddings": MAX_POSITIONS,
        "tie_word_embeddings": shape.tied_embeddings,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "use_cache": True,
        "torch_dtype": TORCH_DTYPE[dtype],
        "bos_token_id": 0,
        "eos_token_id": 1,
    }


def _kind(family: ModelFamily, shape: DecoderShape) -> dict[str, Any]:
    if not family.model_type.startswith("qwen"):
        return {}
    sliding = {"use_sliding_window": False, "sliding_window": None}
    if not family.experts:
        return sliding
    return {
        "intermediate_size": shape.intermediate * shape.experts_per_token,  # of dense layers: there are none
        "num_experts": shape.num_experts,
        "num_experts_per_tok": shape.experts_per_token,
        "norm_topk_prob": True,
        "mlp_only_layers": [],
        "decoder_sparse_step": 1,
        **sliding,
    }


def _rope(shape: DecoderShape) -> dict[str, Any]:
    """transformers 4 reads rope_theta and rope_scaling, 5 reads rope_parameters."""
    scaling = shape.rope_scaling
    kind: dict[str, Any] = {"rope_type": "default"}
    older: dict[str, Any] = {}
    if scaling is not None:
        kind = {"rope_type": "llama3", **{key: getattr(scaling, field) for field, key in LLAMA3_ROPE.items()}}
        older = {"rope_scaling": kind}
    return {"rope_theta": shape.rope_theta, **older, "rope_parameters": {**kind, "rope_theta": shape.rope_theta}}


def check_model_directory(folder: Path) -> dict[str, Any]:
    """Reads config.json. Raises ConfigError where the directory, its config or a weight file is missing."""
    if not folder.is_dir():
        raise ConfigError(f"{folder}: no such model directory; want one with {CONFIG_FILE} and *.safetensors")
    config = read_config(folder / CONFIG_FILE)
    if not any(folder.glob("*.safetensors")):
        raise ConfigError(f"{folder}: no *.safetensors in it; want the weights that {CONFIG_FILE} describes")
    return config


def kv_bytes_per_token(config: dict[str, Any], dtype_bytes: int) -> int:
    """Bytes of keys and values that one token leaves in the cache, over all layers, by config.json."""
    heads = config["num_attention_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    return int(2 * config["num_hidden_layers"] * config.get("num_key_value_heads", heads) * head_dim * dtype_bytes)


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
