"""The frontend: API, web UI and the address clients talk to. Any number of them run, all alike."""
