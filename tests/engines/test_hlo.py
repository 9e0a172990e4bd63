"""Sums over a module's text, against modules whose sums are known by construction."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_npubench.engines.hlo import parse


def line(name: str, shape: str, opcode: str, cycles: int = 0, rest: str = "") -> str:
    said = f', backend_config={{"window_config":{{"estimated_cycles":"{cycles}"}}}}' if cycles else ""
    return f"  %{name} = {shape} {opcode}(%a, %b){rest}{said}"


def module(entry: list[str], **others: list[str]) -> str:
    parts = [f"%{name} (p: f32[]) -> f32[] {{\n" + "\n".join(lines) + "\n}\n" for name, lines in others.items()]
    return (
        "HloModule jit_decode\n\n"
        + "\n".join(parts)
        + "\nENTRY %main (p: f32[8,2]) -> f32[] {\n"
        + "\n".join(entry)
        + "\n}\n"
    )


def test_the_largest_integer_says_that_there_is_no_estimate() -> None:
    entry = [line("a", "f32[8]{0}", "fusion", cycles=2**63 - 1), line("b", "f32[8]{0}", "fusion", cycles=10**17)]
    assert parse(module(entry)).total.cycles == 10**17


@st.composite
def loops(draw: st.DrawFn) -> tuple[str, int]:
    """A module of plain instructions and nested loops of known length, and the cycles of a run."""
    computations: dict[str, list[str]] = {}
    total = 0

    def body(depth: int) -> tuple[list[str], int]:
        lines, cycles = [], 0
        for index in range(draw(st.integers(0, 3))):
            own = draw(st.integers(1, 1000))
            lines.append(line(f"f{depth}.{index}", "bf16[8,128]{1,0:T(8,128)(2,1)}", "fusion", own, ", calls=%never"))
            cycles += own
        if depth < 3 and draw(st.booleans()):
            trips, (inner, own) = draw(st.integers(0, 9)), body(depth + 1)
            name = f"body{len(computations)}"
            computations[name] = inner
            known = f'"known_trip_count":{{"n":"{trips}"}}'
            rest = f", condition=%cond, body=%{name}, backend_config={{{known}}}"
            lines.append(line(f"w{depth}", "(s32[], bf16[8]{0:T(256)S(1)})", "while", rest=rest))
            cycles += trips * own
        return lines, cycles

    entry, total = body(0)
    computations["cond"] = [line("lt", "pred[]", "compare")]
    computations["never"] = [line("inner", "f32[8]", "add", 12345)]
    return module(entry, **computations), total


@given(loops())
def test_loops_count_as_often_as_they_run_and_fusions_once(made: tuple[str, int]) -> None:
    text, cycles = made
    assert parse(text).total.cycles == cycles


def test_a_loop_of_unknown_length_counts_once_and_is_told() -> None:
    text = module([line("w", "(s32[])", "while", rest=", condition=%c, body=%b1")], b1=[line("x", "f32[]", "add", 7)])
    assert (parse(text).total.cycles, parse(text).total.unknown_loops) == (7, 1)


def test_of_branches_the_dearest_counts() -> None:
    entry = [line("c", "f32[]", "conditional", rest=", branch_computations={%one, %two}")]
    text = module(entry, one=[line("x", "f32[]", "add", 7)], two=[line("y", "f32[]", "add", 9)])
    assert parse(text).total.cycles == 9


def test_copies_of_a_cache_are_told_from_those_of_weights_and_prefetches() -> None:
    cache = "bf16[8,2,128,64]{2,3,1,0:T(8,128)(2,1)}"
    weight = ", metadata={op_name=\"weights[\\'layers\\'][0][\\'wk\\']\"}"
    found = parse(
        module(
            [
                line("copy.1", cache, "copy", 100),
                line("copy.2", "bf16[2048,64]{0,1}", "copy", 100, weight),
                line("start", f"({cache}, {cache}, u32[])", "copy-start"),
                line("fused", cache, "fusion", 50, ", calls=%inside"),
                line("other", "bf16[8,2,128,32]{3,2,1,0}", "copy", 9),
            ],
            inside=[line("copy.9", cache, "transpose")],
        )
    )
    assert sorted(one.name for one in found.copies(8 * 2 * 128 * 64)) == ["copy.1", "copy.9"]
    assert sorted(one.name for one in found.copies(8 * 2 * 128 * 64, length=128)) == ["copy.1", "copy.9"]
    assert found.copies(8 * 2 * 128 * 64, length=256) == ()  # as a share of a weight with as many elements


def test_copies_of_an_argument_are_told_from_those_of_what_was_computed() -> None:
    shape = "bf16[8,128]{1,0}"
    text = module([f"  %p = {shape} parameter(0)", f"  %bit = {shape} bitcast(%p)", f"  %made = {shape} add(%p, %p)"])
    copies = [f"  %{name} = {shape} copy(%{name[1:]})" for name in ("cp", "cbit", "cmade")]
    found = parse(text.replace("\n}\n", "\n".join(["", *copies, "}", ""])))
    assert [one.name for one in found.copies(8 * 128)] == ["cp", "cbit", "cmade"]
    assert [one.name for one in found.copies(8 * 128, of_arguments=True)] == ["cp", "cbit"]


@pytest.mark.parametrize(
    ("source", "out", "counts", "of_argument"),
    [
        pytest.param("own", "bf16[8,128]{1,0}", True, False, id="what was computed, written anew"),
        pytest.param("cache", "bf16[8,128]{1,0}", True, True, id="the cache, written anew"),
        pytest.param("bit", "bf16[8,128]{1,0}", True, True, id="the cache in another shape"),
        pytest.param("cache", "f32[8,64]{1,0}", False, False, id="read in another order for a product"),
    ],
)
def test_a_gpu_copies_what_leaves_its_fusion(source: str, out: str, counts: bool, of_argument: bool) -> None:
    cache = "bf16[128,8]{1,0}"
    found = parse(
        "ENTRY %main (cache: bf16[128,8]) -> f32[] {\n"
        f"  %cache = {cache} parameter(0)\n  %own = {cache} add(%cache, %cache)\n  %bit = {cache} bitcast(%cache)\n"
        f"  ROOT %fused = {out} fusion(%own, /*index=1*/%{source}), kind=kCustom, calls=%inside\n}}\n\n"
        f"%inside (a: {cache}, b: {cache}) -> {out} {{\n  %a = {cache} parameter(0)\n  %b = {cache} parameter(1)\n"
        f"  %turned = bf16[8,128]{{1,0}} transpose(%b), dimensions={{1,0}}\n  ROOT %r = {out} add(%turned, %a)\n}}\n"
    )
    assert len(found.copies(8 * 128)) == len(found.copies(8 * 128, of_arguments=True)) == 1
    assert len(found.copies(8 * 128, written=True)) == counts
    assert len(found.copies(8 * 128, written=True, of_arguments=True)) == of_argument


def test_collectives_and_kernels_are_counted_with_their_bytes() -> None:
    kernel = ', custom_call_target="tpu_custom_call"'
    found = parse(
        module(
            [
                line("r", "bf16[8,2048]{1,0:T(8,128)(2,1)S(1)}", "all-reduce"),
                line("g", "(f32[4], f32[16])", "all-gather-start"),
                line("d", "f32[16]", "all-gather-done"),
                line("k", "(f32[8]{0}, bf16[8,128,64]{2,1,0:T(8,128)})", "custom-call", rest=kernel),
                line("b", "bf16[8]", "custom-call", rest=', custom_call_target="ConcatBitcast"'),
            ]
        )
    ).total
    assert (found.collectives, found.kernels) == (2, 1)
    assert found.collective_bytes == 2 * 8 * 2048 + 4 * 16


def test_a_text_without_an_entry_is_refused() -> None:
    with pytest.raises(ValueError, match="entry"):
        parse("HloModule nothing\n")


def _product_of_one_row(cycles: int, kind: str = "kLoop", op: str = "jit(decode)/bm,vm->bv/dot_general") -> str:
    rest = f', kind={kind}, calls=%product, metadata={{op_name="{op}"}}'
    return line("multiply_reduce_fusion", "f32[1000]{0:T(1024)S(1)}", "fusion", cycles, rest)


PRODUCT = [
    line("p0", "bf16[1000,400]{1,0:T(8,128)(2,1)}", "parameter"),
    line("p1", "bf16[400]{0:T(512)}", "parameter"),
    line("m", "f32[1000,400]{1,0:T(8,128)}", "multiply"),
    line("r", "f32[1000]{0:T(1024)}", "reduce"),
]
PRODUCT_BYTES = 1000 * 400 * 2 + 400 * 2 + 1000 * 4


def test_products_of_one_row_are_told_with_their_bytes() -> None:
    loop = line("w", "(s32[])", "while", rest=', body=%body, backend_config={"known_trip_count":{"n":"3"}}')
    total = parse(module([_product_of_one_row(700), loop], product=PRODUCT, body=[_product_of_one_row(50)])).total
    assert (total.cycles, total.vector_cycles) == (700 + 3 * 50, 700 + 3 * 50)
    assert total.vector_bytes == 4 * PRODUCT_BYTES


@pytest.mark.parametrize(
    "fused",
    [
        pytest.param(_product_of_one_row(700, kind="kOutput"), id="on the matrix unit"),
        pytest.param(_product_of_one_row(700, op="jit(decode)/rms_norm/mul"), id="a norm"),
        pytest.param(_product_of_one_row(700).replace("%product", "%lost"), id="nothing to see"),
    ],
)
def test_other_fusions_are_no_products_of_one_row(fused: str) -> None:
    total = parse(module([fused], product=PRODUCT)).total
    assert (total.cycles, total.vector_cycles, total.vector_bytes) == (700, 0, 0)


def test_what_cuts_an_array_out_makes_one_and_what_fetches_it_does_not() -> None:
    """Eight matrices of a layer, of four layers, as a TPU's compiler writes them."""
    module = parse(
        """ENTRY %main (p: bf16[4,8,16,32]) -> bf16[8,16,32] {
  %p = bf16[4,8,16,32]{3,2,1,0} parameter(0)
  %fetch = ((bf16[4,8,16,32]{3,2,1,0}), bf16[1,8,16,32]{3,2,1,0:S(1)}, s32[]) slice-start(%p), slice={[0:1]}
  %there = bf16[1,8,16,32]{3,2,1,0:S(1)} slice-done(%fetch)
  %cut = bf16[1,8,16,32]{3,2,1,0} dynamic-slice(%p, %i), dynamic_slice_sizes={1,8,16,32}
  ROOT %layer = bf16[8,16,32]{2,1,0} bitcast(%cut)
}
"""
    )
    assert [one.name for one in module.made(8 * 16 * 32)] == ["cut"]
