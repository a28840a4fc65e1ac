"""Corral runs AI models on a herd of unlike machines behind one OpenAI-compatible address."""

__version__ = "0.1.0"
