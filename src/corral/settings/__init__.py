"""Settings: one frozen class per role, read once from flags, the environment and one TOML file.

A field `heartbeat_interval_s` of the worker is the flag `--heartbeat-interval`, the variable
`CORRAL_HEARTBEAT_INTERVAL` and the key `heartbeat_interval` in the table `[worker]` of the file. LocalAI's name for the
same setting is accepted too. A field's docstring is its help text. A secret may also be given as a file:
`CORRAL_TOKEN_FILE` for `CORRAL_TOKEN`.
"""
