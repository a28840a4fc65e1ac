"""Tables of operations, intents, policies and what nodes report as installed."""
