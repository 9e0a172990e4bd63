"""The weights of a model directory that we wrote, as the host makes them again (probe.HostWeights)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from pytest_npubench.engines.model_directory import FORMAT
from pytest_npubench.engines.probe import rounded
from pytest_npubench.engines.random_tensors import EMBEDDING, FINAL_NORM, RandomTensors
from pytest_npubench.engines.safetensors_file import Floats
from pytest_npubench.engines.shapes import DecoderShape

HEAD = "lm_head.weight"
MATRICES = {
    "self_attn.q_proj": "wq",
    "self_attn.k_proj": "wk",
    "self_attn.v_proj": "wv",
    "self_attn.o_proj": "wo",
    "mlp.gate": "router",
    "mlp.gate_proj": "w_gate",
    "mlp.up_proj": "w_up",
    "mlp.down_proj": "w_down",
}
NORMS = {
    "input_layernorm": "attention_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_norm": "q_norm",
    "self_attn.k_norm": "k_norm",
}


class WrittenWeights:
    """What model_directory.write_model_directory writes of a shape in a dtype."""

    recipe = f"written {FORMAT}"

    def __init__(self, shape: DecoderShape, dtype: str) -> None:
        self._tensors, self._dtype = RandomTensors(shape=shape), dtype
        self._dims = self._tensors.shapes()

    def layer(self, index: int) -> Mapping[str, Floats]:
        prefix = f"model.layers.{index}."
        layer: dict[str, Floats] = {}
        experts: dict[str, list[Floats]] = {}
        for name in filter(lambda name: name.startswith(prefix), self._dims):
            part = name.removeprefix(prefix).removesuffix(".weight")
            if part in NORMS:
                layer[NORMS[part]] = self._made(name)
            elif ".experts." in part:
                experts.setdefault(MATRICES[f"mlp.{part.rpartition('.')[2]}"], []).append(self._made(name).T)
            else:
                layer[MATRICES[part]] = self._made(name).T
        return layer | {name: np.stack(matrices) for name, matrices in experts.items()}

    def rows(self, table: str, rows: npt.ArrayLike) -> Floats:
        values: Floats = self._made(EMBEDDING if table == "embedding" else HEAD)[np.asarray(rows)]
        return values

    def final_norm(self) -> Floats:
        return self._made(FINAL_NORM)

    def _made(self, name: str) -> Floats:
        return rounded(self._tensors.make(name, self._dims[name]), self._dtype)
