"""How many bits a checkpoint's weights have, as its config.json says: quantization_config, MLX's quantization, or what
is beside it: ModelOpt's hf_quant_config.json, AutoGPTQ's quantize_config.json, AutoAWQ's quant_config.json.

Scales and zero points count: groups of 128 weights of 4 bits with a scale of 16 bits and a zero point of 4 take 4 +
20 / 128 = 4.16 bits a weight. Embeddings, norms and routers stay as they are, and the output's projection but with MLX.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pytest_npubench.errors import ConfigError

Config = Mapping[str, Any]
BESIDE = "hf_quant_config.json"
OLDER = ("quantize_config.json", "quant_config.json")
"""Other programs have files of these names as well, without `bits` or `w_bit`."""
LISTS = ("ignore", "ignored_layers", "modules_to_not_convert", "exclude_modules", "llm_int8_skip_modules")
"""Keys of the names of modules that stay as they are."""
ALWAYS_KEPT = re.compile(
    r"lm_head|embed|norm|gate(?!_proj|_up)|router|vision|visual|audio|multi_modal|mtp|conv1d|score"
)
OF_ATTENTION = re.compile(r"attn|attention")
OF_FORWARD = re.compile(r"mlp|expert|ffn|feed_forward")
OF_LAYER = re.compile(r"layers\.\d")
SCALE_BITS = 16
_READ = """quant_method quant_algo kv_cache_scheme kv_cache_quant_algo quantization quantized_layers config_groups
    weight_block_size bits w_bit nbits group_size q_group_size load_in_4bit load_in_8bit _load_in_4bit _load_in_8bit
    bnb_4bit_use_double_quant weights quant_type mode data_type act_bits act_data_type extra_config"""
# how a checkpoint was made and is computed with: as many bits whatever they say
OF_VALUES = """activation_scheme activations activation_scale_ub fmt scale_fmt format version backend producer
    quantization_status global_compression_ratio zero_point has_zero_point pre_quant_scale desc_act sym damp_percent
    damp_auto_increment true_sequential static_groups model_name_or_path model_file_base_name checkpoint_format meta
    pack_dtype dataset use_exllama exllama_config max_input_length batch_size do_fuse fuse_max_seq_len iters nsamples
    seqlen lr minmax_lr enable_quanted_input enable_minmax_tuning low_gpu_mem_usage packing_format autoround_version
    bnb_4bit_compute_dtype bnb_4bit_quant_storage bnb_4bit_quant_type llm_int8_enable_fp32_cpu_offload
    llm_int8_has_fp16_weight llm_int8_threshold include_input_output_embeddings smoothquant_val clamp_val
    use_meta_recipe use_cuda_fp16 model_seqlen block_name_to_quantize module_name_preceding_first_block
    disable_exllama act_group_size act_sym act_dynamic model_free provider to_quant_block_names"""
KNOWN = frozenset(f"{_READ} {OF_VALUES}".split()).union(LISTS)
WITH_KV_DTYPE = ("compressed-tensors", "compressed_tensors", "modelopt", "modelopt_fp4")
"""Methods whose scheme of keys and values vLLM serves with, unless it is told otherwise (0.32: how its attention layer
resolves a KV dtype of `auto`)."""
FP8_ALGORITHMS = ("FP8", "FP8_PER_TENSOR", "FP8_BLOCK_SCALES", "FP8_PB_WO", "FP8_PB_REAL", "FP8_PER_CHANNEL_PER_TOKEN")


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightBits:
    """bits: of a quantised weight, with its part of scales and zero points. compute: the dtype of its products, where
    that is not the model's. attention_bits: of attention's weights, and of what stands in its place, where they have
    others. kv_dtype: of keys and values, where an engine takes them so by itself. Attention and the output's projection
    stay as they are unless said otherwise."""

    method: str
    bits: float
    attention_bits: float | None = None
    compute: str | None = None
    is_attention_quantised: bool = True
    is_head_quantised: bool = False
    kv_dtype: str | None = None


def weight_bits(config: Config, file: Path) -> tuple[WeightBits | None, tuple[str, ...]]:
    """What a config.json says, None where its weights are not quantised, and what of that is doubtful, in words.

    Raises ConfigError for a method, or figures of it, whose bits are not known.
    """
    table, key = _table(config, file)
    if table is None:
        return None, ()
    if not isinstance(table, Mapping):
        raise ConfigError(f"{file}: {key} is {table!r}; want an object")
    if isinstance(inner := table.get("quantization"), Mapping):
        table = {**table, **inner}
    method = str(table.get("quant_method") or ("modelopt" if "quant_algo" in table else "mlx")).lower()
    method = method.replace("_marlin", "").replace("intel/", "")
    read = READERS.get(method)
    if read is None:
        raise ConfigError(f"{file}: {key}.quant_method is {method!r}; want one of {', '.join(READERS)}")
    try:
        bits = read(table)
        for figure in (bits.bits, bits.attention_bits or 1):
            if not 0 < figure <= 32:
                raise ValueError(f"{figure:.4g} bits")
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise ConfigError(f"{file}: {key} of method {method} says no bits a weight ({error!r})") from None
    lists = {each: table.get(each) or [] for each in LISTS}
    if wrong := [each for each, given in lists.items() if not isinstance(given, list)]:
        raise ConfigError(f"{file}: {key}.{wrong[0]} is {lists[wrong[0]]!r}; want a list of modules")
    extra = table.get("extra_config") or {}
    if not isinstance(extra, Mapping):
        raise ConfigError(f"{file}: {key}.extra_config is {extra!r}; want an object")
    modules = {name: each for name, each in {**table, **extra}.items() if isinstance(each, Mapping) and "bits" in each}
    unquantised = [name for name, each in modules.items() if each["bits"] in (16, 32)]
    names = [str(name) for given in (*lists.values(), unquantised) for name in given]
    names = [name for name in names if not ALWAYS_KEPT.search(name)]
    is_attention_kept = method == "mxfp4" or any(OF_ATTENTION.search(name) and not _of_layer(name) for name in names)
    others = [name for name in names if _of_layer(name) or not OF_ATTENTION.search(name)]
    others += [name for name, value in table.items() if value is False and ("." in name or "head" in name)]  # MLX
    doubts = (
        [f"{key}: {len(others)} modules that stay unquantised are counted as quantised, {others[0]} among them"]
        if others
        else []
    )
    kept = table.get("kv_cache_scheme") or table.get("kv_cache_quant_algo")
    kv_dtype = "fp8" if method in WITH_KV_DTYPE and _is_fp8(kept) else None
    if kv_dtype:
        doubts.append(f"{key} has scales for keys and values in fp8: they are so, unless --kv-dtype says otherwise")
    elif kept:
        shown = kept.get("num_bits", "other") if isinstance(kept, Mapping) else kept
        doubts.append(f"{key} has scales for keys and values of {shown} bits; they are so with --kv-dtype alone")
    if of_modules := [name for name in modules if name not in unquantised]:
        doubts.append(
            f"{key}: {len(of_modules)} modules with other bits are counted as all others, {of_modules[0]} among them"
        )
    if method in ("compressed-tensors", "compressed_tensors"):
        doubts += _other_groups(table, key)
    given = {name for name, value in table.items() if value not in (None, False, 0, "", [], {})}
    if unread := sorted(given - KNOWN - modules.keys()):
        doubts.append(f"{key}: {', '.join(unread)}: not read, whatever that changes")
    shown_bits = f"{bits.bits:.4g} bits a weight ({method})"
    said = f"the config's {shown_bits} are taken, but for embeddings, norms and what it leaves as it is"
    is_quantised = bits.is_attention_quantised and not is_attention_kept
    return replace(bits, method=method, is_attention_quantised=is_quantised, kv_dtype=kv_dtype), (said, *doubts)


def _is_fp8(scheme: object) -> bool:
    if isinstance(scheme, Mapping):
        return (scheme.get("num_bits"), scheme.get("type")) == (8, "float") and not scheme.get("dynamic")
    return str(scheme).lower() == "fp8"


def _of_layer(name: str) -> bool:
    return OF_LAYER.search(name) is not None


def _table(config: Config, file: Path) -> tuple[Any, str]:
    """Returns the object that says it, and its key."""
    from pytest_npubench.core.documents import json_value
    from pytest_npubench.core.regular_file import SMALL_BYTES, read_text

    for key in ("quantization_config", "compression_config", "quantization"):
        if config.get(key):
            return config[key], key
    for beside in filter(Path.is_file, map(file.with_name, (BESIDE, *OLDER))):
        try:
            whole = json_value(read_text(beside, SMALL_BYTES))
            if beside.name == BESIDE:
                others = {name: value for name, value in whole.items() if name not in ("producer", "quantization")}
                return {**others, **whole["quantization"]}, BESIDE
            if "bits" in whole or "w_bit" in whole:
                return {"quant_method": "awq" if "w_bit" in whole else "gptq", **whole}, beside.name
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise ConfigError(f"{beside}: cannot be read: {error}") from error
    return None, ""


def _grouped(table: Config) -> WeightBits:
    """Integers in groups, each with a scale and a zero point: AWQ, GPTQ, HQQ; or AutoRound's MXFP4 and NVFP4, with a
    scale of 8 bits."""
    bits = _bits(table, "bits", "w_bit", "nbits")
    group = next((table[key] for key in ("group_size", "q_group_size") if table.get(key)), -1)
    each = 8 if "fp" in str(table.get("data_type")) else SCALE_BITS + bits
    of_inputs = "fp8" if "fp" in str(table.get("act_data_type")) else "int8"
    compute = of_inputs if (table.get("act_bits") or 16) <= 8 else None
    return WeightBits(method="", bits=bits + (each / group if group > 0 else 0), compute=compute)


def _bits(table: Config, *keys: str) -> int:
    bits = next(table[key] for key in keys if table.get(key) is not None) if any(map(table.get, keys)) else None
    if not isinstance(bits, int) or isinstance(bits, bool) or not 1 <= bits <= 16:
        raise ValueError(f"{keys[0]} is {bits!r}")
    return bits


def _fp8(table: Config) -> WeightBits:
    block: list[int] = table.get("weight_block_size") or []
    scale = 32 / (block[0] * block[1]) if len(block) == 2 else 0.0
    return WeightBits(method="", bits=8 + scale, compute="fp8")


def _compressed(table: Config) -> WeightBits:
    """Returns the widest of its groups of modules."""
    groups = [group for group in table["config_groups"].values() if group.get("weights")]
    return max((_of_group(group) for group in groups), key=lambda each: each.bits)


def _other_groups(table: Config, key: str) -> list[str]:
    """What is doubtful of groups that are not of all linear layers: these are counted as the widest group."""
    groups = [group for group in table["config_groups"].values() if group.get("weights")]
    several = {_of_group(group).bits for group in groups}
    targets = [str(name) for group in groups for name in group.get("targets") or () if name != "Linear"]
    words = [f"groups of {', '.join(f'{bits:.4g}' for bits in sorted(several))} bits"] if len(several) > 1 else []
    words += [f"groups of {', '.join(targets[:3])}"] if targets else []
    return [f"{key} has {' and '.join(words)}: all layers are counted with the most bits"] if words else []


def _of_group(group: Config) -> WeightBits:
    weights, inputs = group["weights"], group.get("input_activations") or {}
    bits, size = _bits(weights, "num_bits"), weights.get("group_size") or 0
    scale = 8 if weights.get("type") == "float" and bits == 4 else SCALE_BITS  # FP4's scales are of 8 bits
    compute = ("fp8" if inputs.get("type") == "float" else "int8") if inputs.get("num_bits") in (4, 8) else None
    if bits == 8 and weights.get("type") == "float" and "input_activations" not in group:
        compute = "fp8"
    return WeightBits(method="", bits=bits + (scale / size if size > 0 else 0), compute=compute)


def _bitsandbytes(table: Config) -> WeightBits:
    """Blocks of 64 with a scale of 32 bits, or of 8 where the scales are quantised again, in blocks of 256."""
    if table.get("load_in_4bit") or table.get("_load_in_4bit"):
        is_double = table.get("bnb_4bit_use_double_quant")
        return WeightBits(method="", bits=4 + (8 / 64 + 32 / (64 * 256) if is_double else 32 / 64))
    if table.get("load_in_8bit") or table.get("_load_in_8bit"):
        return WeightBits(method="", bits=8, compute="int8")
    raise ValueError("neither load_in_4bit nor load_in_8bit")


def _modelopt(table: Config) -> WeightBits:
    algorithm = str((table.get("quantization") or table).get("quant_algo") or table.get("quant_algo")).upper()
    if algorithm == "MIXED_PRECISION" and table.get("quantized_layers"):
        return _mixed(table["quantized_layers"])
    if algorithm in FP8_ALGORITHMS:
        return WeightBits(method="", bits=8, compute="fp8")
    if algorithm == "MXFP8":
        return WeightBits(method="", bits=8 + 8 / 32, compute="fp8")
    if algorithm in ("W4A8_MXFP4_FP8", "W4A8_MXFP4_MXFP8", "W4A16_MXFP4"):
        return WeightBits(method="", bits=4 + 8 / 32, compute=None if "A16" in algorithm else "fp8")
    if algorithm in ("NVFP4", "NVFP4_AWQ", "W4A4_NVFP4", "W4A16_NVFP4", "W4A8_NVFP4_FP8"):
        size = table.get("group_size") or 16
        return WeightBits(method="", bits=4 + 8 / size, compute=None if "A16" in algorithm else "fp8")
    if algorithm == "INT8_SQ" or algorithm.startswith("W8A8"):
        return WeightBits(method="", bits=8, compute="int8")
    bits = 8 if algorithm.startswith(("W8A16", "INT8")) else 4
    if algorithm in ("W4A16", "W8A16", "INT8_WO"):
        return WeightBits(method="", bits=bits)
    if algorithm in ("W4A16_AWQ", "W4A8_AWQ", "INT4_AWQ", "W4A16_GPTQ", "W8A16_GPTQ"):
        return WeightBits(method="", bits=bits + SCALE_BITS / (table.get("group_size") or 128))
    raise ValueError(f"quant_algo is {algorithm}")


def _mixed(layers: Config) -> WeightBits:
    """The widest of the modules of feed-forward parts, and of those of attention. The output's projection counts as it
    is without: the embeddings, which are as large, are not quantised."""
    read = {name: _modelopt(each) for name, each in layers.items()}
    forward, attention = (
        [bits for name, bits in read.items() if _of_layer(name) and bool(OF_FORWARD.search(name)) == is_forward]
        for is_forward in (True, False)
    )
    return replace(
        max(forward, key=lambda each: each.bits),
        attention_bits=max((each.bits for each in attention), default=None),
        is_attention_quantised=bool(attention),
    )


def _named(table: Config) -> WeightBits:
    """Methods that name the type: quanto's weights, torchao's quant_type."""
    said = json.dumps(table.get("weights") or table["quant_type"]).lower()
    for words, bits, compute in (("int4", 4, None), ("float8", 8, "fp8"), ("int8", 8, None)):  # activations have more
        if words in said:
            return WeightBits(method="", bits=bits, compute=compute)
    raise ValueError(said[:80])


def _mlx(table: Config) -> WeightBits:
    """Returns a scale and a bias of 16 bits for each group; or MXFP4. The tables of the vocabulary are quantised
    too."""
    bits, size = _bits(table, "bits"), table.get("group_size") or 64
    each = 8 if table.get("mode") in ("mxfp4", "mxfp8", "nvfp4") else 2 * SCALE_BITS
    return WeightBits(method="", bits=bits + each / size, is_head_quantised=True)


READERS: Mapping[str, Callable[[Config], WeightBits]] = {
    "fp8": _fp8,
    "fbgemm_fp8": _fp8,
    "finegrained_fp8": _fp8,
    "compressed-tensors": _compressed,
    "compressed_tensors": _compressed,
    "awq": _grouped,
    "gptq": _grouped,
    "auto-round": _grouped,
    "hqq": _grouped,
    "bitsandbytes": _bitsandbytes,
    "mxfp4": lambda _: WeightBits(method="", bits=4 + 8 / 32),
    "modelopt": _modelopt,
    "modelopt_fp4": _modelopt,
    "quanto": _named,
    "torchao": _named,
    "eetq": lambda _: WeightBits(method="", bits=8),
    "mlx": _mlx,
}
