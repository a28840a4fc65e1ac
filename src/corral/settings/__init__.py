"""Settings: one frozen class per role, read once from flags, environment and one TOML file.

A field `heartbeat_interval_s` of the worker is the flag `--heartbeat-interval`, the variable
`CORRAL_HEARTBEAT_INTERVAL` and the key `heartbeat_interval` in the table `[worker]` of the file. Where LocalAI has
the same setting under another name, that name is accepted too. A field's docstring is its help and its line in the
manual. A secret can also be given as a file: `CORRAL_TOKEN_FILE` for `CORRAL_TOKEN`.
"""
