"""Text of others as a terminal may show it: every sign of Unicode is tried."""

from __future__ import annotations

import sys
import unicodedata

import pytest

from pytest_npubench.core.plain_table import PlainTable, cell, plain_console, written
from pytest_npubench.errors import ConfigError, LengthError
from pytest_npubench.plain_text import plain, plain_lines

OBEYED = {"Cc", "Cf", "Cs", "Zl", "Zp"}


def test_no_sign_that_a_terminal_obeys_or_hides_is_left_and_no_other_is_changed() -> None:
    everything = "".join(map(chr, range(sys.maxunicode + 1)))
    shown = plain(everything)
    assert {unicodedata.category(sign) for sign in shown}.isdisjoint(OBEYED)
    harmless = [sign for sign in everything if unicodedata.category(sign) not in OBEYED]
    assert plain("".join(harmless)) == "".join(harmless)
    assert plain_lines(everything).count("\n") == 1
    shown.encode("utf-8")  # halves of surrogate pairs are gone too


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J", r"\x1b[2J"),
        ("a\r\nb", r"a\r\nb"),
        ("\u202etset", r"\u202etset"),
        ("\udcff", r"\udcff"),
        ("\U000e0041", r"\U000e0041"),
        ("41 °C, 模型, ▁▂", "41 °C, 模型, ▁▂"),
        ("a ##[error]b", r"a \u0023#[error]b"),
        ("###[add-mask]", r"#\u0023#[add-mask]"),
        ("##vso[task.x]", r"\u0023#vso[task.x]"),
        ("  ::Error file=x::", r"  \u003a:Error file=x::"),
        ("x::stop-commands::y", r"x\u003a:stop-commands::y"),
        ("::add-mask", r"\u003a:add-mask"),
        ("## [a](b) a.py::TestError::test_error[x]", "## [a](b) a.py::TestError::test_error[x]"),
    ],
)
def test_it_is_shown_as_python_writes_it(text: str, shown: str) -> None:
    assert plain(text) == shown


@pytest.mark.parametrize("error", [ConfigError, LengthError])
def test_an_error_of_ours_is_one_plain_line(error: type[Exception]) -> None:
    assert str(error("no file \x1b[2J\n::error::\u202e")) == r"no file \x1b[2J \u003a:error::\u202e"


def test_a_table_takes_its_cells_as_they_stand() -> None:
    table = PlainTable("[/a]", title="[/t]", caption=":warning: [c]")
    table.add_column("two\nlines")
    table.add_row("[/data/model]", "x[int8] :warning:")
    table.add_row(cell("[/INST]", "red"), "\x1b[2J\n::error::")
    console = plain_console(80)
    console.print(table)
    text = written(console)
    for part in (
        "[/a]",
        "[/t]",
        ":warning: [c]",
        "[/data/model]",
        "x[int8] :warning:",
        "[/INST]",
        r"\x1b[2J\n\u003a:error",
    ):
        assert part in text
    assert {unicodedata.category(sign) for sign in text.replace("\n", "")}.isdisjoint(OBEYED)
