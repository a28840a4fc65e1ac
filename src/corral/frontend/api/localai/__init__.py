"""The parts of the API that only LocalAI's clients use, in LocalAI's own shapes."""
