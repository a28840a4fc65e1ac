"""Ollama's routes that change the cluster. Its other paths are the gateway's."""
