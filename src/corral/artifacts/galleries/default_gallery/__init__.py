"""The gallery that Corral ships. `backends.yaml` and `models.yaml` are data; LocalAI could read them too."""
