"""Small programs placed beside engines that have no server command of their own. They run inside the engine's private
environment, so they import the standard library and the engine, and nothing of Corral."""
