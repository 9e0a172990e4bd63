"""Any OpenAI-compatible streaming server by its address: open-loop load on it, and the times of its tokens."""
