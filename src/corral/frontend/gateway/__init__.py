"""The gateway: OpenAI calls come in, bytes leave to the right replica. No database, no bus, no lock."""
