"""Model directories that others can read, and their weights made again by the host."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from engines.written_shapes import DENSE, MOE

from pytest_npubench.engines.answer_reference import answer_reference
from pytest_npubench.engines.model_directory import config_of, write_model_directory
from pytest_npubench.engines.probe import fixed_tokens, probe_prompts
from pytest_npubench.engines.random_tensors import RandomTensors
from pytest_npubench.engines.safetensors_file import encoded, num_bytes, write_safetensors
from pytest_npubench.engines.shapes import DecoderShape, ExpertShape, decoder_shape
from pytest_npubench.errors import ConfigError
from pytest_npubench.extensions.vllm.written_weights import WrittenWeights


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp16"])
def test_the_file_reads_as_torch_writes(tmp_path: Path, dtype: str) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    reader = pytest.importorskip("safetensors.torch", reason="safetensors is not installed")
    values = np.random.default_rng(0).standard_normal((5, 7), np.float32) * np.float32(3)
    rows = {"a": values, "b": values[0]}
    dims = {name: tensor.shape for name, tensor in rows.items()}
    write_safetensors(tmp_path / "one.safetensors", dims, lambda name, _: rows[name], dtype=dtype)
    found = reader.load_file(tmp_path / "one.safetensors")
    wanted = torch.from_numpy(values).to({"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[dtype])
    assert torch.equal(found["a"], wanted)
    assert torch.equal(found["b"], wanted[0])


def test_bf16_rounds_to_even() -> None:
    """0x3F808000 lies half way between 0x3F80 and 0x3F81; 0x3F818000 between 0x3F81 and 0x3F82."""
    halves = np.array([0x3F808000, 0x3F818000], np.uint32).view(np.float32)
    assert np.frombuffer(encoded(halves, "bf16"), "<u2").tolist() == [0x3F80, 0x3F82]


def test_a_dtype_that_is_not_written() -> None:
    with pytest.raises(ConfigError, match="'int4'; weights are written in fp32, bf16, fp16"):
        num_bytes({"a": (2,)}, "int4")


@pytest.mark.parametrize(
    "shape", [MOE, DENSE, decoder_shape("qwen3-30b-a3b"), decoder_shape("small-dense")], ids=lambda s: s.name
)
def test_as_many_weights_as_the_shape_says(shape: DecoderShape) -> None:
    assert num_bytes(RandomTensors(shape=shape).shapes(), "bf16") == 2 * shape.num_parameters


def test_a_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    first = write_model_directory(tmp_path / "a", MOE, seed=3)
    again = write_model_directory(tmp_path / "b", MOE, seed=3)
    other = write_model_directory(tmp_path / "c", MOE, seed=4)
    weights = [(folder / "model.safetensors").read_bytes() for folder in (first, again, other)]
    assert weights[0] == weights[1] != weights[2]


def test_what_is_there_is_left_alone(tmp_path: Path) -> None:
    folder = write_model_directory(tmp_path / "a", MOE)
    before = (folder / "model.safetensors").stat().st_mtime_ns
    write_model_directory(folder, MOE)
    assert (folder / "model.safetensors").stat().st_mtime_ns == before
    with pytest.raises(ConfigError, match="no directory of test-vllm-moe with seed 1"):
        write_model_directory(folder, MOE, seed=1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a"]


def test_an_architecture_that_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="small-gpt-oss: no random directory of architecture gpt-oss"):
        write_model_directory(tmp_path / "a", decoder_shape("small-gpt-oss"))


@pytest.mark.parametrize("name", ["small-moe", "small-dense", "tiny-llama", "tiny-qwen", "llama-3.2-1b"])
def test_transformers_reads_the_config(tmp_path: Path, name: str) -> None:
    """The figures arrive in transformers' own classes, rotation included."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    shape = decoder_shape(name)
    (tmp_path / "config.json").write_text(json.dumps(config_of(shape, "fp32")))
    config = transformers.AutoConfig.from_pretrained(tmp_path)
    assert (config.hidden_size, config.num_hidden_layers, config.head_dim) == (
        shape.hidden,
        shape.num_layers,
        shape.head_dim,
    )
    rope = getattr(config, "rope_parameters", None) or {"rope_theta": config.rope_theta, **(config.rope_scaling or {})}
    assert rope["rope_theta"] == shape.rope_theta
    if name == "llama-3.2-1b":
        assert (rope["rope_type"], rope["factor"]) == ("llama3", 32.0)


@pytest.mark.parametrize("shape", [MOE, DENSE], ids=lambda shape: shape.name)
def test_the_torch_engine_loads_it_and_tokens_vary(directories: dict[str, Path], shape: DecoderShape) -> None:
    """Of 96 greedy tokens more than half are different ones: decoding has not settled."""
    from .oracle import greedy

    tokens = greedy(shape, directories[shape.name], list(range(3, 30)), 96)
    assert len(set(tokens)) > 48


def test_the_router_is_skewed_as_a_trained_one(tmp_path: Path) -> None:
    """Coverage of Qwen3-30B-A3B's 128 experts, 8 a token, by decode batches of 8 and 32: 29.0 and 54.7 % (Layered
    Prefill, Table 1); routing by chance would cover 40.3 and 87.3 %. The mean over layers is within 3 points."""
    from .oracle import chosen_experts

    shape = dataclasses.replace(
        MOE, name="many", experts=ExpertShape(num_experts=128, experts_per_token=8), intermediate=16
    )
    folder = write_model_directory(tmp_path / "many", shape)
    random = np.random.default_rng(5)
    # the last rows of 64 contexts: what a decode batch of that many requests would route
    rows = [chosen_experts(shape, folder, random.integers(0, 512, 40).tolist())[:, -1] for _ in range(64)]
    for batch, published in ((8, 0.290), (32, 0.547)):
        batches = [np.stack(rows[first : first + batch], 1) for first in range(0, 64, batch)]
        coverage = np.mean([len(np.unique(layer)) / 128 for chosen in batches for layer in chosen])
        assert coverage == pytest.approx(published, abs=0.03)


ROUNDED = 5e-5  # transformers norms, turns and takes softmax in float32


@pytest.mark.parametrize("shape", [MOE, DENSE], ids=lambda shape: shape.name)
def test_the_reference_is_that_of_the_directory(shape: DecoderShape, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    folder = write_model_directory(tmp_path / "model", shape, dtype="bf16")
    config = transformers.AutoConfig.from_pretrained(folder)
    config._experts_implementation = "eager"  # the others have no float64
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, config=config, dtype=torch.float64)
    prompts = probe_prompts(shape.vocab_size, (16, 32)).with_one_token()
    reference = answer_reference(shape, "bf16", prompts, weights=WrittenWeights(shape, "bf16"))
    for index, (prompt, forced) in enumerate(prompts.asked()):
        assert len(set(forced)) == 1
        with torch.no_grad():
            logits = model(torch.tensor(np.concatenate([prompt, forced])[None].astype(np.int64))).logits[0].numpy()
        expected = logits[len(prompt) - 1 :][:, fixed_tokens(shape.vocab_size)]
        np.testing.assert_allclose(reference.logits[index], expected, rtol=0, atol=ROUNDED)
