"""What the plugin costs a pytest run that does not use it: none of the heavy libraries, and hardly a module of ours."""

import os
import subprocess
import sys

from forked_python import FRESH

from pytest_npubench import suites

from .project import SUITE

HEAVY = ("numpy", "scipy", "jax", "torch", "rich", "filelock", "msgspec", "pytest_npubench.plugin.session")
MOST_MODULES = 90  # of ours, to collect the bucket suite, the suites and kinds of extensions included
REPORT = "import sys; print(sorted(name for name in %r if name in sys.modules))"


def test_importing_the_plugin_imports_nothing_heavy():
    program = f"import pytest_npubench.plugin; {REPORT % (HEAVY,)}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_run_that_does_not_use_it_imports_nothing_heavy_either(project):
    project.with_shipped()
    project.write("plain/conftest.py", f"def pytest_unconfigure():\n    {REPORT % (HEAVY,)}\n")
    project.write("plain/test_plain.py", "def test_plain():\n    pass\n")
    result = project.run("plain", "-p", "no:benchmark", "-q", env={FRESH: "1"})
    assert result.ret == 0
    assert result.outlines[-1] == "[]"
    assert not (project.root / ".npubench").exists()


def test_collecting_cases_imports_no_vendors_library(project):
    project.with_shipped()
    project.write(
        "conftest.py", (project.root / "conftest.py").read_text() + f"\n\ndef pytest_unconfigure():\n    {REPORT}"
    )
    heavy = ("jax", "torch", "numpy", "rich", "scipy", "filelock", "openvino")
    text = (project.root / "conftest.py").read_text() % (heavy,)
    project.write("conftest.py", text + "\n")
    result = project.run("--collect-only", "-q", "-p", "no:benchmark", env={FRESH: "1"})
    assert result.ret == 0
    assert result.outlines[-1] == "[]"


def test_collecting_one_suite_imports_it_alone_and_little_else(tmp_path):
    """All that the checkout's bucket suite expands to. How many modules that takes: `python benchmarks/trip.py`."""
    program = (
        "import sys, pytest; status = pytest.main(sys.argv[1:]); "
        "print(int(status), *sorted(name for name in sys.modules if name.startswith('pytest_npubench.')))"
    )
    plain = ("--collect-only", "-q", "-p", "no:cacheprovider", "-p", "no:benchmark")
    command = [sys.executable, "-c", program, str(SUITE), *plain, "--rootdir", str(SUITE.parent)]
    fresh = {**os.environ, FRESH: "1"}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, env=fresh)
    status, *modules = done.stdout.splitlines()[-1].split()
    assert status == "0"
    others = tuple(f"{type(suites.suite(name)).__module__}." for name in suites.names() if name != "buckets")
    assert [name for name in modules if name.startswith(others)] == []
    assert len(modules) <= MOST_MODULES
