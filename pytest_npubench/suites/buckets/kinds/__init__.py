"""The kinds of bucket cases, a file each."""
