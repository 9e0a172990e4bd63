"""The options of pytest under the strange values that npubench's are tried with: a value or a named error."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from cli.option_fuzz import VALUES

from pytest_npubench.plugin.options import OPTIONS
from pytest_npubench.plugin.settings import Settings


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_a_strange_value_is_taken_or_named(option, tmp_path):
    """From the command line and from an ini file alike."""
    num_named = 0
    for value in (*VALUES, "a\0b", "n" * 300 + ".html"):
        for place in ("flag", "ini"):
            config = SimpleNamespace(
                getoption=lambda key, place=place, value=value: (
                    value if (key, place) == (option.key, "flag") else None if key.startswith("npubench_") else False
                ),
                getini=lambda key, place=place, value=value: value if (key, place) == (option.key, "ini") else None,
                invocation_params=SimpleNamespace(dir=tmp_path),
                rootpath=tmp_path,
                inipath=Path("x"),
                option=SimpleNamespace(rootdir=None),
            )
            said = ""
            try:
                Settings.from_pytest_config(config)
            except pytest.UsageError as error:
                said = str(error)
                num_named += 1
            assert said.isprintable(), value
            assert not said or option.flag in said or option.key in said, value
    assert num_named or option.read is str or option.name in ("require", "compare_across")
