"""Each setting's order of places and its wrong values."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_npubench import suites
from pytest_npubench.core.run_folders import RunFolders, short_path
from pytest_npubench.errors import ConfigError
from pytest_npubench.plugin.options import FLAGS, OPTIONS
from pytest_npubench.plugin.settings import REMEASURING, Settings
from pytest_npubench.store.history.address import parse_address
from pytest_npubench.store.journal import recorded


def test_defaults(settings, pytester):
    found = settings()
    assert (found.profile, found.require, found.devices) == ("quick", (), None)
    assert (found.hardware, found.report, found.compile_cache) == (None, None, None)
    unset = {"case_error": None, "mean_error": None, "predictors": (), "active_band": None}
    unset |= {"transfer": None, "no_graphs": False}
    of_extensions = {"pair": None}
    assert {**of_extensions, **found.of_suites} == unset | of_extensions
    assert (found.lock_timeout, found.probe_timeout) == (10.0, 120.0)
    assert (found.accept, found.resume) == (False, False)
    assert (found.margin, found.remeasure, found.compare_across) == (0.01, 2, ())
    assert (found.other_load, found.history, found.shard, found.durations) == (0.5, None, None, None)
    assert found.require_judged is None
    assert found.baselines == pytester.path / "baselines"
    assert found.journal == pytester.path / ".npubench" / "journal.jsonl"


def test_command_line_before_ini_before_table(settings):
    table = '[tool.npubench]\nprofile = "full"\nlock_timeout = 3\nprobe_timeout = 4\n'
    ini = "npubench_profile = nightly\nnpubench_lock_timeout = 2\n"
    found = settings("--npubench-profile", "quick", ini=ini, table=table)
    assert (found.profile, found.lock_timeout, found.probe_timeout) == ("quick", 2.0, 4.0)
    assert settings(ini=ini, table=table).profile == "nightly"
    assert settings(table=table).profile == "full"


def test_the_table_takes_toml_lists_and_numbers(settings):
    table = '[tool.npubench]\nrequire = ["tpu", "mini"]\ndevices = [0, 2]\ncase_error = 0.05\nmean_error = 1\n'
    found = settings(table=table)
    assert (found.require, found.devices) == (("tpu", "mini"), (0, 2))
    assert (found.of_suites["case_error"], found.of_suites["mean_error"]) == (0.05, 1.0)
    table = '[tool.npubench]\ncompare_across = ["driver", "runtime"]\nshard = "2/3"\nremeasure = 0\nmargin = 0\n'
    found = settings(table=table)
    assert (found.compare_across, found.shard) == (("driver", "runtime"), (2, 3))
    assert (found.remeasure, found.margin) == (0, 0.0)


def test_paths_are_the_callers_on_the_command_line_and_the_roots_for_baselines(settings, pytester):
    pytester.mkdir("hw")
    given = ("--npubench-hardware=hw", "--npubench-journal=j.jsonl", "--npubench-report=r.html")
    found = settings(*given, "--npubench-baselines=b", "--npubench-compile-cache=c")
    here = pytester.path
    assert (found.hardware, found.journal, found.report) == (here / "hw", here / "j.jsonl", here / "r.html")
    assert (found.baselines, found.compile_cache) == (here / "b", here / "c")
    assert settings(f"--npubench-journal={here / 'elsewhere' / 'j.jsonl'}").journal == here / "elsewhere" / "j.jsonl"


@pytest.mark.parametrize(
    ("ini", "table", "environment"),
    [
        ("", "", ""),
        ("", '[tool.npubench]\nbaselines = "b"\njournal = "j.jsonl"\nhardware = "hw"\nmargin = 0.0\n', ""),
        ("npubench_margin = 0.03\n", "[tool.npubench]\nmargin = 0.02\n", ""),
        ("npubench_baselines = b\nnpubench_hardware = hw\n", '[tool.npubench]\nbaselines = "no"\njournal = "j"\n', ""),
        ("addopts = --npubench-baselines b --npubench-journal='a b'\nnpubench_baselines = no\n", "", ""),
        (
            "addopts = -q --npubench-baselines=no\n",
            "",
            "--npubench-baselines=b --npubench-hardware=hw --npubench-margin 0.2",
        ),
    ],
)
@pytest.mark.parametrize("folder", [".", "below"])
def test_commands_find_the_folders_of_runs(settings, pytester, monkeypatch, ini, table, environment, folder):
    """Where commands look is where pytest's own reading of the settings puts what a run writes."""
    for start in {".", folder}:
        (pytester.path / start / "hw").mkdir(parents=True)
    if environment:
        monkeypatch.setenv("PYTEST_ADDOPTS", environment)
    settings(ini=ini, table=table)
    monkeypatch.chdir(pytester.path / folder)
    run, commands = Settings.from_pytest_config(pytester.parseconfig()), RunFolders.here()
    assert (commands.baselines, commands.journal, commands.hardware) == (run.baselines, run.journal, run.hardware)
    assert float(commands.margin or 0.01) == run.margin
    assert short_path(run.baselines) == Path("../" * (folder != "."), run.baselines.name)


