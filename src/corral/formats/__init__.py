"""Codecs of external formats: bytes or text in, values out. They import the standard library only."""
