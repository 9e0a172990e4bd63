"""Packed matrices give what plain ones give, and only a CPU's fp32 is packed."""

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402

from pytest_npubench.engines.shapes import decoder_shape  # noqa: E402
from pytest_npubench.engines.torch_moe import experts  # noqa: E402
from pytest_npubench.engines.torch_moe.experts import LoopedGroups  # noqa: E402
from pytest_npubench.engines.torch_moe.packing import EXACT_ROWS, kernel_rows, packed, product  # noqa: E402
from pytest_npubench.engines.torch_moe.weights import random_weights  # noqa: E402

from .small_shapes import GPT_OSS, QWEN_MOE  # noqa: E402

HOST = torch.device("cpu")


def weights_of(shape: Any, dtype: Any = torch.float32) -> Any:
    return random_weights(shape, seed=3, device=HOST, dtype=dtype)


@pytest.fixture(scope="module")
def layers() -> tuple[Any, Any]:
    """A layer as it is, and packed."""
    plain = weights_of(GPT_OSS)
    inside = packed(plain).layers[0]
    if not inside.qkv.is_mkldnn:
        pytest.skip("this torch has no oneDNN")
    return plain.layers[0], inside


@pytest.mark.parametrize("num_rows", [1, 2, 17, 64, 200])
def test_a_packed_matrix_multiplies_like_a_plain_one(layers: tuple[Any, Any], num_rows: int) -> None:
    """In fp64 as the oracle: neither of the two products is the other's."""
    plain, inside = layers
    rows = torch.randn(num_rows, plain.qkv.shape[1], generator=torch.Generator().manual_seed(num_rows))
    expected = rows.double() @ plain.qkv.double().t() + plain.qkv_bias.double()
    for matrix in (inside.qkv, plain.qkv):
        found = product(rows, matrix, plain.qkv_bias)
        torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)


def test_rows_of_every_expert(layers: tuple[Any, Any]) -> None:
    """Experts without rows, the first among them."""
    plain, inside = layers
    rows = torch.randn(12, plain.gate_up.shape[2], generator=torch.Generator().manual_seed(0))
    found = LoopedGroups([1, 2, 4], [3, 8, 1]).product(rows, inside.gate_up)
    expected = torch.cat(
        [F.linear(part, plain.gate_up[expert]) for expert, part in zip((1, 2, 4), rows.split([3, 8, 1]), strict=True)]
    )
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("sizes", [[40, 3, 17, 60], [17], [1, 33], [33, 1]])
def test_rows_of_neighbours_come_along_and_are_left_out(layers: tuple[Any, Any], sizes: list[int]) -> None:
    """Also where behind the last expert's rows there are none, and where there are too few in all."""
    plain, inside = layers
    rows = torch.randn(sum(sizes), plain.gate_up.shape[2], generator=torch.Generator().manual_seed(2))
    found = LoopedGroups(list(range(len(sizes))), sizes).product(rows, inside.gate_up)
    parts = zip(rows.split(sizes), plain.gate_up, strict=False)
    expected = torch.cat([part.double() @ matrix.double().t() for part, matrix in parts])
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)


def test_the_last_expert_multiplies_with_rows_before_it(
    layers: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    inside, asked = layers[1], []
    monkeypatch.setattr(experts, "product", lambda rows, matrix: asked.append(len(rows)) or product(rows, matrix))
    LoopedGroups([0, 1], [33, 17]).product(torch.zeros(50, inside.gate_up[0].shape[0]), inside.gate_up)
    assert asked == [36, 18]


def test_many_numbers_of_rows_are_few_kernels(layers: tuple[Any, Any]) -> None:
    plain, inside = layers
    sizes = {num_rows: kernel_rows(num_rows, inside.qkv) for num_rows in range(1, 2049)}
    assert all(num_rows <= size <= num_rows * 9 / 8 for num_rows, size in sizes.items())
    assert all(sizes[num_rows] == num_rows for num_rows in range(1, EXACT_ROWS + 1))
    assert len(set(sizes.values())) == EXACT_ROWS + 3 * 8 + (2048 - 128) // 16
    assert kernel_rows(130, plain.qkv) == 130


def test_a_part_of_a_batch_is_not_in_a_row_of_its_own(layers: tuple[Any, Any]) -> None:
    """Rows that are a slice, and columns that are one: strides other than those of a fresh tensor."""
    plain, inside = layers
    width = plain.qkv.shape[1]
    wide = torch.randn(9, 2 * width, generator=torch.Generator().manual_seed(1))
    for rows in (wide[2:7, :width], wide[:, width:]):
        torch.testing.assert_close(product(rows, inside.qkv), F.linear(rows, plain.qkv), rtol=1e-5, atol=1e-5)


def test_packing_twice_is_packing_once() -> None:
    once = packed(weights_of(QWEN_MOE))
    again = packed(once)
    assert all(one is other for one, other in zip(once.layers, again.layers, strict=True))


def test_other_dtypes_stay_as_they_are() -> None:
    plain = weights_of(QWEN_MOE, torch.bfloat16)
    assert all(one is other for one, other in zip(plain.layers, packed(plain).layers, strict=True))


def test_what_is_read_by_its_rows_stays_plain() -> None:
    """The embedding is looked up and the router is small: no copies of them."""
    plain = weights_of(decoder_shape("small-gpt-oss"))
    inside = packed(plain)
    assert inside.embedding is plain.embedding
    assert inside.head is plain.head
    assert inside.layers[0].router is plain.layers[0].router