def test_commands_say_which_settings_they_cannot_read(pytester):
    pytester.makepyprojecttoml("[tool.pytest.ini_options]\naddopts = '--npubench-journal'\n")
    with pytest.raises(ConfigError, match="addopts: argument --npubench-journal: expected one argument"):
        RunFolders.here()


def test_minus_one_waits_for_ever(settings):
    assert settings("--npubench-lock-timeout=-1").lock_timeout == -1.0


@pytest.mark.parametrize(
    ("argument", "text"),
    [
        ("--npubench-profile=weekly", "want quick, nightly or full"),
        ("--npubench-case-error=0", "want a fraction above 0 and up to 1, such as 0.05"),
        ("--npubench-case-error=5", "want a fraction above 0 and up to 1"),
        ("--npubench-active-band=0", "want a fraction above 0 and up to 1"),
        ("--npubench-active-band=narrow", "want a fraction above 0 and up to 1"),
        ("--npubench-mean-error=5%", "want a fraction above 0 and up to 1"),
        ("--npubench-mean-error=nan", "want a fraction above 0 and up to 1"),
        ("--npubench-require-judged=0", "want a fraction above 0 and up to 1"),
        ("--npubench-lock-timeout=nan", "want seconds, or -1 to wait for ever"),
        ("--npubench-lock-timeout=soon", "want seconds, or -1 to wait for ever"),
        ("--npubench-lock-timeout=-5", "want seconds, or -1 to wait for ever"),
        ("--npubench-probe-timeout=0", "want seconds above 0"),
        ("--npubench-probe-timeout=inf", "want seconds above 0"),
        ("--npubench-probe-timeout=1m", "want seconds above 0"),
        ("--npubench-margin=1", "want a fraction from 0 to below 1, such as 0.01"),
        ("--npubench-margin=-0.01", "want a fraction from 0 to below 1"),
        ("--npubench-margin=nan", "want a fraction from 0 to below 1"),
        ("--npubench-remeasure=101", "want a whole number from 0 to 100"),
        ("--npubench-remeasure=1.5", "want a whole number from 0 to 100"),
        ("--npubench-remeasure=-1", "want a whole number from 0 to 100"),
        ("--npubench-remeasure=twice", "want a whole number from 0 to 100"),
        (
            "--npubench-compare-across=drivers",
            "'drivers' is no part of a key; want accelerator, device_class, driver, ",
        ),
        ("--npubench-compare-across=driver,host", "'host' is no part of a key; want accelerator,"),
        ("--npubench-other-load=0", "want a fraction above 0 and up to 1"),
        ("--npubench-other-load=1.5", "want a fraction above 0 and up to 1"),
        ("--npubench-shard=0/2", "want I/N with whole numbers 1 <= I <= N, such as 2/5"),
        ("--npubench-shard=3/2", "want I/N with whole numbers 1 <= I <= N"),
        ("--npubench-shard=1", "want I/N with whole numbers 1 <= I <= N"),
        ("--npubench-shard=1/two", "want I/N with whole numbers 1 <= I <= N"),
        ("--npubench-devices=first", "want device numbers separated by commas, such as 0,2"),
        ("--npubench-hardware=nowhere", "no such directory"),
        ("--npubench-report=report.pdf", "want the path of an .html file"),
    ],
)
def test_a_wrong_value_names_the_option_the_value_and_what_is_allowed(settings, argument, text):
    option, _, value = argument.partition("=")
    with pytest.raises(pytest.UsageError) as caught:
        settings(argument)
    assert str(caught.value).startswith(f"{option} = {value!r}: ")
    assert text in str(caught.value)


def test_a_switch_takes_no_value_on_the_command_line(settings):
    assert settings("--npubench-no-graphs", "suites").of_suites["no_graphs"]
    assert settings(table="[tool.npubench]\nno_graphs = true\n").of_suites["no_graphs"]
    assert not settings(ini="npubench_no_graphs = false\n").of_suites["no_graphs"]
    with pytest.raises(pytest.UsageError, match=r"^npubench_no_graphs = 'off': want true or false"):
        settings(ini="npubench_no_graphs = off\n")


