"""Faults planted in the reference decoder's jax functions and weights: each turns the answers red, harmless changes
do not."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="jax is not installed")

import jax.numpy as jnp  # noqa: E402 - after the skip above
from small_decoders import small_decoder  # noqa: E402

from pytest_npubench.campaign.answer_judgement import judge_answers  # noqa: E402
from pytest_npubench.campaign.answer_visit import AnswerVisit, answer_visit  # noqa: E402
from pytest_npubench.engines.answer_reference import AnswerReference, answer_reference  # noqa: E402
from pytest_npubench.engines.jax_dense import binaries, engine, forward, layers  # noqa: E402
from pytest_npubench.engines.jax_dense.engine import StaticBucketEngine  # noqa: E402
from pytest_npubench.engines.jax_dense.graph_form import PORTABLE  # noqa: E402
from pytest_npubench.engines.probe import fixed_tokens, probe_prompts, probe_weights, rounded  # noqa: E402
from pytest_npubench.errors import MeasurementError  # noqa: E402
from pytest_npubench.verdict import VerdictKind  # noqa: E402
from pytest_npubench.verdict.answers import where_beyond  # noqa: E402

SHAPE = small_decoder("answering")
BUCKETS = (32, 64)
PROMPTS = probe_prompts(SHAPE.vocab_size, BUCKETS)
Patch = Callable[[pytest.MonkeyPatch], None]


@pytest.fixture(scope="module")
def references() -> dict[str, AnswerReference]:
    return {dtype: answer_reference(SHAPE, dtype, PROMPTS) for dtype in ("fp32", "bf16")}


@pytest.fixture(scope="module")
def sound(runtime: Any) -> StaticBucketEngine:
    """An engine without a fault, compiled once."""
    return StaticBucketEngine(SHAPE, runtime, buckets=BUCKETS, batch_size=2)


@pytest.fixture(scope="module")
def visit(sound: StaticBucketEngine, references: dict[str, AnswerReference]) -> AnswerVisit:
    return checked(sound, references["fp32"])


def checked(made: StaticBucketEngine, reference: AnswerReference) -> AnswerVisit:
    return answer_visit(made.answers(PROMPTS), reference)


# -- faults


def attends(visible: Callable[[Any, Any], Any]) -> Patch:
    """A prompt's attention in which query i sees key j where visible(i, j)."""

    def attend(q: Any, k: Any, v: Any) -> Any:
        rows, length, heads, width = q.shape
        groups = heads // k.shape[1]
        flat = jnp.moveaxis(q.reshape(rows, length, k.shape[1], groups, width), 1, 3)
        seen = jnp.tile(visible(jnp.arange(length)[:, None], jnp.arange(length)[None, :]), (groups, 1))
        mixed = layers._softmax_weighted(flat.reshape(rows, k.shape[1], groups * length, width), k, v, seen)
        return jnp.moveaxis(mixed.reshape(flat.shape), 3, 1).reshape(q.shape)

    return in_form(attend_prompt=attend)


def in_form(**changes: Any) -> Patch:
    form = dataclasses.replace(PORTABLE, **changes)
    return lambda patch: patch.setattr(binaries, "graph_form", lambda platform, mesh: form)


def forwards(name: str, change: Callable[..., Any]) -> Patch:
    """forward.NAME replaced: the change is given the true one first."""
    return lambda patch: patch.setattr(forward, name, partial(change, getattr(forward, name)))


def with_weights(change: Callable[[str, int, Any], Any]) -> Patch:
    """Each tensor by its name and layer (-1: of none), as the device gets it."""

    def made(shape: Any, dtype: str, place: Any) -> Any:
        def changed(path: Any, values: Any) -> Any:
            return place(path, change(path[-1], path[1] if len(path) > 1 else -1, values).astype(np.float32))

        return probe_weights(shape, dtype, changed)

    return lambda patch: patch.setattr(engine, "probe_weights", made)


def int8(name: str, layer: int, values: Any) -> Any:
    """Per channel."""
    if values.ndim < 2:
        return values
    scale = np.abs(values).max(axis=0, keepdims=True) / 127
    return np.round(values / scale) * scale


def zero(*names: str, layer: int | None = None) -> Patch:
    return with_weights(
        lambda name, index, values: values * (0 if name in names and layer in (None, index) else 1),
    )


def silent(name: str, layer: int, values: Any) -> Any:
    return values * 0 if values.ndim > 1 else values


