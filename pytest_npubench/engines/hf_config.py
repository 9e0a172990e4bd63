"""Reads Hugging Face's config.json as a decoder's shape (model_directory.py writes one).

Read are Llama, Mistral, Mixtral, Qwen2, Qwen3, Qwen3-MoE and gpt-oss, as transformers 4 and 5 write them; a key that a
file leaves out means what it means to transformers. A shape is read to plan with: what changes sizes or time and no
shape knows (layers without experts between those with, biases, another activation) is refused by key, so that a figure
is never one of another model. A window on every layer is none for contexts within it, and so ends the context
(`stated_context_tokens`). A checkpoint's file must agree in what changes values alone as well (`check_config`).
Families whose layers differ are read by layered_config.py.

Worked example: a file that says `"num_experts": 64` where qwen3-30b-a3b wants 128 is refused with path, key, value and
what was wanted.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pytest_npubench.core.documents import json_value
from pytest_npubench.core.regular_file import SMALL_BYTES, read_text
from pytest_npubench.engines import shapes
from pytest_npubench.engines.config_keys import CONFIG_FILE, language_model, unread
from pytest_npubench.engines.layer_mixers import MOST, MOST_OF_ANY
from pytest_npubench.engines.layered_config import layered_shape
from pytest_npubench.engines.layered_families import with_own_names
from pytest_npubench.engines.shapes import Architecture, DecoderShape, ExpertShape, RopeScaling
from pytest_npubench.engines.weight_bits import weight_bits
from pytest_npubench.errors import ConfigError

Config = Mapping[str, Any]
TORCH_DTYPE = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
MISSING = "missing"
YARN: dict[str, object] = {
    "factor": shapes.YARN_FACTOR,
    "beta_fast": shapes.YARN_BETA_FAST,
    "beta_slow": shapes.YARN_BETA_SLOW,
    "original_max_position_embeddings": shapes.YARN_ORIGINAL_CONTEXT,
    "truncate": False,
}
# what a key means that is not there, to every family that does not say otherwise
DEFAULTS: dict[str, object] = {
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "rope_theta": 10_000.0,
    "rope_type|type": "default",
    "use_sliding_window": False,
    "sliding_window": None,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "mlp_bias": False,
    "mlp_only_layers": [],
    "decoder_sparse_step": 1,
    "swiglu_limit": shapes.SWIGLU_LIMIT,
    "swiglu_alpha": shapes.SWIGLU_ALPHA,
    "norm_topk_prob": False,
}
ROPE_OBJECTS = ("rope_parameters", "rope_scaling")
# scalings of rope that stretch the context by their factor, to vLLM
STRETCHING = ("linear", "dynamic", "yarn")
# a shape's figures and their keys; "a|b": either, versions having renamed it
FIGURES = {
    "vocab_size": "vocab_size",
    "hidden": "hidden_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "num_kv_heads": "num_key_value_heads",
    "head_dim": "head_dim",
}
REALS = {"rms_eps": "rms_norm_eps", "rope_theta": "rope_theta"}
LLAMA3_ROPE = {
    "factor": "factor",
    "low_freq_factor": "low_freq_factor",
    "high_freq_factor": "high_freq_factor",
    "original_context": "original_max_position_embeddings",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFamily:
    """What all models of one class of transformers have in common. `experts` are the keys of their number, `missing`
    what the class takes for a key that a file leaves out (null is no key left out)."""

    model_type: str
    prefix: str
    qk_norm: bool = False
    qkv_bias: bool = False
    architecture: Architecture = "llama"
    experts: str = ""
    width: str = "intermediate_size"
    missing: Mapping[str, object] = field(default_factory=dict)

    @property
    def class_name(self) -> str:
        return f"{self.prefix}ForCausalLM"

    def holds(self, shape: DecoderShape) -> bool:
        """Whether a shape is one of this family, but for its figures."""
        return _traits(self) == (shape.qk_norm, shape.qkv_bias, shape.architecture, not shape.is_dense)


FAMILIES = (
    ModelFamily(model_type="llama", prefix="Llama"),
    ModelFamily(model_type="mistral", prefix="Mistral", missing={"num_key_value_heads": 8, "sliding_window": 4096}),
    ModelFamily(
        model_type="mixtral",
        prefix="Mixtral",
        experts="num_local_experts|num_experts",
        missing={"num_key_value_heads": 8, "rms_norm_eps": 1e-5, "rope_theta": 1e6},
    ),
    ModelFamily(model_type="qwen2", prefix="Qwen2", qkv_bias=True, missing={"num_key_value_heads": 32}),
    ModelFamily(model_type="qwen3", prefix="Qwen3", qk_norm=True, missing={"num_key_value_heads": 32, "head_dim": 128}),
    ModelFamily(
        model_type="qwen3_moe",
        prefix="Qwen3Moe",
        qk_norm=True,
        experts="num_experts|num_local_experts",
        width="moe_intermediate_size",
        missing={"num_key_value_heads": 4},
    ),
    ModelFamily(
        model_type="gpt_oss",
        prefix="GptOss",
        architecture="gpt-oss",
        experts="num_local_experts|num_experts",
        missing={
            "num_key_value_heads": 8,
            "head_dim": 64,
            "sliding_window": 128,
            "attention_bias": True,
            "rms_norm_eps": 1e-5,
            "rope_theta": 150_000.0,
            "rope_type": "yarn",
            **YARN,
        },
    ),
)


def read_config(path: Path) -> dict[str, Any]:
    """Raises ConfigError where the file is missing or holds no JSON object."""
    try:
        content = json_value(read_text(path, SMALL_BYTES))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read as JSON: {error}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: holds a {type(content).__name__}; want an object")
    return content


def named_or_read(model: str) -> DecoderShape:
    """The shape of that name, or read from a folder or .json. Raises as decoder_shape and read_shape."""
    return read_shape(Path(model)) if _is_path(model) else shapes.decoder_shape(model)


def stated_context_tokens(model: str) -> int | None:
    """The longest prompt and answer together that the file of a model states and its shape describes: up to the window
    where every layer has one, stretched as vLLM stretches it where rope is scaled. None for a shape by name, or where
    the file states none. Raises ConfigError as read_config, and for a figure that is none."""
    if not _is_path(model):
        return None
    file = _file(Path(model))
    given, _ = language_model(read_config(file))
    if not _is_run_here(given):
        context = with_own_names(given).get("max_position_embeddings")
        return None if context is None else _whole({"context": context}, "context", file)
    family, config = _completed(given, file)
    limits = []
    if _figure(config, "max_position_embeddings") != MISSING:
        kind = _figure(config, "rope_type|type")
        is_of_original = kind == "yarn" and _figure(config, "original_max_position_embeddings") != MISSING
        key = "original_max_position_embeddings" if is_of_original else "max_position_embeddings"
        factor = _real(config, "factor", file) if kind in STRETCHING else 1.0
        limits.append(int(_whole(config, key, file) * factor))
    if family.architecture != "gpt-oss" and _has_windows(config, family, file):
        limits.append(_whole(config, "sliding_window", file))
    return min(limits, default=None)


def _has_windows(config: Config, family: ModelFamily, path: Path) -> bool:
    """Whether all layers, or with Qwen's models some, look back no further than `sliding_window`."""
    is_chosen = not family.model_type.startswith("qwen") or _truth(config, "use_sliding_window", path)
    return is_chosen and _figure(config, "sliding_window") is not None


