"""Pure codecs of outside formats: bytes or text in, values out. Standard library only; nothing of Corral."""
