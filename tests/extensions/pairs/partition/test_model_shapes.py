"""Weight shapes against the paper's tables and the models' parameter counts."""

from __future__ import annotations

import pytest

from pytest_npubench.errors import RegistryError
from pytest_npubench.extensions.pairs.partition.model_shapes import OPERATOR_SHAPES, WIDTHS, distinct, operators

PARTS_OF_A_LAYER = ("attention_qkv", "attention_output", "ffn_gate_up", "ffn_down")


def shapes(model: str) -> dict[str, tuple[int, int]]:
    return {shape.name: (shape.rows, shape.cols) for shape in operators(model)}


def test_llama_8b_has_the_weights_of_table_3():
    assert {(4096, 4096), (28672, 4096), (4096, 14336)} <= set(shapes("llama-8b").values())
    assert len(operators("llama-8b")) == 7


@pytest.mark.parametrize(
    ("model", "vocab_size", "num_tables", "parameters"),
    [("llama-8b", 128_256, 2, 8.03e9), ("llama-3b", 128_256, 1, 3.21e9), ("internlm-1.8b", 92_544, 2, 1.89e9)],
)
def test_the_layers_make_up_the_model(model, vocab_size, num_tables, parameters):
    """Vocabulary and tied or untied embeddings from the same configs; parameters as the model cards have them."""
    of_a_layer = sum(rows * cols for name, (rows, cols) in shapes(model).items() if name in PARTS_OF_A_LAYER)
    total = WIDTHS[model].num_layers * of_a_layer + num_tables * vocab_size * WIDTHS[model].hidden
    assert total == pytest.approx(parameters, rel=0.005)


@pytest.mark.parametrize("model", OPERATOR_SHAPES)
def test_the_fused_operator_is_its_three(model):
    found = shapes(model)
    three = [found[f"attention_{name}"] for name in "qkv"]
    assert found["attention_qkv"] == (sum(rows for rows, _ in three), three[0][1])


def test_scaled_models_are_scaled_in_both_directions():
    assert shapes("llama-8b-div4")["ffn_gate_up"] == (7168, 1024)
    assert shapes("llama-8b-div8")["ffn_down"] == (512, 1792)


def test_each_shape_once():
    assert [shape.name for shape in distinct(operators("llama-8b"))] == [
        *("attention_q", "attention_k", "attention_qkv", "ffn_gate_up", "ffn_down")
    ]


def test_an_unknown_model():
    with pytest.raises(RegistryError, match="no weight shapes of 'llama-70b'; known: llama-8b, llama-8b-div4"):
        operators("llama-70b")


def test_an_operator_of_so_many_tokens():
    matmul = operators("llama-8b")[0].matmul(5)
    assert (matmul.name, matmul.rows, matmul.cols, matmul.tokens) == ("attention_q", 4096, 4096, 5)
