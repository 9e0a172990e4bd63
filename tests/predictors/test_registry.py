"""Every predictor that is there keeps the contract; a name is known, unknown or taken, and says so."""

import math
from dataclasses import replace

import pytest

from pytest_npubench.core import registry
from pytest_npubench.core.measurement import CacheState, CompileRecord, Request
from pytest_npubench.errors import MeasurementError, NpubenchError, RegistryError
from pytest_npubench.predictors import names, predictor, rivals
from pytest_npubench.predictors.protocol import PartSamples, ProfileSamples
from pytest_npubench.predictors.two_point import ProfilePoint, plan_points

TTFT_S = {64: 0.010, 128: 0.018, 256: 0.037}
TBT_S = {64: 0.002, 128: 0.003, 256: 0.005}
COMPILES = tuple(CompileRecord(name=f"prefill-{b}", compile_s=0.5, cache=CacheState.COLD) for b in TTFT_S)


def e2e_s(point: ProfilePoint, batch_size: int) -> float:
    """Of a profile point, whose every part is in its own bucket."""
    return batch_size * TTFT_S[point.bucket] + (point.output_tokens - 1) * TBT_S[point.bucket]


def made(batch_size: int = 2) -> ProfileSamples:
    points = plan_points(tuple(TTFT_S), output_tokens=9)
    return ProfileSamples(
        samples_s={point: (e2e_s(point, batch_size),) * 3 for point in points},
        batch_size=batch_size,
        finished="freeze",
        compiles=COMPILES,
        moves_s={128: (0.001,), 256: (0.002,)},
        move_compiles=(CompileRecord(name="move-64-128", compile_s=0.25, cache=CacheState.COLD),),
        parts=PartSamples(
            num_layers=4,
            shallow_s={depth: {point: (e2e_s(point, batch_size) * depth / 4,) for point in points} for depth in (1, 2)},
            parts_s={
                part: (0.001,) if part.operator else (0.004, 0.005)
                for name in names()
                for part in predictor(name).parts(tuple(TTFT_S))
            },
        ),
    )


def doubled(samples: ProfileSamples) -> ProfileSamples:
    """Every time in it twice as long."""

    def twice(own):
        return {key: [2 * one for one in values] for key, values in own.items()}

    parts = replace(
        samples.parts,
        shallow_s={depth: twice(own) for depth, own in samples.parts.shallow_s.items()},
        parts_s=twice(samples.parts.parts_s),
    )
    return replace(samples, samples_s=twice(samples.samples_s), moves_s=twice(samples.moves_s), parts=parts)


BATCH = (Request(input_tokens=50, output_tokens=12), Request(input_tokens=90, output_tokens=4))
every_predictor = pytest.mark.parametrize("name", [name for name in names() if not predictor(name).basis])
"""Two are fitted on no measurement (test_compiler.py, test_aiconfigurator.py)."""


def test_ours():
    assert names()[:3] == ("lens", "aiconfigurator", "compiler")
    assert rivals(["all"]) == names()[1:]
    assert rivals(["linear", "lens", "linear"]) == ("linear",)


@every_predictor
def test_contract(name):
    found, samples = predictor(name), made()
    assert found.name == name
    assert found.about
    fitted = found.fit(samples)
    assert math.isfinite(fitted.predict(BATCH))
    assert fitted.predict(BATCH) == found.fit(samples).predict(BATCH)
    assert found.fit(doubled(samples)).predict(BATCH) == pytest.approx(2 * fitted.predict(BATCH)), "seconds in and out"
    cost = found.cost(samples)
    assert cost.total_s == pytest.approx(cost.compile_s + cost.measure_s)
    assert found.cost(doubled(samples)).measure_s == pytest.approx(2 * cost.measure_s)
    if not (found.depths or found.parts((64,))) and name != "lens":
        assert (cost.binaries, cost.points, cost.repeats) == (3, 6, 3)
        assert cost.compile_s == pytest.approx(1.5)
        assert cost.measure_s == pytest.approx(sum(sum(own) for own in samples.samples_s.values()))


