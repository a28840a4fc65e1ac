"""Starts SGLang's server with a token that it accepts only as an argument, which everybody on the machine could read:
here it is added inside the process, after the argument list has been shown to the system."""

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
