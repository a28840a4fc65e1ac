"""Starts SGLang's server. It accepts its token only as an argument, which every user of the machine could read, so the
argument is added inside the process."""

import os
import runpy
import sys

TOKEN_VARIABLE = "CORRAL_PROCESS_TOKEN"


def main() -> None:
    token = os.environ.pop(TOKEN_VARIABLE, "")
    if token:
        sys.argv += ["--api-key", token]
    runpy.run_module("sglang.launch_server", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
