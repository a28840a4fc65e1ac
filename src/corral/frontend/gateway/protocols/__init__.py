"""Client protocols besides OpenAI's, and their translation onto the endpoints that every replica has."""
