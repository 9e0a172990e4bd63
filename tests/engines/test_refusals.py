"""What the engine refuses, with the words a person acts on; nothing that was refused changes what it says next."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
import pytest

from pytest_npubench.core.measurement import Request
from pytest_npubench.engines.jax_dense.engine import StaticBucketEngine
from pytest_npubench.engines.shapes import DecoderShape
from pytest_npubench.errors import ConfigError, LengthError

from .conftest import Served
from .decoders import BUCKETS, NORMED, TIED


@pytest.fixture(scope="module")
def engine(serve: Callable[[str], Served]) -> StaticBucketEngine:
    return serve("tied").engine


def requests(*lengths: tuple[int, int]) -> list[Request]:
    return [Request(input_tokens=inputs, output_tokens=outputs) for inputs, outputs in lengths]


@pytest.mark.parametrize(
    ("batch", "words"),
    [
        pytest.param(
            requests((301, 1)), r"301 is longer than the largest bucket, 300 of \(8, 16, 32, 300\)", id="prompt"
        ),
        pytest.param(requests((300, 2)), "301 is longer than the largest bucket, 300", id="its KV length"),
        pytest.param(requests((5, 2), (290, 60)), "349 is longer than the largest bucket, 300", id="one row of two"),
        pytest.param([], r"0 requests; the engine is compiled for 1\.\.3", id="no request"),
        pytest.param(requests(*[(5, 2)] * 4), r"4 requests; the engine is compiled for 1\.\.3", id="too many"),
        pytest.param(
            requests((5, 2), (5, 0)), "request 1: 5 prompt and 0 output tokens; want at least 1", id="no output"
        ),
        pytest.param(requests((0, 2)), "request 0: 0 prompt and 2 output tokens; want at least 1", id="no prompt"),
        pytest.param(
            requests((5, 2), (-3, 2)),
            "request 1: -3 prompt and 2 output tokens; want at least 1",
            id="a negative prompt",
        ),
    ],
)
def test_a_batch_that_cannot_run(engine: StaticBucketEngine, batch: list[Request], words: str) -> None:
    with pytest.raises(LengthError, match=words):
        engine.run(batch)


@pytest.mark.parametrize(
    ("prompt", "counts", "error", "words"),
    [
        ([1] * 4, [1, 2], LengthError, "1 prompts with 2 output lengths"),
        ([], [2], LengthError, "request 0: 0 prompt and 2 output tokens"),
        ([1, -1], [2], ConfigError, "request 0: a prompt token outside the vocabulary"),
        ([1, TIED.vocab_size], [2], ConfigError, "request 0: a prompt token outside the vocabulary"),
    ],
)
def test_a_prompt_that_cannot_run(
    engine: StaticBucketEngine, prompt: list[int], counts: list[int], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        engine.generate([np.array(prompt, np.int32)], counts)


def test_a_refusal_leaves_the_engine_as_it_was(serve: Callable[[str], Served]) -> None:
    served = serve("tied")
    asked = served.oracle.ask(5, 6)
    for batch in (requests((301, 1)), requests((5, 0)), []):
        with pytest.raises(LengthError):
            served.engine.run(batch)
    assert served.engine.generate([asked.prompt], [6]).tokens == (asked.answer.tokens,)


def test_a_bucket_outside_the_set(engine: StaticBucketEngine) -> None:
    with pytest.raises(ConfigError, match=r"bucket 64 is not in the engine's set \(8, 16, 32, 300\)"):
        engine.load([64])


@pytest.mark.parametrize(("start", "end"), [(8, 32), (16, 8), (16, 16), (16, 64), (64, 300)])
def test_a_move_that_no_run_makes(engine: StaticBucketEngine, start: int, end: int) -> None:
    with pytest.raises(
        ConfigError, match=rf"move {start} -> {end}: want a bucket and the next larger one of \(8, 16, 32"
    ):
        engine.time_move(start, end)


class FakeCompiler:
    """A fake of N devices that compiles nothing: what is refused must be refused before it is asked to."""

    def __init__(self, num_devices: int) -> None:
        self.devices: Sequence[Any] = [object()] * num_devices
        self.compiles = ()

    def compile(self, name: str, function: Callable[..., Any], *arguments: Any, **_: Any) -> Callable[..., Any]:
        raise AssertionError(f"asked to compile {name}")


@pytest.mark.parametrize(
    ("shape", "num_devices", "words"),
    [
        (TIED, 3, "tied: num_heads = 4 does not split over 3 devices; take a number of devices that divides it"),
        (TIED, 4, "tied: num_kv_heads = 2 does not split over 4 devices"),
        (dataclasses.replace(TIED, intermediate=97), 2, "tied: intermediate = 97 does not split over 2 devices"),
        (dataclasses.replace(TIED, vocab_size=129), 2, "tied: vocab_size = 129 does not split over 2 devices"),
        (NORMED, 2, "normed: num_kv_heads = 1 does not split over 2 devices"),
    ],
)
def test_devices_that_the_shape_cannot_be_split_over(shape: DecoderShape, num_devices: int, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        StaticBucketEngine(shape, FakeCompiler(num_devices), buckets=BUCKETS, batch_size=1)


NO_DTYPE = "is not one the decoder computes in: fp32, bf16, fp16"
NO_BUCKETS = r"buckets: .*; want positive integers, each larger than the one before"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"batch_size": 0}, "batch_size is 0; want at least 1"),
        *(({"dtype": dtype}, f"dtype '{dtype}' {NO_DTYPE}") for dtype in ("int8", "float32", "")),
        *(({"buckets": buckets}, NO_BUCKETS) for buckets in ((), (16, 8), (8, 8), (0, 8), (8.5, 16))),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        StaticBucketEngine(TIED, FakeCompiler(1), **{"buckets": BUCKETS, "batch_size": 1, **settings})


def test_64_bits_are_refused_by_name(runtime: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(jax.config), "jax_enable_x64", True)
    with pytest.raises(ConfigError, match=r"JAX_ENABLE_X64 is on: .* 32 bits"):
        StaticBucketEngine(TIED, runtime, buckets=BUCKETS, batch_size=1)