def test_a_wrong_value_names_the_place_it_stands_in(settings):
    with pytest.raises(pytest.UsageError, match=r"^npubench_profile = 'weekly': want quick"):
        settings(ini="npubench_profile = weekly\n")
    with pytest.raises(pytest.UsageError, match=r"^\[tool.npubench\] probe_timeout = True: want seconds"):
        settings(table="[tool.npubench]\nprobe_timeout = true\n")


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ("[tool.npubench]\njuornal = 'x'\n", "[tool.npubench] juornal is not a setting; did you mean 'journal'?"),
        ("[tool.npubench]\nwords = 'x'\n", "[tool.npubench] words is not a setting (known: require, profile,"),
        ("[tool]\nnpubench = 3\n", "[tool.npubench]: want a table, not 3"),
        ("[tool.npubench\n", "pyproject.toml: "),
    ],
    ids=["misspelt", "unknown", "no table", "no TOML"],
)
def test_a_wrong_table_names_the_file(pytester, table, text):
    config = pytester.parseconfig()
    Path("pyproject.toml").write_text(table, encoding="utf-8")
    with pytest.raises(pytest.UsageError) as caught:
        Settings.from_pytest_config(config)
    assert str(caught.value).startswith(f"{pytester.path / 'pyproject.toml'}: ")
    assert text in str(caught.value)


@pytest.mark.parametrize("url", ["history", "mysql://ann:secret@db/bench", "sqlite://", "db.sqlite3"])
def test_a_wrong_history_is_named_without_its_password(settings, url):
    with pytest.raises(pytest.UsageError, match=r"^--npubench-history: history.*want a path ending in \.db") as caught:
        settings(f"--npubench-history={url}")
    assert url.partition(":")[0] in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_process_that_measures_suspects_again_wants_samples_and_nothing_else(settings, monkeypatch):
    given = ("--npubench-accept", "--npubench-resume", "--npubench-report=r.html", "--npubench-shard=1/2")
    ini = "npubench_require = tpu\nnpubench_history = h.db\nnpubench_remeasure = 3\nnpubench_profile = full\n"
    before = settings(*given, ini=ini)
    assert (before.accept, before.resume, before.shard, before.remeasuring) == (True, True, (1, 2), False)
    assert (before.require, before.history, before.remeasure) == (("tpu",), parse_address("h.db"), 3)
    assert before.report is not None
    monkeypatch.setenv(REMEASURING, "1")
    found = settings(*given, ini=ini)
    assert (found.accept, found.resume, found.shard, found.remeasuring) == (False, False, None, True)
    assert (found.require, found.history, found.remeasure, found.report) == ((), None, 0, None)
    assert found.profile == "full"


def test_every_setting_has_an_option(settings):
    names = {option.name for option in OPTIONS} | {name.replace("-", "_") for name, _ in FLAGS}
    of_suites = {option.name for suite in suites.usable() for option in suite.options}
    of_extensions = {"pair"}
    others = {"is_default_baselines", "remeasuring", "step_summary", "annotates", "of_suites"}
    assert set(Settings.__slots__) - others == names - of_suites
    assert of_suites - of_extensions == {
        "case_error",
        "mean_error",
        "predictors",
        "active_band",
        "transfer",
        "no_graphs",
    }


def test_a_limit_can_only_be_tightened(project):
    project.fake(case_error=0.10)
    result = project.run("-k", "fake", "--npubench-case-error", "0.2", "--collect-only")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    text = "ERROR: --npubench-case-error = 0.2 is looser than the hardware file's 0.1; it can only tighten"
    assert result.errlines[0] == text


URL = "postgresql://ann@host:s3cret@db/bench?options=s3cret"
SHOWN = "postgresql://ann%40host:***@db/bench?options=***"


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (("--npubench-history", URL, "-v"), ["--npubench-history", SHOWN, "-v"]),
        ((f"--npubench-history={URL}",), [f"--npubench-history={SHOWN}"]),
        (("-o", f"npubench_history={URL}"), ["-o", f"npubench_history={SHOWN}"]),
        ((f"--override-ini=npubench_history = {URL}",), [f"--override-ini=npubench_history = {SHOWN}"]),
        (("--npubench-history", "host=db password=s3cret"), ["--npubench-history", "***"]),
        (("--proxy=http://ann:s3cret@proxy",), ["--proxy=http://ann:***@proxy"]),
        (("suites/a.py::test[b@0]", "-k", "not c"), ["suites/a.py::test[b@0]", "-k", "not c"]),
    ],
)
def test_the_journal_keeps_arguments_without_secrets(given, kept):
    assert recorded(given) == kept


def test_settings_show_no_secret(settings):
    assert "s3cret" not in repr(settings(f"--npubench-history={URL}"))


@pytest.mark.parametrize("given", ["argument", "ini", "table"])
def test_a_setting_that_there_was_is_unknown_and_says_why(settings, given):
    ini = "npubench_doubtful_sessions = 3\n" if given == "ini" else ""
    table = "[tool.npubench]\ndoubtful_sessions = 3\n" if given == "table" else ""
    arguments = ("--npubench-doubtful-sessions", "3") if given == "argument" else ()
    with pytest.raises(pytest.UsageError, match=r"unknown by now: the evidence .*docs/statistics\.md"):
        settings(*arguments, ini=ini, table=table)