def _is_path(model: str) -> bool:
    return model.endswith(".json") or "/" in model or os.sep in model


def _file(path: Path) -> Path:
    return path / CONFIG_FILE if path.is_dir() else path


def read_shape(path: Path) -> DecoderShape:
    """The shape of a model's folder or of its config.json, named after the folder; of another .json, after the file.

    Raises ConfigError for a file that is none, and for a model that no shape describes, by the key that says so.
    """
    file = _file(path)
    name = file.resolve().parent.name if file.name == CONFIG_FILE else file.stem
    config, doubts = language_model(read_config(file))
    shape = shape_of(config, name, file) if _is_run_here(config) else layered_shape(config, name, file)
    return replace(shape, doubts=(*shape.doubts, *doubts))


def shape_of(config: Config, name: str, path: Path) -> DecoderShape:
    """The shape that a config.json describes, under that name, with the doubts of what of it is not counted. Raises
    ConfigError naming path, key, value and the one wanted."""
    family, given = _family(config, path), config
    _check_class(given, family, path)
    bits, doubts = weight_bits(given, path)
    family, config = _completed(config, path)
    figures: dict[str, Any] = {field: _whole(config, key, path) for field, key in FIGURES.items()}
    if figures["num_heads"] % figures["num_kv_heads"]:
        wanted = f"a divisor of num_attention_heads, {figures['num_heads']}"
        raise _refusal(path, "num_key_value_heads", figures["num_kv_heads"], wanted)
    experts = None
    if family.experts:
        chosen = "num_experts_per_tok|experts_per_token"
        experts = ExpertShape(
            num_experts=_whole(config, family.experts, path), experts_per_token=_whole(config, chosen, path)
        )
        if experts.experts_per_token > experts.num_experts:
            wanted = f"{experts.num_experts} at most, the number of experts"
            raise _refusal(path, chosen, experts.experts_per_token, wanted)
    shape = DecoderShape(
        name=name,
        source=f"{CONFIG_FILE} of {name}",
        **figures,
        intermediate=_whole(config, family.width, path),
        rms_eps=_real(config, REALS["rms_eps"], path),
        rope_theta=_real(config, REALS["rope_theta"], path),
        tied_embeddings=_truth(config, "tie_word_embeddings", path),
        qk_norm=family.qk_norm,
        qkv_bias=family.qkv_bias,
        architecture=family.architecture,
        rope_scaling=_rope_scaling(config, family, path),
        sliding_window=_whole(config, "sliding_window", path) if family.architecture == "gpt-oss" else None,
        experts=experts,
        weight_bits=bits,
        doubts=(*doubts, *_of_windows(config, family, path), *_unread(given, family)),
    )
    _check_figures(config, _sized(family, shape), name, path)
    return shape


