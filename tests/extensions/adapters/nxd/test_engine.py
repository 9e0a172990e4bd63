"""The NxD Inference adapter on a stand-in: what it calls, with which masks and positions, and what it makes of it."""

from __future__ import annotations

import sys
from types import ModuleType

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from pytest_npubench.core.measurement import Phase, Request  # noqa: E402 - likewise
from pytest_npubench.errors import ConfigError, DeviceUnavailableError, LengthError  # noqa: E402 - likewise
from pytest_npubench.extensions.adapters.nxd.engine import NxdEngine  # noqa: E402 - after the look for torch
from pytest_npubench.extensions.adapters.nxd.opening import PACKAGE, open_model  # noqa: E402 - likewise

from .stand_in import InferenceConfig, NeuronConfig, StandInForCausalLM, expected_tokens, stand_in  # noqa: E402

BUCKETED = {
    "seq_len": 64,
    "max_context_length": 32,
    "enable_bucketing": True,
    "context_encoding_buckets": [8, 16, 32],
    "token_generation_buckets": [16, 32, 64],
}


def _prompts(*lengths):
    return [np.arange(6, 6 + length, dtype=np.int32) for length in lengths]


@pytest.mark.parametrize("ctx_batch_size", [1, 3])
@pytest.mark.parametrize("sampling", [None, object()])
def test_every_request_gets_its_own_tokens(ctx_batch_size, sampling):
    """The stand-in checks masks, positions and sequence ids of every call."""
    model = stand_in(batch_size=3, ctx_batch_size=ctx_batch_size, on_device_sampling_config=sampling, **BUCKETED)
    engine, prompts, counts = NxdEngine(model), _prompts(3, 9, 5), (4, 1, 7)
    assert engine.prefill_shared == (ctx_batch_size == 3)
    for _ in range(2):
        made = engine.generate(prompts, counts)
        assert made.tokens == tuple(map(expected_tokens, prompts, counts))
    assert model.calls.count(("reset",)) == 2


def test_a_batch_is_encoded_at_once_or_one_by_one():
    requests = [Request(input_tokens=n, output_tokens=5) for n in (3, 13)]
    shared, apart = stand_in(batch_size=2, **BUCKETED), stand_in(batch_size=2, ctx_batch_size=1, **BUCKETED)
    runs = [NxdEngine(model).run(requests) for model in (shared, apart)]
    assert [call for call in shared.calls if call[0] == "encode"] == [("encode", 2, 13)]
    assert [call for call in apart.calls if call[0] == "encode"] == [("encode", 1, 3), ("encode", 1, 13)]
    decode = [(Phase.DECODE, 16, 3), (Phase.DECODE, 32, 1)]  # KV caches of 14, 15, 16 and 17 tokens
    parts = [[(part.phase, part.bucket, part.num_steps) for part in run.segments] for run in runs]
    assert parts == [[(Phase.PREFILL, 16, 2), *decode], [(Phase.PREFILL, 8, 1), (Phase.PREFILL, 16, 1), *decode]]
    for run in runs:
        assert 0 < sum(part.duration_s for part in run.segments) <= run.e2e_s
        assert run.moves == ()


def test_the_bucket_of_a_step_is_the_one_its_mask_is_padded_to():
    """The mask that the model was given decides, by the wrapper's rule: the first bucket above it."""
    model = stand_in(batch_size=1, **BUCKETED)
    run = NxdEngine(model).run([Request(input_tokens=14, output_tokens=30)])
    masks = [call[2] for call in model.calls if call[0] == "step"]
    steps = [part.bucket for part in run.segments if part.phase is Phase.DECODE for _ in range(part.num_steps)]
    assert steps == [next(bucket for bucket in (16, 32, 64) if mask < bucket) for mask in masks]


def test_rows_that_ended_go_on_stepping():
    model = stand_in(batch_size=2, **BUCKETED)
    engine = NxdEngine(model)
    assert engine.finished == "grow"
    engine.generate(_prompts(4, 6), [1, 6])
    assert [call for call in model.calls if call[0] == "step"] == [("step", 2, 6 + step) for step in range(5)]


def test_rows_that_ended_can_be_kept_at_their_length():
    """Their masks stop growing, and no row's length counts with another row's answer."""
    model = stand_in(batch_size=2, **BUCKETED)
    engine, prompts, counts = NxdEngine(model, finished="freeze"), _prompts(32, 6), (1, 40)
    made = engine.generate(prompts, counts)
    assert made.tokens == tuple(map(expected_tokens, prompts, counts))
    # caches before a step: 31 of the row that only has its prompt, 6 to 44 of the other
    assert [call[2] for call in model.calls if call[0] == "step"] == [max(31, 6 + step) for step in range(39)]
    with pytest.raises(LengthError, match="a KV cache of 71 tokens, the longest"):
        NxdEngine(stand_in(batch_size=2, **BUCKETED)).generate(prompts, counts)
    with pytest.raises(LengthError, match=r"a KV cache of 65 tokens; max_length is 64"):
        engine.generate(_prompts(32, 6), (34, 1))


