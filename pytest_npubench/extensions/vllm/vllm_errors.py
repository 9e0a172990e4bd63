"""What vLLM raises, as errors of ours with its words: no memory, settings it refuses, or a failure while it worked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pytest_npubench.errors import ConfigError, MeasurementError, NpubenchError

MEMORY_WORDS = ("out of memory", "available memory", "available kv cache memory", "can't allocate", "cannot allocate")
REFUSALS = (ValueError, TypeError, NotImplementedError, OSError)
CLIENT_ERROR = "VLLMClientError"  # of vllm.exceptions: the request's fault; by name, since vllm is not imported here


@contextmanager
def named_errors(what: str) -> Iterator[None]:
    """Raises MeasurementError where there is no memory or the engine failed, ConfigError for what vLLM refuses."""
    try:
        yield
    except NpubenchError:
        raise
    except Exception as error:
        text = f"{what}: {_words(error)}"
        if isinstance(error, MemoryError) or any(words in str(error).lower() for words in MEMORY_WORDS):
            raise MeasurementError(f"no memory for {text}") from error
        if isinstance(error, REFUSALS) or CLIENT_ERROR in [kind.__name__ for kind in type(error).__mro__]:
            raise ConfigError(f"vLLM refuses {text}") from error
        raise MeasurementError(f"vLLM failed at {text}") from error


def _words(error: Exception) -> str:
    """Returns the error's first lines; pydantic's go on with links."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' '.join(lines[:3])[:600]}"
