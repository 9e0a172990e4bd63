"""`npubench preflight`."""
