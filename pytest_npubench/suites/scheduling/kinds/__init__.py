"""The kinds of cases of the scheduling suite: one experiment of the layered-prefill paper a file, each with a KIND."""