@pytest.mark.parametrize(
    ("requests", "words"),
    [
        ([(33, 1)], "a prompt of 33 tokens; max_context_length is 32"),
        ([(32, 34)], "a KV cache of 65 tokens"),
        ([(32, 1), (2, 34)], "a KV cache of 65 tokens, the longest prompt's with the longest answer's"),
        ([(1, 4)], "a prompt of 1 token"),
        ([(4, 1)] * 3, "3 requests; the engine takes 1..2"),
    ],
)
def test_what_does_not_fit_is_named_before_anything_runs(requests, words):
    model = stand_in(batch_size=2, **BUCKETED)
    with pytest.raises(LengthError, match=words):
        NxdEngine(model).run([Request(input_tokens=n, output_tokens=m) for n, m in requests])
    assert model.calls == []


def test_a_prompt_of_one_token_may_stand_beside_a_longer_one_that_is_encoded_with_it():
    made = NxdEngine(stand_in(batch_size=2, **BUCKETED)).generate(_prompts(1, 4), [2, 2])
    assert made.tokens == tuple(expected_tokens(prompt, 2) for prompt in _prompts(1, 4))
    with pytest.raises(LengthError, match="a prompt of 1 token"):
        NxdEngine(stand_in(batch_size=2, ctx_batch_size=1, **BUCKETED)).generate(_prompts(1, 4), [2, 2])


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"async_mode": True}, "async_mode is True"),
        ({"speculation_length": 5}, "speculation_length is 5"),
        ({"padding_side": "left"}, "padding_side is 'left'"),
        ({"batch_size": 4, "ctx_batch_size": 2}, "ctx_batch_size is 2"),
    ],
)
def test_a_configuration_that_cannot_be_timed_is_named(settings, words):
    with pytest.raises(ConfigError, match=words):
        NxdEngine(stand_in(**settings))


def test_buckets_and_moves():
    engine = NxdEngine(stand_in(**BUCKETED))
    assert engine.buckets == (8, 16, 32, 64)
    engine.load(engine.buckets)
    with pytest.raises(ConfigError, match="128 is not in the engine's set"):
        engine.load((128,))
    with pytest.raises(ConfigError, match="never moves"):
        engine.time_move(8, 16)


@pytest.fixture
def installed(monkeypatch):
    """The stand-in under the package's name."""
    for name in (PACKAGE, f"{PACKAGE}.utils", f"{PACKAGE}.utils.hf_adapter", f"{PACKAGE}.models"):
        module = ModuleType(name)
        module.__path__ = []
        monkeypatch.setitem(sys.modules, name, module)
    sys.modules[f"{PACKAGE}.utils.hf_adapter"].load_pretrained_config = lambda path: (
        lambda config: setattr(config, "loaded_from", path)
    )
    sys.modules[f"{PACKAGE}.models"].StandInForCausalLM = StandInForCausalLM


def test_a_model_is_compiled_once_and_loaded(installed, tmp_path):
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    opened = open_model(f"{PACKAGE}.models:StandInForCausalLM", tmp_path, compiled=tmp_path / "neuron", **BUCKETED)
    assert opened.model.calls == [("compile", str(tmp_path / "neuron")), ("load", str(tmp_path / "neuron"))]
    assert isinstance(opened.model.config, InferenceConfig)
    assert isinstance(opened.model.config.neuron_config, NeuronConfig)
    assert opened.model.config.loaded_from == str(tmp_path)
    assert NxdEngine(opened.model, compiles=opened.compiles).compiles[0].name == "StandInForCausalLM"


def test_what_cannot_be_opened_is_named(installed, tmp_path):
    path = f"{PACKAGE}.models:StandInForCausalLM"
    with pytest.raises(ConfigError, match=r"no config\.json"):
        open_model(path, tmp_path, compiled=tmp_path)
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    with pytest.raises(ConfigError, match="Context bucket 999"):
        open_model(path, tmp_path, compiled=tmp_path, context_encoding_buckets=[999])
    for wrong in (f"{PACKAGE}.models:Nobody", PACKAGE, ":", f"{PACKAGE}.nowhere:Model"):
        with pytest.raises(ConfigError, match="no mod"):
            open_model(wrong, tmp_path, compiled=tmp_path)


def test_without_nxd_inference_it_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, PACKAGE, None)
    with pytest.raises(DeviceUnavailableError, match="neuronx-distributed-inference of the AWS Neuron SDK"):
        open_model(f"{PACKAGE}.models:Model", tmp_path, compiled=tmp_path)
