"""What the plugin costs a pytest run that does not use it: none of the heavy libraries, and hardly a module of ours."""

import subprocess
import sys

from forked_python import FRESH

HEAVY = ("numpy", "scipy", "jax", "torch", "rich", "filelock", "msgspec", "pytest_npubench.plugin.session")
REPORT = "import sys; print(sorted(name for name in %r if name in sys.modules))"


def test_importing_the_plugin_imports_nothing_heavy():
    program = f"import pytest_npubench.plugin; {REPORT % (HEAVY,)}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_run_that_does_not_use_it_imports_nothing_heavy_either(project):
    project.write("plain/conftest.py", f"def pytest_unconfigure():\n    {REPORT % (HEAVY,)}\n")
    project.write("plain/test_plain.py", "def test_plain():\n    pass\n")
    result = project.run("plain", "-p", "no:benchmark", "-q", env={FRESH: "1"})
    assert result.ret == 0
    assert result.outlines[-1] == "[]"
    assert not (project.root / ".npubench").exists()


def test_collecting_cases_imports_no_vendors_library(project):
    project.write(
        "conftest.py", (project.root / "conftest.py").read_text() + f"\n\ndef pytest_unconfigure():\n    {REPORT}"
    )
    text = (project.root / "conftest.py").read_text() % (("jax", "torch", "rich", "scipy.stats", "openvino"),)
    project.write("conftest.py", text + "\n")
    result = project.run("--collect-only", "-q", "-p", "no:benchmark", env={FRESH: "1"})
    assert result.ret == 0
    assert result.outlines[-1] == "[]"
