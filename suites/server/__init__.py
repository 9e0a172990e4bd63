"""Any server that streams tokens, by its address."""
