"""Settings as vLLM's arguments, without vLLM."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pytest_npubench.errors import ConfigError
from pytest_npubench.extensions.vllm.layered.settings import (
    CONFIG_KEY,
    LayeredSettings,
    engine_arguments,
)


@pytest.mark.parametrize("settings", [LayeredSettings(), LayeredSettings(num_layer_groups=3, chunk_size_tokens=256)])
def test_settings_survive_vllm_s_additional_config(settings: LayeredSettings) -> None:
    arguments = engine_arguments(settings, max_model_len=4096, max_num_seqs=256)
    assert LayeredSettings.of(json.loads(json.dumps(arguments["additional_config"]))) == settings


def test_without_any_setting_the_defaults_hold() -> None:
    assert LayeredSettings.of({}) == LayeredSettings()
    assert LayeredSettings.of({"somebody": "else"}) == LayeredSettings()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"tokens_per_iteration": 0}, "tokens_per_iteration is 0"),
        ({"tokens_per_iteration": None}, "tokens_per_iteration is None"),
        ({"chunk_size_tokens": -1}, "chunk_size_tokens is -1"),
        ({"num_layer_groups": True}, "num_layer_groups is True"),
        ({"merge_cap_tokens": 8192.0}, "merge_cap_tokens is 8192.0"),
        ({"merge_cap": 1}, "unknown setting 'merge_cap'; known: tokens_per_iteration, num_layer_groups"),
        (5, "npubench_layered is 5; want an object"),
    ],
)
def test_a_wrong_setting_is_named(given: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        LayeredSettings.of({CONFIG_KEY: given})


@pytest.mark.parametrize(
    ("settings", "chunked", "tokens"),
    [
        (LayeredSettings(), False, 8192 + 256),
        (LayeredSettings(merge_cap_tokens=1024), False, 4096 + 256),
        (LayeredSettings(chunk_size_tokens=512), True, 512 + 256),
    ],
)
def test_an_iteration_has_room_for_what_sets_off_beside_all_others(
    settings: LayeredSettings, chunked: bool, tokens: int
) -> None:
    arguments = engine_arguments(settings, max_model_len=4096, max_num_seqs=256)
    assert (arguments["enable_chunked_prefill"], arguments["max_num_batched_tokens"]) == (chunked, tokens)
    assert tokens >= settings.needed_batch_tokens(max_model_len=4096, max_num_seqs=256)
