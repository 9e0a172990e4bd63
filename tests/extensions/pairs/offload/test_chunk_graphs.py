"""Chunk graphs: counts against the paper's and against counting by hand, outputs against torch's attention."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from pytest_npubench.engines.chunk_layout import ARMS, ChunkLayout
from pytest_npubench.errors import ConfigError
from pytest_npubench.extensions.pairs.offload.chunk_graphs import ChunkGraphBench, ChunkSettings
from pytest_npubench.extensions.pairs.offload.decoder import DecoderSize, make_layers, make_prompt, reference, trace
from pytest_npubench.extensions.pairs.offload.units import Units

from .oracles import PAPER_LAYOUT, layer_elements

SIZE = DecoderSize(num_layers=2, width=16, num_heads=2, ffn_width=32, num_outliers=0)
SETTINGS = ChunkSettings(size=SIZE, chunk_tokens=8, prompt_tokens=(4, 12))


def test_the_papers_count() -> None:
    layout = PAPER_LAYOUT
    assert (layout.shared_per_chunk, layout.subgraphs_per_chunk) == (120, 144)
    assert layout.saved_fraction == 0.75
    assert layout.num_graphs("sharing") == 120 + 4 * 24


@pytest.mark.parametrize("prompt", [1, 7, 8, 9, 23, 24])
@pytest.mark.parametrize(("layers", "stages", "dynamic"), [(1, 1, 0), (2, 6, 1), (3, 4, 2)])
def test_counts_by_enumeration(prompt: int, layers: int, stages: int, dynamic: int) -> None:
    layout = ChunkLayout(
        prompt_tokens=prompt, chunk_tokens=8, num_layers=layers, num_stages=stages, num_dynamic_stages=dynamic
    )
    chunks = [range(start, start + 8) for start in range(0, prompt, 8)]
    graphs = {
        (layer, stage, chunk if stage < dynamic else None)
        for chunk in range(len(chunks))
        for layer in range(layers)
        for stage in range(stages)
    }
    assert layout.num_chunks == len(chunks)
    assert layout.num_graphs("sharing") == len(graphs)
    assert layout.num_graphs("per_chunk") == len(chunks)
    assert layout.computed_tokens("sharing") == sum(map(len, chunks))
    assert layout.saved_fraction == pytest.approx(1 - 1 / len(chunks))


def test_every_arm_gives_the_reference_and_its_counts(units: Callable[[str], Units]) -> None:
    bench = ChunkGraphBench(SETTINGS, units(ChunkGraphBench.KERNELS))
    bench.load()
    once = layer_elements(SIZE) * SIZE.num_layers * 4 + 2 * 2 * SIZE.width * 4
    found = {point.name: bench.measure(point.name) for point in SETTINGS.points()}
    for length, layout in SETTINGS.layouts().items():
        for arm in ARMS:
            figures = found[f"chunk_graphs/{arm}/{length} tokens"]
            assert figures.relative_error < 1e-5
            assert figures.num_graphs == layout.num_graphs(arm)
            assert figures.weight_bytes == (layout.num_chunks if arm == "per_chunk" else 1) * once
            assert figures.computed_tokens == layout.computed_tokens(arm)
            assert figures.compile_s > 0
    assert found["chunk_graphs/padding/4 tokens"].computed_tokens == 12


def test_serialised_graphs_hold_their_weights_again(units: Callable[[str], Units]) -> None:
    size = DecoderSize(num_layers=1, width=64, num_heads=2, ffn_width=256, num_outliers=0)
    settings = ChunkSettings(size=size, chunk_tokens=8, prompt_tokens=(16,))
    bench = ChunkGraphBench(settings, units(ChunkGraphBench.KERNELS))
    bench.load()
    per_chunk, sharing = (bench.measure(f"chunk_graphs/{arm}/16 tokens") for arm in ("per_chunk", "sharing"))
    assert per_chunk.executable_bytes >= per_chunk.weight_bytes
    once = layer_elements(size) * 4
    assert per_chunk.executable_bytes - sharing.executable_bytes > 0.6 * once


def test_the_reference_is_torchs() -> None:
    import torch

    size = DecoderSize(num_layers=2, width=16, num_heads=4, ffn_width=32, num_outliers=2)
    prompt = make_prompt(size, 11)
    hidden = torch.from_numpy(prompt).double()
    for layer in make_layers(size):
        at = {name: torch.from_numpy(values).double() for name, values in layer.items()}
        x = torch.nn.functional.rms_norm(hidden, (16,), at["gain"], 1e-5)
        q, k, v = ((x @ part).view(11, 4, 4).transpose(0, 1) for part in at["w_qkv"].split(16, dim=1))
        mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        hidden = hidden + mixed.transpose(0, 1).reshape(11, 16) @ at["w_out"]
        x = torch.nn.functional.rms_norm(hidden, (16,), at["ffn_gain"], 1e-5)
        hidden = hidden + torch.nn.functional.silu(x @ at["w_up"]) @ at["w_down"]
    assert reference(size, prompt) == pytest.approx(hidden.numpy(), rel=1e-5, abs=1e-5)


def test_gains_make_outlier_channels() -> None:
    _, entered = trace(DecoderSize(), make_prompt(DecoderSize(), 32))
    for inputs in entered:
        peaks = np.abs(inputs["w_qkv"]).max(axis=0)
        assert (peaks > 10 * np.median(peaks)).sum() == DecoderSize().num_outliers


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"prompt_tokens": 0}, "prompt_tokens is 0"),
        ({"num_dynamic_stages": 7}, "7 of 6 subgraphs"),
        ({"padded_tokens": 3}, "padded to 3 tokens; the prompt has 9"),
    ],
)
def test_layouts_that_cannot_be_are_named(changes: dict[str, int], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        ChunkLayout(**{"prompt_tokens": 9, "chunk_tokens": 8, "num_layers": 1, **changes})


def test_other_input_that_cannot_be_used_is_named() -> None:
    with pytest.raises(ConfigError, match="no arm 'all'; arms: whole"):
        PAPER_LAYOUT.num_graphs("all")
    with pytest.raises(ConfigError, match="3 heads do not divide"):
        DecoderSize(num_heads=3)
    with pytest.raises(ConfigError, match="num_tokens is 0"):
        make_prompt(SIZE, 0)
    with pytest.raises(ConfigError, match="prompt_tokens is 0"):
        ChunkSettings(prompt_tokens=(0,))
