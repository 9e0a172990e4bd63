"""Kinds of the bucket and the scheduling suite that rest on the virtual clock."""
