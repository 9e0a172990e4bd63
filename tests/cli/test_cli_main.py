"""The console script as a whole: help, exit statuses, one line for an error, a reader that goes away."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest

import pytest_npubench
from pytest_npubench.cli import main as cli
from pytest_npubench.cli.command import commands

from .conftest import Answer

NAMES = (
    "demo",
    "run",
    "preflight",
    "probe",
    "selfcheck",
    "hardware",
    "workloads",
    "profile",
    "predict",
    "simulate",
    "search",
    "calibrate",
    "load",
    "partition",
    "show",
    "baseline",
    "journal",
    "history",
    "site",
    "compare",
    "ab",
    "bisect",
    "nightly",
)
SCRIPT = "import sys; from pytest_npubench.cli.main import main; sys.exit(main())"
PAGES = sorted((Path(__file__).parents[2] / "docs").glob("*.md"))
SHOWN = re.findall(
    r"^ *\$ (npubench .*)$",
    "\n".join(page.read_text(encoding="utf-8") for page in PAGES).replace("\\\n", " "),
    re.MULTILINE,
)
Run = Callable[..., Answer]


def _start(*arguments: str, stdout: int = subprocess.PIPE, **environment: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", SCRIPT, *arguments]
    return subprocess.Popen(command, stdout=stdout, stderr=subprocess.PIPE, text=True, env=os.environ | environment)


def test_the_console_script_is_this_main() -> None:
    (script,) = (point for point in metadata.entry_points(group="console_scripts") if point.name == "npubench")
    assert script.load() is cli.main


def test_version(call: Run) -> None:
    answer = call("--version")
    assert (answer.status, answer.out) == (0, f"npubench {pytest_npubench.__version__}\n")


def test_the_help_names_every_command(call: Run) -> None:
    answer = call("--help")
    assert answer.status == 0
    assert [name for name in NAMES if re.search(rf"^    {name}\b", answer.out, re.MULTILINE)] == list(NAMES)
    assert list(NAMES) == list(commands())


COMMAND_MODULES = "sorted({command.module for command in commands().values()} & sys.modules.keys())"


@pytest.mark.parametrize(
    ("line", "imported"),
    [("['--help']", []), ("['--version']", []), ("['show', '--help']", ["show"]), ("['probee']", [])],
)
def test_only_the_command_that_is_called_is_imported(line: str, imported: list[str]) -> None:
    source = (
        "import sys\nfrom pytest_npubench.cli.command import commands\nfrom pytest_npubench.cli.main import main\n"
        f"try:\n    main({line})\nexcept SystemExit:\n    print({COMMAND_MODULES})"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == str([f"pytest_npubench.cli.{name}" for name in imported])


@pytest.mark.parametrize("name", NAMES)
def test_a_command_says_of_itself_what_the_list_of_commands_says(name: str, call: Run) -> None:
    about = " ".join(commands()[name].about.split())
    assert about in " ".join(call("--help").out.split())
    assert about in " ".join(call(name, "--help").out.split())


@pytest.mark.parametrize("name", NAMES)
def test_every_command_has_help_with_an_example_that_it_understands(name: str, call: Run) -> None:
    answer = call(name, "--help")
    assert answer.status == 0
    example = " ".join(answer.out.rpartition("example: ")[2].replace(" \\\n", " ").split())
    program, *arguments = example.split(" ")
    assert program == "npubench"
    assert cli.make_parser().parse_args(arguments).run is not None


@pytest.mark.parametrize("arguments", [(), ("prob",), ("show", "--html"), ("profile", "--journal", "x")])
def test_a_command_line_that_cannot_be_understood_is_status_2(arguments: tuple[str, ...], call: Run) -> None:
    answer = call(*arguments)
    assert answer.status == 2
    assert answer.err.startswith("usage: npubench")
    assert "Traceback" not in answer.err


def test_an_error_is_one_line_even_where_a_name_has_two(call: Run) -> None:
    assert "two lines" in call("show", "--html", "two\nlines", "-o", "report.html").error
    assert "two lines" in call("hardware", "--check", "two\nlines").error


@pytest.mark.parametrize("unbuffered", ["", "1"])  # Python notices when it writes, or else when it flushes
def test_a_reader_that_goes_away_is_no_traceback(unbuffered: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with _start("workloads", stdout=writer, PYTHONUNBUFFERED=unbuffered) as process:
        os.close(writer)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 141
    assert err == ""


def test_in_a_process_of_its_own_an_error_is_status_1_and_one_line(tmp_path: Path) -> None:
    with _start("predict", str(tmp_path / "none.json"), "--input-tokens", "1", "--output-tokens", "1") as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (1, "")
    assert err == f"npubench: error: {tmp_path / 'none.json'}: No such file or directory\n"


def test_a_terminal_that_lacks_a_sign_does_not_stop_it(tmp_path: Path) -> None:
    path = tmp_path / "w\u00e4rme.csv"
    path.write_text("input_tokens,output_tokens\n1,2\n", encoding="utf-8")
    with _start("workloads", str(path), PYTHONIOENCODING="ascii") as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert out.startswith("w?rme.csv\n")


def test_the_light_commands_import_neither_numpy_nor_jinja2() -> None:
    source = (
        "import sys; from pytest_npubench.cli.main import main; main(['hardware']);"
        "print(sorted({'numpy', 'scipy', 'jax', 'jinja2', 'rich'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("name", NAMES)
def test_a_page_shows_every_command(name: str) -> None:
    assert [line for line in SHOWN if line.startswith(f"npubench {name} ") or line == f"npubench {name}"]


@pytest.mark.parametrize("line", SHOWN)
def test_every_command_line_of_a_page_is_understood(line: str) -> None:
    cli.make_parser().parse_args(shlex.split(re.split("[|>]", line)[0], comments=True)[1:])
