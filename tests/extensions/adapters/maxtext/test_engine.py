"""The MaxText adapter on a stand-in of MaxEngine: what it calls, in what order, and what it makes of the times."""

from __future__ import annotations

import sys
from itertools import pairwise
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from pytest_npubench.core.measurement import Phase, Request
from pytest_npubench.errors import ConfigError, DeviceUnavailableError, LengthError
from pytest_npubench.extensions.adapters.maxtext.engine import MaxTextEngine, declared_lengths
from pytest_npubench.extensions.adapters.maxtext.opening import LAYOUTS, open_maxengine
from pytest_npubench.predictors.two_point import check_pure, fit, plan_points

from .stand_in import CONFIG, StandIn, expected_tokens


def _prompts(*lengths):
    return [np.arange(1, length + 1, dtype=np.int32) * 7 for length in lengths]


def test_every_request_gets_its_own_tokens_whatever_it_was_padded_to():
    engine = MaxTextEngine(StandIn())
    prompts = _prompts(3, 9, 32)
    for _ in range(2):  # the slots of the second run still hold the first one's
        made = engine.generate(prompts, [5, 1, 8])
        assert made.tokens == tuple(expected_tokens(prompt, n) for prompt, n in zip(prompts, (5, 1, 8), strict=True))


def test_parts_are_in_the_buckets_they_ran_in():
    run = MaxTextEngine(StandIn()).run([Request(input_tokens=n, output_tokens=4) for n in (3, 4, 9)])
    assert [(part.phase, part.bucket, part.num_steps) for part in run.segments] == [
        (Phase.PREFILL, 4, 2),
        (Phase.PREFILL, 16, 1),
        (Phase.DECODE, 48, 3),
    ]
    assert run.moves == ()
    assert 0 < sum(part.duration_s for part in run.segments) <= run.e2e_s


def test_every_call_is_waited_for_before_the_next_one():
    """The stand-in refuses to be read before; here the order of its log."""
    engine = StandIn()
    adapter = MaxTextEngine(engine)
    adapter.load((4, 48))
    engine.log.clear()
    adapter.generate(_prompts(3, 4), [3, 2])
    assert engine.log == [
        *("prefill 4", "insert 0", "wait prefill", "prefill 4", "insert 1", "wait prefill"),
        *("generate", "wait generate", "generate", "wait generate"),
    ]


def test_the_batchs_state_is_waited_for_with_the_token():
    """A step is over when its state is there, not when its token is: the next one could not start."""

    class Slow(StandIn):
        def generate(self, *args, **kwargs):
            state, result = super().generate(*args, **kwargs)
            state.block_until_ready = lambda: self.log.append("wait state")
            return state, result

    engine = Slow()
    MaxTextEngine(engine).generate(_prompts(3), [2])
    assert sorted(engine.log[-2:]) == ["wait generate", "wait state"]


def test_load_calls_each_length_once_and_a_run_adds_none():
    engine = StandIn()
    adapter = MaxTextEngine(engine)
    adapter.load(adapter.buckets)
    names = [record.name for record in adapter.compiles]
    assert names == ["generate-48", "prefill-4", "prefill-8", "prefill-16", "prefill-32"]
    assert all(record.compile_s > 0 for record in adapter.compiles)
    adapter.load(adapter.buckets)
    engine.log.clear()
    for requests in ([(30, 17)], [(3, 1), (9, 5)], [(4, 1)], [(30, 1), (9, 1), (3, 2)]):
        adapter.run([Request(input_tokens=n, output_tokens=m) for n, m in requests])
    assert [record.name for record in adapter.compiles] == names
    assert not [entry for entry in engine.log if entry.startswith("compile")]
    with pytest.raises(ConfigError, match="64 is not in the engine's set"):
        adapter.load((64,))


def test_after_a_failed_call_the_next_run_starts_with_a_new_state():
    engine = StandIn()
    adapter = MaxTextEngine(engine)
    adapter.load((4, 48))
    engine.fail_generate = True
    with pytest.raises(RuntimeError, match="RESOURCE_EXHAUSTED"):
        adapter.generate(_prompts(3), [2])
    engine.fail_generate = False
    assert adapter.generate(_prompts(3), [2]).tokens == (expected_tokens(_prompts(3)[0], 2),)
    assert engine.log.count("init_decode_state") == 2
    assert engine.log.count("compile generate init") == 1


