"""Weights from a Hugging Face directory: config.json, and safetensors in one file or many with an index.

Taken are Llama, Mistral, Qwen2, Qwen3, Qwen3-MoE and gpt-oss with unquantised tensors, in any float dtype. The shape is
asked for by name and config.json has to agree with it, so that a figure is never one of another model.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pytest_npubench.engines.config_keys import CONFIG_FILE
from pytest_npubench.engines.hf_config import check_config, read_config
from pytest_npubench.engines.shapes import DecoderShape
from pytest_npubench.engines.torch_moe.weights import LayerWeights, ModelWeights
from pytest_npubench.errors import ConfigError

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"


class Checkpoint:
    """Tensors of a directory by name. Raises ConfigError for whatever is missing, naming path, tensor and shape."""

    def __init__(self, folder: Path, device: torch.device, dtype: torch.dtype) -> None:
        try:
            from safetensors import safe_open
        except ImportError as error:
            raise ConfigError(f"{folder}: reading it needs safetensors, which is not installed") from error
        self._open: Callable[..., Any] = safe_open
        self._folder, self._device, self._dtype = folder, device, dtype
        self._files: dict[str, Any] = {}
        index = folder / INDEX_FILE
        self._file_of: dict[str, str] | None = read_config(index)["weight_map"] if index.exists() else None

    def read(self, name: str, *dims: int) -> Tensor:
        """Reads the tensor of that name and those dimensions, onto the device and in the dtype asked for."""
        path = self._folder / (SINGLE_FILE if self._file_of is None else self._file_of.get(name, INDEX_FILE))
        file = self._file(path, name, dims)
        if name not in file.keys():  # noqa: SIM118 - a safetensors file is no mapping
            raise ConfigError(f"{path}: no tensor {name}; want one of shape {list(dims)}")
        tensor = file.get_tensor(name)
        if tuple(tensor.shape) != dims or not tensor.is_floating_point():
            raise ConfigError(
                f"{path}: tensor {name} has shape {list(tensor.shape)} and dtype {tensor.dtype}; want {list(dims)} of "
                "floats"
            )
        return tensor.to(self._device, self._dtype)

    def empty(self, *dims: int) -> Tensor:
        return torch.empty(dims, device=self._device, dtype=self._dtype)

    def _file(self, path: Path, name: str, dims: tuple[int, ...]) -> Any:
        if path.name == INDEX_FILE:
            raise ConfigError(f"{path}: no tensor {name}; want one of shape {list(dims)}")
        if path.name not in self._files:
            if not path.is_file():
                raise ConfigError(f"{path}: no such file; want one that holds tensor {name} of shape {list(dims)}")
            try:
                self._files[path.name] = self._open(path, framework="pt")
            except Exception as error:  # safetensors raises its own class, and OSError
                raise ConfigError(f"{path}: no safetensors file ({error}); tensor {name} should be in it") from error
        return self._files[path.name]


def load_weights(shape: DecoderShape, folder: Path, *, device: torch.device, dtype: torch.dtype) -> ModelWeights:
    """Returns the directory's weights, a layer at a time. Raises ConfigError naming the path and what is wrong with
    it."""
    path = folder / CONFIG_FILE
    check_config(read_config(path), shape, path)
    if not shape.is_dense and not (shape.qk_norm or shape.architecture == "gpt-oss"):
        raise ConfigError(f"{path}: tensors of Mixtral are not read; want those of Qwen3-MoE or gpt-oss for experts")
    files = Checkpoint(folder, device, dtype)
    embedding = files.read("model.embed_tokens.weight", shape.vocab_size, shape.hidden)
    return ModelWeights(
        embedding=embedding,
        layers=tuple(_layer(shape, files, f"model.layers.{index}.") for index in range(shape.num_layers)),
        final_norm=files.read("model.norm.weight", shape.hidden),
        head=embedding if shape.tied_embeddings else files.read("lm_head.weight", shape.vocab_size, shape.hidden),
    )


def _layer(shape: DecoderShape, files: Checkpoint, prefix: str) -> LayerWeights:
    hidden, is_gpt_oss = shape.hidden, shape.architecture == "gpt-oss"
    q_rows, kv_rows = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
    attention = prefix + "self_attn."

    def qkv(part: str, *dims: int) -> Tensor:
        rows = (("q", q_rows), ("k", kv_rows), ("v", kv_rows))
        return torch.cat([files.read(f"{attention}{name}_proj.{part}", count, *dims) for name, count in rows])

    feed_forward = _gpt_oss_experts if is_gpt_oss else _dense_block if shape.is_dense else _qwen3_experts
    return LayerWeights(
        attention_norm=files.read(prefix + "input_layernorm.weight", hidden),
        qkv=qkv("weight", hidden),
        qkv_bias=qkv("bias") if is_gpt_oss or shape.qkv_bias else None,
        out=files.read(attention + "o_proj.weight", hidden, q_rows),
        out_bias=files.read(attention + "o_proj.bias", hidden) if is_gpt_oss else None,
        qk_norm=_qk_norm(shape, files, attention) if shape.qk_norm else None,
        sinks=files.read(attention + "sinks", shape.num_heads) if is_gpt_oss else None,
        ffn_norm=files.read(prefix + "post_attention_layernorm.weight", hidden),
        **feed_forward(shape, files, prefix + "mlp."),
    )


def _qk_norm(shape: DecoderShape, files: Checkpoint, attention: str) -> Tensor:
    query = files.read(attention + "q_norm.weight", shape.head_dim)
    key = files.read(attention + "k_norm.weight", shape.head_dim)
    return torch.cat((query.expand(shape.num_heads, -1), key.expand(shape.num_kv_heads, -1)))


def _qwen3_experts(shape: DecoderShape, files: Checkpoint, mlp: str) -> dict[str, Tensor | None]:
    gate_up = files.empty(shape.num_experts, 2 * shape.intermediate, shape.hidden)
    down = files.empty(shape.num_experts, shape.hidden, shape.intermediate)
    for expert in range(shape.num_experts):
        _swiglu(shape, files, f"{mlp}experts.{expert}.", gate_up[expert], down[expert])
    router = files.read(mlp + "gate.weight", shape.num_experts, shape.hidden)
    return _block(gate_up, down, router=router)


def _dense_block(shape: DecoderShape, files: Checkpoint, mlp: str) -> dict[str, Tensor | None]:
    gate_up = files.empty(1, 2 * shape.intermediate, shape.hidden)
    down = files.empty(1, shape.hidden, shape.intermediate)
    _swiglu(shape, files, mlp, gate_up[0], down[0])
    return _block(gate_up, down)


def _swiglu(shape: DecoderShape, files: Checkpoint, prefix: str, gate_up: Tensor, down: Tensor) -> None:
    width = shape.intermediate
    gate_up[:width] = files.read(prefix + "gate_proj.weight", width, shape.hidden)
    gate_up[width:] = files.read(prefix + "up_proj.weight", width, shape.hidden)
    down[:] = files.read(prefix + "down_proj.weight", shape.hidden, width)


def _gpt_oss_experts(shape: DecoderShape, files: Checkpoint, mlp: str) -> dict[str, Tensor | None]:
    """Stored as [E, in, out] with gate and up interleaved; here [E, out, in] with gates first."""
    experts, hidden, width = shape.num_experts, shape.hidden, shape.intermediate
    stored = mlp + "experts."
    gate_up = files.read(stored + "gate_up_proj", experts, hidden, 2 * width).transpose(1, 2)
    gate_up_bias = files.read(stored + "gate_up_proj_bias", experts, 2 * width)
    return _block(
        torch.cat((gate_up[:, ::2], gate_up[:, 1::2]), 1),
        files.read(stored + "down_proj", experts, width, hidden).transpose(1, 2).contiguous(),
        router=files.read(mlp + "router.weight", experts, hidden),
        router_bias=files.read(mlp + "router.bias", experts),
        gate_up_bias=torch.cat((gate_up_bias[:, ::2], gate_up_bias[:, 1::2]), 1),
        down_bias=files.read(stored + "down_proj_bias", experts, hidden),
    )


def _block(gate_up: Tensor, down: Tensor, **others: Tensor) -> dict[str, Tensor | None]:
    absent = dict.fromkeys(("router", "router_bias", "gate_up_bias", "down_bias"))
    return {**absent, "gate_up": gate_up, "down": down, **others}