def _check_class(config: Config, family: ModelFamily, path: Path) -> None:
    """Checks that what is run is a language model of the family: a reward model or a drafting head has other layers."""
    classes = config.get("architectures") or [family.class_name]
    traits = _traits(family)
    allowed = [each.class_name for each in FAMILIES if _traits(each) == traits]
    if not isinstance(classes, list) or len(classes) != 1 or classes[0] not in allowed:
        raise _refusal(path, "architectures", classes, f"[{family.class_name!r}]: other classes have other layers")


def _of_windows(config: Config, family: ModelFamily, path: Path) -> tuple[str, ...]:
    """What is said of windows that are shorter than the context: requests are planned that no window cuts."""
    if family.architecture == "gpt-oss" or not _has_windows(config, family, path):
        return ()
    window, context = _figure(config, "sliding_window"), _figure(config, "max_position_embeddings")
    if not isinstance(window, int) or (isinstance(context, int) and window >= context):
        return ()
    return (f"windows of {window} tokens end the context that is planned, and longer requests are left out",)


def _traits(family: ModelFamily) -> tuple[object, ...]:
    """What sizes of a layer depend on, beside its figures."""
    return family.qk_norm, family.qkv_bias, family.architecture, bool(family.experts)


def _unread(config: Config, family: ModelFamily) -> tuple[str, ...]:
    """What `unread` says of the keys that are not those of the family's figures."""
    keys: tuple[str, ...] = (*FIGURES.values(), *REALS.values(), *DEFAULTS, *LLAMA3_ROPE.values(), *family.missing)
    if family.width != "intermediate_size":
        keys = (*keys, "intermediate_size")  # of layers without experts, which are refused
    return unread(config, {name for key in (*keys, family.experts, family.width) for name in key.split("|")})


def _check_figures(config: Config, wanted: Mapping[str, object], name: str, path: Path) -> None:
    """A key that is left out and has no default stands for what the shape has."""
    for key, value in wanted.items():
        figure = _figure(config, key)
        if figure not in (value, MISSING):
            raise ConfigError(f"{path}: {_shown(key)} is {figure!r}; {name} wants {value!r}")


def check_config(config: Config, shape: DecoderShape, path: Path) -> None:
    """Checks that a checkpoint is of the shape, unquantised. Raises ConfigError naming the path, the first key that
    disagrees, its value and the wanted value."""
    if "quantization_config" in config:
        method = dict(config["quantization_config"] or {}).get("quant_method", "some method")
        raise ConfigError(f"{path}: the tensors are quantised ({method}); want unquantised ones")
    classes = [family.class_name for family in FAMILIES if family.holds(shape)]
    if config.get("architectures") not in [[name] for name in classes]:
        wanted = " or ".join(repr([name]) for name in classes)
        raise ConfigError(
            f"{path}: architectures is {config.get('architectures', MISSING)!r}; {shape.name} wants {wanted}"
        )
    described = shape_of(config, shape.name, path)
    family, config = _completed(config, path)
    _check_rope_type(config, family, path)
    _check_figures(config, _valued(family), shape.name, path)
    keys = {**FIGURES, **REALS, "intermediate": family.width, "tied_embeddings": "tie_word_embeddings"}
    keys |= {"num_experts": family.experts, "experts_per_token": "num_experts_per_tok"} if family.experts else {}
    for name, key in {**keys, "rope_scaling": "rope_scaling", "sliding_window": "sliding_window"}.items():
        read, wanted = getattr(described, name), getattr(shape, name)
        if read != wanted:
            raise ConfigError(f"{path}: {_shown(key)} is {read!r}; {shape.name} wants {wanted!r}")


def _is_run_here(config: Config) -> bool:
    return any(config.get("model_type") == family.model_type for family in FAMILIES)


