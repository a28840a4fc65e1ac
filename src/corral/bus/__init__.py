"""The message bus: subjects, messages and one small client over NATS."""
