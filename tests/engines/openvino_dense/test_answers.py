"""The decoder on OpenVINO gives the oracle's logits and tokens (a float64 decoder without buckets, cache or batch), and
walks the jax engine's path through the buckets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from engines import oracle
from engines.decoders import BUCKETS, MARGIN, SHAPES, TIED, Asked, soak_but_first
from pytest_npubench.core.measurement import Request, Run

from .conftest import Twins

LOGIT_ERROR = 1e-4
BATCHES = [
    pytest.param([(1, 3)], id="one token"),
    pytest.param([(8, 3)], id="a full bucket: its first step is in the next"),
    pytest.param([(5, 10), (16, 3), (30, 6)], id="three buckets, shortest first"),
    pytest.param([(30, 6), (5, 10), (16, 3)], id="in another order"),
    pytest.param([(30, 1), (2, 30)], id="a row that ended is carried past the end of the bucket"),
    pytest.param([(290, 11), (7, 2)], id="to the last place of the largest bucket"),
    pytest.param([(300, 1)], id="a full largest bucket and no step"),
]
Lengths = Sequence[tuple[int, int]]


def ask(twins: Twins, lengths: Lengths) -> list[Asked]:
    asked = [twins.served.oracle.ask(length, count, seed) for seed, (length, count) in enumerate(lengths)]
    assert min(one.answer.margin for one in asked) > MARGIN
    return asked


@pytest.mark.parametrize("lengths", BATCHES)
def test_the_tokens_are_the_oracles(twins: Twins, lengths: Lengths) -> None:
    asked = ask(twins, lengths)
    found = twins.engine.generate([one.prompt for one in asked], [one.count for one in asked])
    assert list(found.tokens) == [one.answer.tokens for one in asked]


@pytest.mark.parametrize("name", soak_but_first(SHAPES))
def test_logits(
    name: str, cpu_plugin: Any, make_twins: Callable[[str], Twins], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a prefill, and of every step after it, in a row beside which others are empty."""
    import openvino as ov

    from pytest_npubench.engines.openvino_dense.engine import BucketBinaries
    from pytest_npubench.engines.openvino_dense.graphs import Graph

    def model_with_logits(self: Graph) -> Any:
        told = [self.tokens, self.keys_values, self.fixed_logits, self.logits]
        return ov.Model(told, list(self.parameters), "decoder")

    monkeypatch.setattr(Graph, "model", model_with_logits)
    twins = make_twins(name)
    binaries = BucketBinaries(SHAPES[name], cpu_plugin, twins.engine.weights, bucket=16, batch_size=2)
    asked = twins.served.oracle.ask(9, 6)
    tokens, lengths = np.zeros(2, np.int32), np.array([0, 9], np.int32)
    tokens[1] = binaries.prefill(asked.prompt, 1)
    found = [binaries._prefill.get_output_tensor(3).data[0].copy()]
    for _ in range(5):
        tokens = binaries.decode(tokens, lengths)
        found.append(binaries._decode.get_output_tensor(3).data[1].copy())
        lengths += 1
    assert np.abs(asked.answer.logits).max() > 100 * LOGIT_ERROR
    np.testing.assert_allclose(found, asked.answer.logits, rtol=0, atol=LOGIT_ERROR)


