"""The kernel's bundles, against a program whose loop and branches are known."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_npubench.extensions.compilers.compiled.attention_bundles import KernelBundles, parse_bundles

LENGTHS = st.integers(1, 40)


def program(before: int, step: int, branches: list[int], own_steps: int) -> str:
    """`before` bundles, and a loop: all but its first and last are skipped in the pipeline's first and last step, and
    every branch jumps over so many."""
    lines = ["v.add"] * before
    begin = len(lines)
    lines.append("{ nop } /* Start region 1 :: Start region 2 */")
    lines.append("sbr.rel (%p0) target = $region90")
    for number, length in enumerate(branches, 10):
        lines.append(f"{{ x ;; %5 = sbr.rel (%p{number}) target = $region{number} }}")
        lines += ["v.mul"] * (length - 1)
        lines.append(f"{{ }} /* Start/End empty region {number} :: Start region {100 + number} */")
    lines += ["v.add"] * (step - 4 - len(branches))
    lines.append("{ } /* Start/End empty region 90 */")
    lines.append(f"{{ %p1 = scmp.ge.s32.totalorder %s1, {own_steps + 2} /* loop exit test */ }}")
    lines.append("{ 31 = sbr.rel (!%p1) target = $region1 }")
    assert len(lines) - begin == step + sum(branches) + 1
    marked = [f"{number:#6x} {'LB' if number == begin else '  '}: > {line}" for number, line in enumerate(lines)]
    return "= control target key start\nLB: loop body\n\n" + "\n".join(marked) + "\n"


@given(before=st.integers(0, 9), step=st.integers(8, 60), branches=st.lists(LENGTHS, min_size=1, max_size=3))
def test_the_longest_branch_is_a_block_and_the_others_a_row(before: int, step: int, branches: list[int]) -> None:
    found = parse_bundles(program(before, step, branches, own_steps=8), 16)
    assert found == KernelBundles(block=max(branches), row=sum(branches) - max(branches), step=step, cores=2)


@given(num_blocks=st.integers(1, 12), block=LENGTHS, row=LENGTHS, step=LENGTHS)
def test_a_head_computes_the_blocks_on_and_below_the_diagonal(num_blocks: int, block: int, row: int, step: int) -> None:
    cycles = 0
    for query in range(num_blocks):
        cycles += row
        for key in range(num_blocks):
            cycles += step + (block if key <= query else 0)
    assert KernelBundles(block=block, row=row, step=step, cores=2).cycles(num_blocks) == cycles / 2


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="nothing"),
        pytest.param("0x0 : { halt }\n", id="no loop"),
        pytest.param(program(3, 9, [20], own_steps=5), id="steps that are no share of all"),
        pytest.param(program(0, 9, [20], own_steps=8) * 2, id="two loops"),
    ],
)
def test_another_program_is_not_priced(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - which of the reasons does not matter
        parse_bundles(text, 16)
