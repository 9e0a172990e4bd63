"""Where a server is and how it is asked: an address, a model's name, and what every request carries.

The API key is read from an environment variable when a run begins; it is in no record, no message and no repr.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, urlsplit

from pytest_npubench.core.server_access import secret_headers, tls_context
from pytest_npubench.engines.http.dialects import OUTPUT_TOKENS
from pytest_npubench.errors import ConfigError

APIS = ("completions", "chat")
PATHS = {"completions": "completions", "chat": "chat/completions"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """url is the base that clients of OpenAI are given ("http://127.0.0.1:8000/v1").

    answer_timeout_s holds for a whole answer (None: derived from the tokens asked for, see AnswerLimits),
    idle_timeout_s between two pieces of it, connect_timeout_s for the connection. Nothing is asked twice: a request
    that is refused has failed. extra_body is merged into every request: ignore_eos makes vLLM, SGLang and llama.cpp
    generate as many tokens as were asked for; servers that refuse it want {}. What dialects.py says of fields holds for
    it. query: of the address, encoded. headers: more of them, each with the variable that holds its value. ca_file:
    certificates to trust beside the system's. Raises ConfigError on an address, API or number that cannot be used.
    """

    url: str
    model: str
    api: str = "completions"
    api_key_variable: str | None = None
    connect_timeout_s: float = 10.0
    idle_timeout_s: float = 60.0
    answer_timeout_s: float | None = None
    extra_body: Mapping[str, object] = field(default_factory=lambda: {"ignore_eos": True})
    query: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    ca_file: Path | None = None

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(
                f"server address {self.url!r}; want http:// or https:// with a host, as http://HOST:PORT/v1"
            )
        if parts.username or parts.password or parts.query:
            raise ConfigError("a server's address carries no password and no query; name a variable for the API key")
        if self.api not in APIS:
            raise ConfigError(f"API {self.api!r} of {self.url}; allowed: {', '.join(APIS)}")
        if not self.model:
            raise ConfigError(f"no model named for {self.url}; want the name the server serves it under")
        for name in ("connect_timeout_s", "idle_timeout_s", "answer_timeout_s"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise ConfigError(f"{name} is {value}; want seconds above 0")

    @property
    def address(self) -> str:
        return f"{self.url.rstrip('/')}/{PATHS[self.api]}"

    @property
    def target(self) -> str:
        """The path and the query of a request."""
        path = quote(urlsplit(self.address).path, safe="/%:@!$&'()*+,;=~")
        return f"{path}?{self.query}" if self.query else path

    @property
    def fixes_length(self) -> bool:
        """Whether requests ask for as many tokens as they allow."""
        return bool(self.extra_body.get("ignore_eos") or self.extra_body.get("min_tokens"))

    def secret_headers(self) -> dict[str, str]:
        """Raises ConfigError where the API key, or another header's value, cannot be had."""
        return secret_headers(self.api_key_variable, self.headers)

    def all_headers(self) -> dict[str, str]:
        """Raises ConfigError as secret_headers does."""
        return {
            "Accept": "text/event-stream",
            "Accept-Encoding": "identity",  # packed events come late, and may unpack to any size
            "Content-Type": "application/json",
            **self.secret_headers(),
        }

    def tls(self) -> ssl.SSLContext | None:
        """The TLS context; None for an http address: reading the system's certificates takes a tenth of a second.
        Raises ConfigError as tls_context does, for a ca_file of an http address too."""
        if urlsplit(self.url).scheme == "http" and self.ca_file is None:
            return None
        return tls_context(self.ca_file)

    def body(
        self, prompt: str | tuple[int, ...], output_tokens: int, history: tuple[str, ...] = ()
    ) -> dict[str, object]:
        """One request; what was said before it is messages, or lines ahead of the prompt. Token ids go to the
        completions API alone; raises ConfigError for them elsewhere."""
        if self.api == "chat" and not isinstance(prompt, str):
            raise ConfigError("the chat API takes text, not token ids; give text prompts, or use the completions API")
        roles = ("user", "assistant")
        asked: dict[str, object] = (
            {"messages": [{"role": roles[at % 2], "content": text} for at, text in enumerate((*history, prompt))]}
            if self.api == "chat"
            else {"prompt": "\n".join((*history, prompt)) if isinstance(prompt, str) else list(prompt)}
        )
        fields = {
            "model": self.model,
            **asked,
            "max_tokens": None if "max_completion_tokens" in self.extra_body else output_tokens,
            "temperature": 0.0,
            "stream": True,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
            **self.extra_body,
        }
        return {
            name: output_tokens if value == OUTPUT_TOKENS else value
            for name, value in fields.items()
            if value is not None
        }
