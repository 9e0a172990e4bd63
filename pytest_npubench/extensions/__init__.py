"""What the core does without: each folder comes in through entry points alone, as another distribution would."""
