"""How many tokens of keys, values and hidden states the requests hold, without a walk over the decode batch.

A request that decodes in every iteration has context = origin + iterations, so the sum over a batch of n grows by n an
iteration, and only a change of the batch costs anything. In a layer with a window w a row reads
min(context, w): a row below w grows by one an iteration until a known one, after which it stays.

Keys and values are counted in token-layers, one token in one layer: a prompt on its way through the layers holds them
only where it has been. Worked example: a prompt of 8 tokens through 2 of 4 layers holds 16 token-layers and 8 tokens of
hidden states; through all four 32 and none; after 3 decode iterations its context is 11, and it holds 44.
"""

from __future__ import annotations

from collections import Counter

from pytest_npubench.errors import MeasurementError
from pytest_npubench.serving.iteration import LayerGroup, PrefillRow


class HeldTokens:
    """What every request holds; in an iteration call `drop`, `decode`, `prefill` for each row, in that order."""

    def __init__(self, num_layers: int, window: int | None) -> None:
        self.token_layers = 0
        self.hidden_tokens = 0
        self.context_tokens = 0  # keys that the decode batch reads in this iteration, each row's latest included
        self.window_tokens = 0
        self.window_growth = 0  # by how much these grow with the next iteration: rows whose context is below the window
        self._num_layers = num_layers
        self._window = window
        self._iterations = 0
        self._decoding: tuple[int, ...] | None = ()
        self._origins: dict[int, int] = {}  # of the decode batch: context - iterations
        self._longest_origin: int | None = None  # None: to be looked for
        self._contexts: dict[int, int] = {}  # of all others whose prompt has left the last layer
        self._prefilled: dict[int, int] = {}  # token-layers of all others
        self._cached: dict[int, int] = {}  # tokens of a prompt that were in the cache
        self._passed: dict[int, int] = {}  # tokens of a prompt that no window reaches any more
        self._hidden: dict[int, int] = {}  # tokens whose hidden states wait between two layers
        self._full_at: dict[int, int] = {}  # the iteration in which a row of the batch reaches the window
        self._num_full_at: Counter[int] = Counter()

    @property
    def num_requests(self) -> int:
        """How many hold something."""
        return len(self._origins) + len(self._prefilled)

    @property
    def passed_tokens(self) -> int:
        """Tokens that a layer with a window need not keep."""
        if self._window is None:
            return 0
        return sum(self._passed.values()) + self.context_tokens - self.window_tokens

    @property
    def longest_context(self) -> int:
        """The most keys that a row of the decode batch reads in this iteration; 0 where nothing decodes."""
        if not self._origins:
            return 0
        if self._longest_origin is None:
            self._longest_origin = max(self._origins.values())
        return self._longest_origin + self._iterations

    def decode(self, requests: tuple[int, ...]) -> None:
        """Each of the requests, in the order in which they began to, feeds one token. Raises MeasurementError where one
        of them has no whole prompt."""
        if requests is not self._decoding:
            self._change(requests)
            self._decoding = requests
        self._iterations += 1
        num_rows = len(requests)
        self.token_layers += num_rows * self._num_layers
        self.context_tokens += num_rows
        if self._window is not None:
            self.window_tokens += self.window_growth
            self.window_growth -= self._num_full_at.pop(self._iterations, 0)

    def num_steady(self) -> int:
        """How many more iterations of the same batch have that window_growth, where there is one."""
        return min(full_at for full_at, number in self._num_full_at.items() if number) - self._iterations

    def go_on(self, num_iterations: int) -> None:
        """The same requests decode in so many more, at most num_steady."""
        self._iterations += num_iterations
        num_tokens = num_iterations * len(self._origins)
        self.token_layers += num_tokens * self._num_layers
        self.context_tokens += num_tokens
        if self._window is not None:
            self.window_tokens += num_iterations * self.window_growth
            self.window_growth -= self._num_full_at.pop(self._iterations, 0)

    def prefill(self, row: PrefillRow, group: LayerGroup) -> None:
        """A prefill row has run through a group of layers. A request's first row that does not begin at its first token
        finds the keys and values of those before it in the cache."""
        request, first_token, num_tokens = row
        before = self._prefilled.get(request)
        if first_token and before is None:
            self._cached[request] = first_token
        cached = first_token if first_token and self._cached.get(request) == first_token else 0
        token_layers = (cached + num_tokens) * (group.stop - group.first)
        self.token_layers += token_layers
        self._prefilled[request] = token_layers if before is None else before + token_layers
        if self._window is not None and first_token >= self._window:
            self._passed[request] = first_token - self._window + 1
        if self._hidden:
            self.hidden_tokens -= self._hidden.pop(request, 0)
        if group.stop == self._num_layers:
            self._contexts[request] = first_token + num_tokens
        else:
            self._hidden[request] = num_tokens
            self.hidden_tokens += num_tokens

    def context_of(self, request: int) -> int:
        """Tokens of keys and values of a request whose prompt is done. Raises MeasurementError where it is not."""
        if request in self._origins:
            return self._origins[request] + self._iterations
        if request not in self._contexts:
            raise MeasurementError(f"request {request} has no keys and values of a whole prompt")
        return self._contexts[request]

    def receive(self, request: int, context: int) -> None:
        """A request's keys and values come from another device."""
        self._contexts[request] = context
        self._prefilled[request] = context * self._num_layers
        self.token_layers += context * self._num_layers

    def drop(self, request: int) -> None:
        """Free all that a request holds; nothing happens where it holds nothing."""
        if self._cached:
            self._cached.pop(request, None)
        if self._passed:
            self._passed.pop(request, None)
        if request in self._origins:
            self.token_layers -= self._leave(request) * self._num_layers
            self._decoding = None  # the next batch differs, whatever tuple it comes in
            return
        self._contexts.pop(request, None)
        self.token_layers -= self._prefilled.pop(request, 0)
        self.hidden_tokens -= self._hidden.pop(request, 0)

    def _change(self, requests: tuple[int, ...]) -> None:
        origins = self._origins
        num_before = len(origins)
        # all before, as they were, then the new ones: as they keep their order, the last of them tells
        if not num_before or (num_before <= len(requests) and requests[num_before - 1] == next(reversed(origins))):
            for request in requests[num_before:]:
                self._join(request)
            return
        for request in origins.keys() - set(requests):
            self._contexts[request] = context = self._leave(request)
            self._prefilled[request] = context * self._num_layers
        for request in requests:
            if request not in origins:
                self._join(request)

    def _join(self, request: int) -> None:
        context = self._contexts.pop(request, None)
        if self._passed:
            self._passed.pop(request, None)
        layers = self._prefilled.pop(request, 0)
        if context is None or layers != context * self._num_layers:
            raise MeasurementError(
                f"request {request} decodes with {layers} token-layers of keys and values; want its prompt through "
                f"each of {self._num_layers} layers exactly once"
            )
        self._origins[request] = origin = context - self._iterations
        self.context_tokens += context
        if self._longest_origin is not None and origin > self._longest_origin:
            self._longest_origin = origin
        if self._window is not None:
            self.window_tokens += min(context, self._window)
            if context < self._window:
                self.window_growth += 1
                self._full_at[request] = full_at = self._iterations + self._window - context
                self._num_full_at[full_at] += 1

    def _leave(self, request: int) -> int:
        """Takes a request out of the batch and returns its context in tokens."""
        origin = self._origins.pop(request)
        context = origin + self._iterations
        self.context_tokens -= context
        if origin == self._longest_origin:
            self._longest_origin = None
        if self._window is not None:
            self.window_tokens -= min(context, self._window)
            full_at = self._full_at.pop(request, 0)
            if full_at > self._iterations:
                self.window_growth -= 1
                self._num_full_at[full_at] -= 1
        return context
