"""A model of NxD Inference, compiled for its buckets and loaded, and the runtime of the cores that it loads on.

    open_model("neuronx_distributed_inference.models.llama.modeling_llama:NeuronLlamaForCausalLM", Path("llama"),
               compiled=Path("llama-neuron"), batch_size=4, seq_len=1024, enable_bucketing=True, tp_degree=2)

Nothing of NxD Inference is imported before that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from pytest_npubench.backends.protocol import Backend, Device, Stack
from pytest_npubench.core.clock import perf_counter
from pytest_npubench.core.entry_points import installed_version
from pytest_npubench.core.measurement import CacheState, CompileRecord
from pytest_npubench.engines.shapes import DecoderShape
from pytest_npubench.engines.unopened_devices import UnopenedDevices, with_software
from pytest_npubench.errors import ConfigError, DeviceUnavailableError
from pytest_npubench.extensions.adapters.nxd import PACKAGE, why_missing
from pytest_npubench.extensions.adapters.nxd.interface import NeuronModel

RUNTIME = ("neuronx-distributed-inference", "neuronx-distributed", "torch-neuronx", "libneuronxla")
COMPILER = "neuronx-cc"
SETTINGS = ("NEURON_CC_FLAGS", "NEURON_LOGICAL_NC_CONFIG", "NEURON_RT_EXEC_TIMEOUT", "XLA_FLAGS")
"""Of the environment: what changes what is compiled, and how it runs."""


class NeuronRuntime(UnopenedDevices):
    """NeuronCores for NxD Inference, which opens them itself when a model is loaded."""

    def __init__(self, backend: Backend, devices: Sequence[Device]) -> None:
        super().__init__(backend, devices, "NxD Inference")

    def stack(self) -> Stack:
        parts = [f"{name} {version}" for name in RUNTIME if (version := installed_version(name))]
        return with_software(super().stack(), ", ".join(parts) or RUNTIME[0], _compiler(), SETTINGS)


def _compiler() -> str | None:
    version = installed_version(COMPILER)
    return None if version is None else f"{COMPILER} {version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedModel:
    """A loaded model, and one record of the call that compiled all its buckets.

    It counts as cold, as NxD Inference does not tell what the Neuron compiler's own cache held.
    """

    model: NeuronModel
    compiles: tuple[CompileRecord, ...]


def open_model(class_path: str, directory: Path, *, compiled: Path, **settings: Any) -> OpenedModel:
    """`class_path` is MODULE:CLASS, `directory` a Hugging Face checkpoint, `compiled` the folder the compiled one goes
    to, `settings` NeuronConfig's.

    Raises DeviceUnavailableError without NxD Inference, ConfigError for a class that is none, a checkpoint that is not
    there, and settings that are refused.
    """
    adapter = _import(f"{PACKAGE}.utils.hf_adapter")
    module, _, name = class_path.partition(":")
    model_class = getattr(_import(module, is_chosen=True), name, None) if module and name else None
    if model_class is None:
        raise ConfigError(f"no model {class_path!r}; want MODULE:CLASS, as in {PACKAGE}.models")
    if not (directory / "config.json").is_file():
        raise ConfigError(f"{directory}: no config.json in it; want a Hugging Face checkpoint")
    try:
        config_class = model_class.get_config_cls()
        neuron_config = config_class.get_neuron_config_cls()(**settings)
        config = config_class(neuron_config, load_config=adapter.load_pretrained_config(str(directory)))
    except (AssertionError, TypeError, ValueError) as error:
        raise ConfigError(f"NxD Inference refuses the settings of {name}: {error}") from error
    model = model_class(str(directory), config)
    started_s = perf_counter()
    model.compile(str(compiled))
    record = CompileRecord(name=name, compile_s=perf_counter() - started_s, cache=CacheState.COLD)
    model.load(str(compiled))
    return OpenedModel(model=model, compiles=(record,))


def class_path(shape: DecoderShape) -> str:
    """Returns the model of NxD Inference that runs directories of a shape: Qwen3's where each head has a norm."""
    family, name = ("qwen3", "Qwen3") if shape.qk_norm else ("llama", "Llama")
    return f"{PACKAGE}.models.{family}.modeling_{family}:Neuron{name}ForCausalLM"


def _import(name: str, *, is_chosen: bool = False) -> Any:
    """`is_chosen`: the user named this module, so that one which is not there is not a missing package."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if is_chosen and f"{name}.".startswith(f"{error.name}."):
            raise ConfigError(f"no module {name!r}; want MODULE:CLASS, as in {PACKAGE}.models") from error
        raise DeviceUnavailableError(why_missing(str(error.name))) from error