def swapped_feed_forward(true: Any, layer: Any, x: Any, **form: Any) -> Any:
    return true({**layer, "w_gate": layer["w_up"], "w_up": layer["w_gate"]}, x, **form)


def keys_alone(true: Any, source: Any, target: Any) -> Any:
    return true(source, target)._replace(values=target.values)


def lost_shard(true: Any, *arguments: Any) -> Any:
    return true(*arguments).at[:, 3 * SHAPE.vocab_size // 4 :].set(0.0)


def decoded(change: Callable[[Any, Any], Any]) -> Patch:
    """A step whose hidden states [N, hidden] and caches are changed."""
    return forwards("decode_hidden", lambda true, *arguments, **form: change(*true(*arguments, **form)))


def turned(change: Callable[[Any, Any, Any], Any]) -> Patch:
    return forwards("project_qkv", lambda true, layer, x, positions, shape: change(true, (layer, x, positions), shape))


def skewed(true: Any, given: Any, shape: Any) -> Any:
    layer, x, positions = given
    return true(layer, x, positions + (1 if x.shape[1] == 1 else 0), shape)


def other_group(true: Any, given: Any, shape: Any) -> Any:
    q, k, v = true(*given, shape)
    return q, jnp.flip(k, axis=2), jnp.flip(v, axis=2)


def in_the_middle(hidden: Any, caches: Any, lengths: Any) -> Any:
    """The steps of the largest bucket at 46, 47 and 48 alone are wrong."""
    is_hit = (caches.keys[0].shape[2] == BUCKETS[-1]) & (lengths >= 46) & (lengths < 49)
    return jnp.where(is_hit[:, None], jnp.roll(hidden, 1, axis=-1), hidden), caches


def sees(extra: int) -> Patch:
    return forwards("attend_step", lambda true, q, k, v, lengths: true(q, k, v, lengths + extra))


IN_THE_WEIGHTS: dict[str, Patch] = {
    "the last layer adds no attention": zero("wo", layer=1),
    "a layer skipped": zero("wo", "w_down", layer=0),
    "weights of int8, per channel": with_weights(int8),
    "weights of fp16": with_weights(lambda name, layer, values: rounded(values, "fp16")),
}
IN_THE_BINARIES: dict[str, tuple[Patch, bool]] = {  # and whether the pairs see it without any reference
    "no causal mask": (attends(lambda i, j: i + j >= 0), True),
    "a mask that shows the next token": (attends(lambda i, j: j <= i + 1), True),
    "a window of 8 tokens in prefill": (attends(lambda i, j: (j <= i) & (j > i - 8)), True),
    "a step sees one key behind its row": (sees(1), True),
    "a step does not see its own key": (sees(-1), True),
    "keys written one place late": (in_form(write_step=lambda c, n, at: PORTABLE.write_step(c, n, at + 1)), True),
    "a step at the wrong position": (turned(skewed), True),
    "rows swapped in a step": (decoded(lambda hidden, caches: (jnp.flip(hidden, axis=0), caches)), True),
    "a move that forgets the values": (forwards("move", keys_alone), True),
    "steps in the middle of a bucket": (
        forwards(
            "decode_hidden",
            lambda true, *arguments, **form: in_the_middle(*true(*arguments, **form), arguments[-1].lengths),
        ),
        False,
    ),
    "gate and up swapped": (forwards("feed_forward", swapped_feed_forward), False),
    "another key-value head": (turned(other_group), False),
    "a lost shard of the vocabulary": (forwards("logits", lost_shard), False),
    "rotation of twice the base": (
        lambda patch: patch.setattr(
            layers, "rope_frequencies", lambda shape: _frequencies(dataclasses.replace(shape, rope_theta=20_000.0))
        ),
        False,
    ),
}
_frequencies = layers.rope_frequencies


@pytest.mark.parametrize("name", IN_THE_WEIGHTS)
def test_a_fault_in_the_weights_is_seen(
    name: str, sound: StaticBucketEngine, references: dict[str, AnswerReference], monkeypatch: pytest.MonkeyPatch
) -> None:
    IN_THE_WEIGHTS[name](monkeypatch)
    found = judge_answers(checked(sound, references["fp32"]), "fp32")
    assert found.verdict.kind is VerdictKind.FAILED, found.verdict.reason
    assert "answers wrong" in found.verdict.reason
    assert ("fewer bits" in found.verdict.reason) is name.startswith("weights of")
    assert not found.detail.inconsistent, "pairs cannot see what is wrong everywhere"


@pytest.mark.parametrize("name", IN_THE_BINARIES)
def test_a_fault_in_the_binaries_is_seen(
    name: str, runtime: Any, references: dict[str, AnswerReference], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant, by_pairs = IN_THE_BINARIES[name]
    plant(monkeypatch)
    visit = checked(StaticBucketEngine(SHAPE, runtime, buckets=BUCKETS, batch_size=2), references["fp32"])
    found = judge_answers(visit, "fp32")
    assert found.verdict.kind is VerdictKind.FAILED, found.verdict.reason
    assert "answers wrong" in found.verdict.reason
    alone = judge_answers(dataclasses.replace(visit, errors=()), "fp32")
    if name.startswith("steps in the middle"):
        assert "only prompts of 52 tokens, only steps inside of them: at 47" in found.verdict.reason
    assert bool(alone.detail.inconsistent) is by_pairs, alone.verdict.reason


def test_matrices_of_zero_are_invalid(
    sound: StaticBucketEngine, references: dict[str, AnswerReference], monkeypatch: pytest.MonkeyPatch
) -> None:
    with_weights(silent)(monkeypatch)
    with pytest.raises(MeasurementError, match="answers say nothing: all logits are alike at 80 of 80 positions"):
        checked(sound, references["fp32"])


def test_zero_weights_are_invalid_where_they_are_timed(
    sound: StaticBucketEngine, references: dict[str, AnswerReference], monkeypatch: pytest.MonkeyPatch
) -> None:
    seeded = sound._seeded_weights()
    monkeypatch.setattr(StaticBucketEngine, "_seeded_weights", lambda self: jax.tree.map(lambda one: one * 0, seeded))
    with pytest.raises(MeasurementError, match="on the weights that are timed say nothing: all logits are alike at 13"):
        checked(sound, references["fp32"])


def test_other_greedy_tokens_are_seen_where_the_fixed_logits_are_right(
    runtime: Any, references: dict[str, AnswerReference], monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = forward._chosen
    monkeypatch.setattr(forward, "_chosen", lambda *arguments: (lambda t, f: (t * 0 + 7, f))(*chosen(*arguments)))
    made = StaticBucketEngine(SHAPE, runtime, buckets=BUCKETS, batch_size=2)
    found = judge_answers(checked(made, references["fp32"]), "fp32")
    assert found.verdict.kind is VerdictKind.FAILED
    assert "answers right" in found.verdict.reason
    assert "greedy tokens are not float64's: prompts of 5, 24, 32, 33, 52 tokens" in found.verdict.reason


@pytest.mark.parametrize("fault", ["another row's", "no number"])
def test_every_row_of_a_large_batch_is_looked_at(
    fault: str, runtime: Any, references: dict[str, AnswerReference], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that no prompt of the larger bucket is in."""

    def halved(hidden: Any, caches: Any) -> Any:
        rows = jnp.arange(len(hidden))[:, None, None] < (8 if caches.keys[0].shape[2] == BUCKETS[-1] else 99)
        wrong = jnp.roll(hidden, 1, axis=0) if fault == "another row's" else jnp.nan
        return jnp.where(rows.reshape(-1, *(1,) * (hidden.ndim - 1)), hidden, wrong), caches

    decoded(halved)(monkeypatch)
    made = StaticBucketEngine(SHAPE, runtime, buckets=BUCKETS, batch_size=9)
    if fault == "no number":
        with pytest.raises(MeasurementError, match="answers are not finite at"):
            checked(made, references["fp32"])
    else:
        assert "every row" in judge_answers(checked(made, references["fp32"]), "fp32").detail.inconsistent


HARMLESS: dict[str, dict[str, Any]] = {
    "a batch of one": {"batch_size": 1},
    "a batch of nine": {"batch_size": 9},
    "one bucket": {"buckets": (64,)},
    "three buckets": {"buckets": (16, 32, 64)},
    "in bf16": {"dtype": "bf16"},
}


@pytest.mark.parametrize("name", HARMLESS)
def test_what_is_harmless_is_not(name: str, runtime: Any, references: dict[str, AnswerReference]) -> None:
    settings = HARMLESS[name]
    dtype = settings.get("dtype", "fp32")
    made = StaticBucketEngine(SHAPE, runtime, **{"buckets": BUCKETS, "batch_size": 2, **settings})
    own = jax.tree.map(np.array, made.weights)
    found = judge_answers(answer_visit(made.answers(PROMPTS), references[dtype]), dtype)
    assert found.verdict.kind is VerdictKind.PASSED, found.verdict.reason
    assert found.detail.num_pairs > 12
    assert {metric.name for metric in found.metrics} == {
        "answer_change",
        "answer_error",
        "inconsistent_pairs",
        "weights_bits",
    }
    back = jax.tree.map(lambda before, now: bool((before == np.asarray(now)).all()), own, made.weights)
    assert jax.tree.all(back), "the engine's own weights are other ones than before"


def test_op_by_op_is_harmless(runtime: Any, references: dict[str, AnswerReference]) -> None:
    """Without a compiler, and so with another order of every sum: the shortest and the longest exact prompt, nothing
    padded."""
    tree = jax.tree.map(jnp.asarray, probe_weights(SHAPE, "fp32"))
    fixed = np.array(fixed_tokens(SHAPE.vocab_size))
    with jax.disable_jit():
        for index in (0, len(PROMPTS.lengths) - 1):
            prompt = PROMPTS.prompt(index)
            shape = (1, SHAPE.num_kv_heads, len(prompt), SHAPE.head_dim)
            caches = forward.Caches(*((jnp.zeros(shape),) * SHAPE.num_layers for _ in range(2)))
            hidden, _ = forward.prefill_hidden(SHAPE, tree, caches, prompt, jnp.int32(len(prompt)), jnp.int32(0))
            logits = np.asarray(forward.logits(SHAPE, tree, hidden), np.float64)[0, fixed]
            wanted = references["fp32"].logits[index, 0]
            apart = np.linalg.norm(logits - logits.mean() - wanted + wanted.mean())
            assert apart / np.linalg.norm(wanted - wanted.mean()) < 4 * references["fp32"].largest


def test_a_visit_is_read_back_from_its_columns(visit: AnswerVisit) -> None:
    (again,) = AnswerVisit.of_columns(visit.columns())
    assert again == visit
    assert any(value < 0 for value in visit.logits)
    assert len(visit.logits) == len(PROMPTS.lengths) * visit.num_positions * 16
    with pytest.raises(MeasurementError, match="another version"):
        AnswerVisit.of_columns({"logits": (1.0,)})


def test_weights_that_changed_on_their_way_fail(visit: AnswerVisit) -> None:
    assert visit.weights_bits == visit.made_bits
    changed = judge_answers(dataclasses.replace(visit, weights_bits=1), "fp32")
    assert changed.verdict.kind is VerdictKind.FAILED
    assert "weights changed" in changed.verdict.reason


def test_words_of_what_was_seen(visit: AnswerVisit) -> None:
    assert "answers right" in judge_answers(visit, "fp32").verdict.reason
    without = judge_answers(dataclasses.replace(visit, errors=()), "fp32").verdict.reason
    assert without.startswith("answers consistent, not compared")
    errors = list(visit.errors)
    errors[visit.num_positions + 5] = 1.0
    wrong = judge_answers(dataclasses.replace(visit, errors=tuple(errors)), "fp32").verdict
    assert f"only prompts of {visit.lengths[1]} tokens, from step 5; prefill agrees" in wrong.reason


@pytest.mark.parametrize(
    ("apart", "said"),
    [
        ((0, 0, 0, 0, 0, 0), ""),
        ((0, 0, 9, 0, 0, 0), "only prompts of 5 tokens, from step 2; prefill agrees"),
        ((9, 0, 0, 0, 0, 0), "only prompts of 5 tokens; steps agree"),
        ((9, 9, 0, 0, 0, math.nan), "at all prompts"),
    ],
)
def test_where_answers_lie_apart(apart: tuple[float, ...], said: str) -> None:
    assert where_beyond(apart, (5, 120), 3, 1.0) == said


def test_where_steps_inside_of_prompts_lie_apart() -> None:
    """Two places in each prompt, behind a prefill and a step."""
    middles = (2, 3, 70, 90)
    said = where_beyond((0, 0, 0, 0, 0, 0, 0, 9), (5, 120), 4, 1.0, middles)
    assert said == "only prompts of 120 tokens, only steps inside of them: at 90"
    assert where_beyond((0, 9, 9, 0, 0, 0, 0, 0), (5, 120), 4, 1.0, middles).endswith("from step 1; prefill agrees")