@pytest.mark.parametrize(
    ("requests", "words"),
    [
        ([(33, 1)], "a prompt of 33 tokens; max_prefill_predict_length is 32"),
        ([(3, 18)], "18 output tokens; at most 17 fit"),
        ([(3, 0)], "want at least 1"),
        ([(3, 1)] * 4, "4 requests; the engine takes 1..3"),
        ([], "0 requests"),
    ],
)
def test_what_does_not_fit_is_named_before_anything_runs(requests, words):
    engine = StandIn()
    adapter = MaxTextEngine(engine)
    with pytest.raises(LengthError, match=words):
        adapter.run([Request(input_tokens=n, output_tokens=m) for n, m in requests])
    assert not any(entry.startswith("prefill") for entry in engine.log)


def test_the_longest_request_that_fits_runs():
    run = MaxTextEngine(StandIn()).run([Request(input_tokens=32, output_tokens=17)])
    assert run.segments[-1].num_steps == 16


def test_a_move_is_refused():
    with pytest.raises(ConfigError, match="never moves"):
        MaxTextEngine(StandIn()).time_move(4, 8)


def test_lens_profiles_it_with_a_set_for_each_phase():
    """The points of the two-point profile stay where they should, and make a profile."""
    adapter = MaxTextEngine(StandIn(slots=1))
    keys = adapter.lengths.keys
    points = plan_points(keys.prefill_buckets, decode_buckets=keys.decode_buckets, output_tokens=8)
    samples = {}
    for point in points:
        request = Request(input_tokens=point.input_tokens, output_tokens=point.output_tokens)
        runs = [adapter.run([request]) for _ in range(2)]
        for run in runs:
            check_pure(point.bucket, run, point.phases)
        # seconds by hand: 1 ms for every token of the bucket, 2 ms a step
        samples[point] = [keys.prefill_key(point.input_tokens) * 1e-3 + (point.output_tokens - 1) * 2e-3] * 2
    profile = fit(samples, batch_size=1, prefill_shared=adapter.prefill_shared)
    assert profile.buckets[16].ttft_s == pytest.approx(0.016)
    assert profile.buckets[48].tbt_s == pytest.approx(0.002)


def test_declared_lengths_are_those_that_fit():
    lengths = declared_lengths(SimpleNamespace(**CONFIG))
    assert lengths.keys.prefill_buckets == (4, 8, 16, 32)
    assert lengths.keys.decode_buckets == (48,)
    assert lengths.max_decode_steps == 16
    assert all(small < large for small, large in pairwise(lengths.buckets))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"max_target_length": 32}, "want room to generate in"),
        ({"max_target_length": None}, "max_target_length is None"),
        ({"max_prefill_predict_length": -1}, "max_prefill_predict_length is -1"),
        ({"inference_microbenchmark_prefill_lengths": "4,many"}, "want lengths with commas between"),
        ({"inference_microbenchmark_prefill_lengths": "0,4"}, "want lengths with commas between"),
    ],
)
def test_a_configuration_without_lengths_is_named(changes, words):
    with pytest.raises(ConfigError, match=words):
        declared_lengths(SimpleNamespace(**{**CONFIG, **changes}))


def _installed(monkeypatch, names, initialize):
    """Modules of these names, with all packages above them."""
    for name in names:
        parts = name.split(".")
        for stop in range(1, len(parts) + 1):
            module = ModuleType(".".join(parts[:stop]))
            module.__path__ = []
            monkeypatch.setitem(sys.modules, module.__name__, module)
    sys.modules[names[0]].initialize = initialize
    sys.modules[names[1]].MaxEngine = lambda config: StandIn(config=config)


@pytest.mark.parametrize("names", LAYOUTS)
def test_it_opens_with_maxtexts_own_arguments(monkeypatch, names):
    seen = []

    def initialize(argv):
        seen.extend(argv)
        return SimpleNamespace(**CONFIG)

    _installed(monkeypatch, names, initialize)
    engine = open_maxengine(["base.yml", "max_target_length=48"])
    assert MaxTextEngine(engine).buckets == (4, 8, 16, 32, 48)
    assert seen == ["", "base.yml", "max_target_length=48"]  # MaxText drops the first, its program's name


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            ValueError("Key nonsense isn't in config."),
            "MaxText refuses base.yml nonsense=1: Key nonsense",
        ),
        (SystemExit(2), "MaxText refuses base.yml nonsense=1; its log above says why"),
    ],
)
def test_a_configuration_that_maxtext_refuses_is_named(monkeypatch, error, words):
    def initialize(argv):
        raise error

    _installed(monkeypatch, LAYOUTS[0], initialize)
    with pytest.raises(ConfigError, match=words):
        open_maxengine(["base.yml", "nonsense=1"])


def test_without_maxtext_it_says_what_to_install(monkeypatch):
    for name in ("maxtext", "MaxText"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(DeviceUnavailableError, match=r"pip install 'maxtext\[tpu\]'"):
        open_maxengine(["base.yml"])
