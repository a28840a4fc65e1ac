"""Corral runs AI models on a fleet of unlike machines behind one OpenAI-compatible address."""

__version__ = "0.1.0"
