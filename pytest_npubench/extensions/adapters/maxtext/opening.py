"""A MaxEngine from MaxText's own configuration.

    open_maxengine(["base.yml", "model_name=llama3.1-8b", "load_parameters_path=...", "max_target_length=2048"])

Nothing of MaxText is imported before that.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from pytest_npubench.engines.shapes import DecoderShape
from pytest_npubench.errors import ConfigError, DeviceUnavailableError
from pytest_npubench.extensions.adapters.maxtext import MISSING, PACKAGES
from pytest_npubench.extensions.adapters.maxtext.interface import MaxEngine

DTYPES = {"fp32": "float32", "bf16": "bfloat16"}
# pyconfig and maxengine, as they are called since MaxText became a package "maxtext", and before
LAYOUTS = (
    ("maxtext.configs.pyconfig", "maxtext.inference.maxengine.maxengine"),
    ("MaxText.pyconfig", "MaxText.maxengine"),
)


def open_maxengine(arguments: Sequence[str]) -> MaxEngine:
    """Opens a MaxEngine by MaxText's command line: a configuration file, then KEY=VALUE each. Raises
    DeviceUnavailableError without MaxText or something it needs, ConfigError for what it refuses."""
    pyconfig, maxengine = _modules()
    said = " ".join(arguments) or "no arguments"
    try:
        config = pyconfig.initialize(["", *arguments])
    except (ValueError, KeyError, OSError) as error:
        raise ConfigError(f"MaxText refuses {said}: {error}") from error
    except SystemExit as error:  # what MaxText 0.2.5 does where no test runner is imported
        raise ConfigError(f"MaxText refuses {said}; its log above says why") from error
    engine: MaxEngine = maxengine.MaxEngine(config)
    return engine


def model_arguments(shape: DecoderShape, dtype: str) -> list[str]:
    """Returns the arguments of a model of a shape with random weights, as MaxText's files of Llama, Mistral and Qwen3
    have them (configs/models). Raises DeviceUnavailableError without MaxText, ConfigError for a dtype that it lacks."""
    if dtype not in DTYPES:
        raise ConfigError(f"dtype {dtype!r} is not one that MaxText computes in: {', '.join(DTYPES)}")
    settings = {
        "run_name": "npubench",
        "base_emb_dim": shape.hidden,
        "base_num_query_heads": shape.num_heads,
        "base_num_kv_heads": shape.num_kv_heads,
        "base_mlp_dim": shape.intermediate,
        "base_num_decoder_layers": shape.num_layers,
        "head_dim": shape.head_dim,
        "vocab_size": shape.vocab_size,
        "mlp_activations": "['silu','linear']",
        "decoder_block": "qwen3" if shape.qk_norm else "llama2",
        "use_qk_norm": shape.qk_norm,
        "logits_via_embedding": shape.tied_embeddings,
        "normalization_layer_epsilon": shape.rms_eps,
        "rope_max_timescale": int(shape.rope_theta),
        "rope_type": "default" if shape.rope_scaling is None else "llama3.1",
        "enable_dropout": False,
        "dtype": DTYPES[dtype],
        "weight_dtype": DTYPES[dtype],
        "decode_sampling_strategy": "greedy",
        "enable_checkpointing": False,
        "skip_jax_distributed_system": True,
    }
    return [str(_configuration()), *(f"{key}={_text(value)}" for key, value in settings.items())]


def _configuration() -> Path:
    """Returns the file that every configuration of MaxText begins with."""
    for package in PACKAGES:
        spec = find_spec(package)
        for folder in () if spec is None else spec.submodule_search_locations or ():
            return Path(folder) / "configs" / "base.yml"
    raise DeviceUnavailableError(MISSING)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _modules() -> tuple[ModuleType, ModuleType]:
    for names in LAYOUTS:
        try:
            pyconfig, maxengine = (import_module(name) for name in names)
        except ModuleNotFoundError as error:
            if not _is_part(error.name, names):
                raise DeviceUnavailableError(f"MaxText needs {error.name}, which is not installed") from error
        else:
            return pyconfig, maxengine
    raise DeviceUnavailableError(MISSING)


def _is_part(missing: str | None, names: Sequence[str]) -> bool:
    """Is what is missing one of these modules, or a package they lie in?"""
    return missing is not None and any(name == missing or name.startswith(f"{missing}.") for name in names)