def test_the_cost_of_lens_has_the_moves_of_the_cache_and_the_rest_is_that_of_lens_without_them():
    samples = made()
    own, without = (predictor(name).cost(samples) for name in ("lens", "lens_without_moves"))
    assert (own.points - without.points, own.binaries - without.binaries) == (2, 1)
    assert own.measure_s - without.measure_s == pytest.approx(0.003)
    assert own.compile_s - without.compile_s == pytest.approx(0.25)


def test_the_printed_equations_have_a_step_more_in_each_request():
    """TTFT of the literal fit is a step short, and the batch's longest answer of 12 a step longer: one move is missing,
    and each further prefill is half a step short at batch size two."""
    exact, literal = (predictor(name).fit(made()).predict(BATCH) for name in ("lens", "lens_literal"))
    assert literal == pytest.approx(exact - 0.001 - (TBT_S[64] + TBT_S[128]) / 2 + TBT_S[128])


@every_predictor
def test_no_samples_are_a_named_error(name):
    with pytest.raises(NpubenchError):
        predictor(name).fit(ProfileSamples(samples_s={}, batch_size=1)).predict(BATCH)


def test_lens_is_exact_where_latency_is_a_stair_and_the_line_is_not():
    """50 in, 12 out freezes at 61; 90 in, 4 out at 93: prefills of 64 and 128, 11 steps in 128."""
    measured_s = TTFT_S[64] + TTFT_S[128] + 11 * TBT_S[128]
    assert predictor("lens").fit(made()).predict(BATCH) == pytest.approx(measured_s + 0.001)
    assert predictor("lens_without_moves").fit(made()).predict(BATCH) == pytest.approx(measured_s)
    assert predictor("linear").fit(made()).predict(BATCH) != pytest.approx(measured_s, rel=0.01)


def test_the_line_is_exact_where_latency_is_one():
    """3 ms + 0.05 ms a prompt token + 2 ms a token out, whatever the bucket; a batch has all of its prompts' tokens."""

    def seconds(inputs: int, longest: int) -> float:
        return 0.003 + 0.00005 * inputs + 0.002 * longest

    samples = {
        point: (seconds(2 * point.input_tokens, point.output_tokens),)
        for point in plan_points((64, 128), output_tokens=9)
    }
    line = predictor("linear").fit(ProfileSamples(samples_s=samples, batch_size=2))
    assert line.predict(BATCH) == pytest.approx(seconds(140, 12))
    assert (line.intercept_s, line.input_token_s, line.output_token_s) == pytest.approx((0.003, 0.00005, 0.002))


def test_one_bucket_tells_no_line():
    samples = dict.fromkeys(plan_points((64,), output_tokens=9), (0.1,))
    with pytest.raises(MeasurementError, match=r"^2 profile points tell no line: want two prompt lengths"):
        predictor("linear").fit(ProfileSamples(samples_s=samples, batch_size=1))


@pytest.mark.parametrize("name", ["", "lense", "band", "protocol", "../lens", "all"])
def test_an_unknown_one_is_named_with_the_known_ones(name):
    with pytest.raises(RegistryError, match=rf"known: {', '.join(names())}, or all($|; did you mean '\w+'\?$)"):
        predictor(name)


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (type("Module", (), {"PREDICTOR": object()}), "does not define PREDICTOR of name 'linear'"),
        (type("Module", (), {"PREDICTOR": predictor("lens")}), "does not define PREDICTOR of name 'linear'"),
    ],
)
def test_a_file_that_holds_something_else(monkeypatch, module, words):
    monkeypatch.setattr(registry, "import_module", lambda path: module)
    with pytest.raises(RegistryError, match=rf"^predictors/linear\.py {words}$"):
        predictor("linear")
