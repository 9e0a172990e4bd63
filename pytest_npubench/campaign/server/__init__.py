"""The server suite: any OpenAI-compatible server under open loads, measured from outside."""