@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
def test_answers_to_probe_prompts_are_right(cpu_plugin: Any, dtype: str) -> None:
    """The third result of the graphs that are timed; then with one layer's attention lost."""
    from pytest_npubench.campaign.answer_judgement import judge_answers
    from pytest_npubench.campaign.answer_visit import answer_visit
    from pytest_npubench.engines.answer_reference import answer_reference
    from pytest_npubench.engines.openvino_dense.engine import OpenVinoBucketEngine
    from pytest_npubench.engines.probe import probe_prompts
    from pytest_npubench.verdict import VerdictKind

    prompts = probe_prompts(TIED.vocab_size, (16, 32))
    reference = answer_reference(TIED, dtype, prompts)

    def judged(engine: OpenVinoBucketEngine) -> Any:
        return judge_answers(answer_visit(engine.answers(prompts), reference), dtype)

    settings: dict[str, Any] = {"buckets": (16, 32), "batch_size": 2, "dtype": dtype}
    right = judged(OpenVinoBucketEngine(TIED, cpu_plugin, **settings))
    assert right.verdict.kind is VerdictKind.PASSED, right.verdict.reason
    assert right.detail.num_pairs > 12
    broken = OpenVinoBucketEngine(TIED, cpu_plugin, **settings)
    broken.weights["layers"][1]["wo"][...] = 0
    assert judged(broken).verdict.kind is VerdictKind.FAILED


def test_half_precision(cpu_plugin: Any, make_twins: Callable[[str], Twins]) -> None:
    """fp16 weights answer as the oracle does with those same weights, where its margin is beyond fp16's rounding."""
    import jax

    from pytest_npubench.engines.openvino_dense.engine import OpenVinoBucketEngine

    engine = OpenVinoBucketEngine(TIED, cpu_plugin, buckets=(8, 16), batch_size=1, dtype="fp16")
    weights = jax.tree.map(lambda array: array.astype(np.float16), make_twins("tied").engine.weights)
    engine.weights = weights
    found = 0
    for seed in range(12):
        prompt = np.random.default_rng(seed).integers(0, TIED.vocab_size, 7, dtype=np.int32)
        answer = oracle.generate(TIED, oracle.exact(weights), prompt, 4)
        if answer.margin > 0.02:
            assert engine.generate([prompt], [4]).tokens == (answer.tokens,)
            found += 1
    assert found


def path(run: Run) -> list[tuple[Any, ...]]:
    steps = [(segment.phase, segment.bucket, segment.num_steps) for segment in run.segments]
    return [*steps, *((move.from_bucket, move.to_bucket) for move in run.moves)]


@pytest.mark.parametrize("lengths", BATCHES)
def test_the_path_is_the_jax_engines(make_twins: Callable[[str], Twins], lengths: Lengths) -> None:
    twins = make_twins("tied")
    requests = [Request(input_tokens=inputs, output_tokens=outputs) for inputs, outputs in lengths]
    mine, theirs = twins.engine.run(requests), twins.served.engine.run(requests)
    assert path(mine) == path(theirs)
    parts = [part.duration_s for part in (*mine.segments, *mine.moves)]
    assert min(parts) > 0
    assert mine.e2e_s >= sum(parts)


def test_what_is_compiled_and_when(cpu_plugin: Any) -> None:
    from pytest_npubench.engines.openvino_dense.engine import OpenVinoBucketEngine

    engine = OpenVinoBucketEngine(TIED, cpu_plugin, buckets=BUCKETS, batch_size=2)
    engine.load((8, 16))
    names = ["prefill-tied-b2-8", "decode-tied-b2-8", "prefill-tied-b2-16", "decode-tied-b2-16"]
    assert [record.name for record in engine.compiles] == names
    before = cpu_plugin.num_process_compiles
    engine.load((8, 16))
    engine.run([Request(input_tokens=3, output_tokens=9), Request(input_tokens=12, output_tokens=4)])
    assert engine.time_move(8, 16).duration_s > 0
    assert cpu_plugin.num_process_compiles == before
    assert len(engine.compiles) == 4


def test_a_move_copies_the_whole_cache(make_twins: Callable[[str], Twins]) -> None:
    engine = make_twins("tied").engine
    engine.load((8, 16))
    small, large = (engine._binaries[bucket] for bucket in (8, 16))
    for index, cache in enumerate(small._caches):
        cache[...] = np.arange(cache.size).reshape(cache.shape) + index
    engine.time_move(8, 16)
    for narrow, wide in zip(small._caches, large._caches, strict=True):
        np.testing.assert_array_equal(wide[:, :, :8], narrow)