def _family(config: Config, path: Path) -> ModelFamily:
    by_type = [family for family in FAMILIES if config.get("model_type") == family.model_type]
    by_class = [family for family in FAMILIES if config.get("architectures") == [family.class_name]]
    if by_type or by_class:
        return (by_type or by_class)[0]
    types = ", ".join(family.model_type for family in FAMILIES)
    raise ConfigError(f"{path}: model_type is {config.get('model_type', MISSING)!r}; want one of {types}")


def _completed(config: Config, path: Path) -> tuple[ModelFamily, Config]:
    """The family, and the file with what its class takes for what is left out."""
    family = _family(config, path)
    places = [config, *(table for name in ROPE_OBJECTS if isinstance(table := config.get(name), Mapping))]
    left_out = {key: value for key, value in family.missing.items() if not any(key in table for table in places)}
    return family, {**left_out, **config}


def _sized(family: ModelFamily, shape: DecoderShape) -> dict[str, object]:
    """Figures that every shape of the family has and that sizes or time may depend on, by key."""
    always: dict[str, object] = {"hidden_act": "silu"}
    if family.architecture == "gpt-oss":
        kinds = ("sliding_attention", "full_attention")
        layer_types = [kinds[layer % 2] for layer in range(shape.num_layers)]
        return {**always, "attention_bias": True, "layer_types": layer_types}
    if not family.model_type.startswith("qwen"):
        return {**always, "attention_bias": False, "mlp_bias": False}
    always |= {} if family.qkv_bias else {"attention_bias": False}
    return {**always, "mlp_only_layers": [], "decoder_sparse_step": 1} if family.experts else always


def _valued(family: ModelFamily) -> dict[str, object]:
    """Figures that every shape of the family has and that only what it computes depends on, by key; windows among
    them, since none is part of a shape that every layer has."""
    if family.architecture == "gpt-oss":
        return {"swiglu_limit": shapes.SWIGLU_LIMIT, "swiglu_alpha": shapes.SWIGLU_ALPHA, **YARN}
    if not family.model_type.startswith("qwen"):
        return {"sliding_window": None}
    return {"use_sliding_window": False, **({"norm_topk_prob": True} if family.experts else {})}


def _check_rope_type(config: Config, family: ModelFamily, path: Path) -> None:
    """Checks that positions are rotated in a way that a shape describes."""
    kind = _figure(config, "rope_type|type")
    kinds = ("yarn",) if family.architecture == "gpt-oss" else ("default", "llama3")
    if kind not in kinds:
        raise _refusal(path, "rope_type", kind, " or ".join(map(repr, kinds)))


def _rope_scaling(config: Config, family: ModelFamily, path: Path) -> RopeScaling | None:
    """The scaling of a kind that a shape describes; None for other kinds, which take the same time."""
    if family.architecture == "gpt-oss" or _figure(config, "rope_type|type") != "llama3":
        return None
    figures: dict[str, Any] = {field: _real(config, key, path) for field, key in LLAMA3_ROPE.items()}
    return RopeScaling(**figures | {"original_context": int(figures["original_context"])})


def _figure(config: Config, names: str) -> Any:
    """A key's value, wherever in the file it stands: rope's figures moved into an object of their own, twice."""
    for name in names.split("|"):
        for table in (config, *map(config.get, ROPE_OBJECTS)):
            if isinstance(table, Mapping) and table.get(name) is not None:
                return table[name]
    if names == "head_dim":
        hidden, heads = config.get("hidden_size"), config.get("num_attention_heads")
        return hidden // heads if isinstance(hidden, int) and isinstance(heads, int) and heads > 0 else MISSING
    return _figure(config, "num_attention_heads") if names == "num_key_value_heads" else DEFAULTS.get(names, MISSING)


def _whole(config: Config, key: str, path: Path) -> int:
    figure, most = _figure(config, key), MOST.get(key, MOST_OF_ANY)
    if not isinstance(figure, int) or isinstance(figure, bool) or not 1 <= figure <= most:
        raise _refusal(path, key, figure, f"a whole number from 1 to {most}")
    return figure


def _real(config: Config, key: str, path: Path) -> float:
    figure = _figure(config, key)
    if not isinstance(figure, int | float) or isinstance(figure, bool) or not 0 < figure < 1e12:
        raise _refusal(path, key, figure, "a number above 0")
    return float(figure)


def _truth(config: Config, key: str, path: Path) -> bool:
    figure = _figure(config, key)
    if not isinstance(figure, bool):
        raise _refusal(path, key, figure, "true or false")
    return figure


def _refusal(path: Path, key: str, figure: object, wanted: str) -> ConfigError:
    return ConfigError(f"{path}: {_shown(key)} is {figure!r}; want {wanted}")


def _shown(key: str) -> str:
    return key.split("|")[0]
