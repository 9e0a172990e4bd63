"""An ONNX file under construction: nodes, inputs, outputs, and weights that lie inside it or stream beside it.

A protobuf message ends at 2 GiB, and making one takes several times its size in memory. Larger weights go one by one
into a single .data file beside the graph, the folder form that AI Hub's client takes (one .onnx, one .data).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from pytest_npubench.extensions.compilers.hub.weights import Array

MAX_INSIDE_BYTES = 2**28
MODEL_FILE = "model.onnx"
OPSET = 17
IR_VERSION = 8
TENSOR_TYPES: dict[str, int] = {
    "fp32": TensorProto.FLOAT,
    "fp16": TensorProto.FLOAT16,
    "int32": TensorProto.INT32,
    "uint8": TensorProto.UINT8,
}


class OnnxFile:
    """Collects a graph. Constants of equal content are stored once; every node has one output and a name of its own."""

    def __init__(self, name: str, folder: Path, *, weights_beside: bool) -> None:
        self._name = name
        self._folder = folder
        self._nodes: list[Any] = []
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []
        self._initializers: dict[str, Any] = {}
        self._constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._data = (folder / "model.data") if weights_beside else None
        self._offset = 0
        folder.mkdir(parents=True, exist_ok=True)
        if self._data is not None:
            self._data.unlink(missing_ok=True)  # weights are appended: what a killed run left there would shift them

    def input(self, name: str, dtype: str, dims: Sequence[int]) -> str:
        self._inputs.append(helper.make_tensor_value_info(name, TENSOR_TYPES[dtype], list(dims)))
        return name

    def output(self, value: str, name: str, dtype: str, dims: Sequence[int]) -> None:
        """Give a value to the outside under a name of its own."""
        self._nodes.append(helper.make_node("Identity", [value], [name], name=f"out_{name}"))
        self._outputs.append(helper.make_tensor_value_info(name, TENSOR_TYPES[dtype], list(dims)))

    def node(self, op: str, *inputs: str, **attributes: Any) -> str:
        """Add a node; returns the name of its output."""
        output = f"{op}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(op, list(inputs), [output], name=output, **attributes))
        return output

    def constant(self, value: Array) -> str:
        """Returns a small constant that the graph needs beside its weights."""
        key = (value.dtype.str, value.shape, value.tobytes())
        if key not in self._constants:
            name = f"const_{len(self._constants)}"
            self._constants[key] = name
            self._initializers[name] = numpy_helper.from_array(np.ascontiguousarray(value), name)
        return self._constants[key]

    def has_weight(self, name: str) -> bool:
        return name in self._initializers

    def weight(self, name: str, value: Array) -> None:
        """Store a weight, inside the file or at the end of the .data file."""
        value = np.ascontiguousarray(value)
        if self._data is None:
            self._initializers[name] = numpy_helper.from_array(value, name)
            return
        with self._data.open("ab") as file:
            file.write(value.tobytes())
        tensor = TensorProto(name=name, dims=value.shape, data_type=helper.np_dtype_to_tensor_dtype(value.dtype))
        tensor.data_location = TensorProto.EXTERNAL
        for key, text in (
            ("location", self._data.name),
            ("offset", str(self._offset)),
            ("length", str(value.nbytes)),
        ):
            tensor.external_data.add(key=key, value=text)
        self._offset += value.nbytes
        self._initializers[name] = tensor

    def save(self) -> Path:
        """Write the graph and check it; returns the path that a user hands on: the file, or the folder of two files."""
        graph = helper.make_graph(
            self._nodes, self._name, self._inputs, self._outputs, list(self._initializers.values())
        )
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
            producer_name="pytest-npubench",
        )
        path = self._folder / MODEL_FILE
        onnx.save(model, path)
        onnx.checker.check_model(path)
        return path if self._data is None else self._folder


def model_file(saved: Path) -> Path:
    """Returns the .onnx file of what save() returned."""
    return saved if saved.suffix else saved / MODEL_FILE
