"""A backend for the tests: answers /health to whoever has its token. Its arguments make it misbehave.

port [ignore-term] [helper] [escaped-helper] [forgetful-helper] [exit-when-told CODE] [slow SECONDS] [no-token]
"""

import os
import signal
import socket
import sys
import time

port, behaviour = int(sys.argv[1]), sys.argv[2:]
token = os.environ.get("TOKEN", "")


def helper(escape: bool, forget: bool = False) -> None:
    """A process that sleeps; escaped, it is in a session of its own and its parent is gone. It may forget its
    environment as well, and with it our mark."""
    if os.fork():
        return
    if escape:
        os.setsid()
        if os.fork():
            os._exit(0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with open(os.path.join(os.environ["HOME"], "helper"), "w") as file:
        file.write(str(os.getpid()))
    if forget:
        os.execve("/bin/sleep", ["sleep", "300"], {})
    while True:
        time.sleep(60)


if "ignore-term" in behaviour:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if "helper" in behaviour:
    helper(escape=False)
if "escaped-helper" in behaviour or "forgetful-helper" in behaviour:
    helper(escape=True, forget="forgetful-helper" in behaviour)
    os.wait()
if "slow" in behaviour:
    time.sleep(float(behaviour[behaviour.index("slow") + 1]))

print(f"serving on {port}", flush=True)
with socket.create_server(("127.0.0.1", port), reuse_port=False) as listener:
    while True:
        connection, _ = listener.accept()
        with connection:
            print("request", flush=True)
            request = connection.recv(65536).decode(errors="replace")
            allowed = "no-token" in behaviour or f"Bearer {token}\r\n" in request
            line = "200 OK" if allowed else "401 Unauthorized"
            body = f"{os.getpid()} {os.getppid()}"
            connection.sendall(f"HTTP/1.1 {line}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        if "exit-when-told" in behaviour and request.startswith("GET /end "):
            print("I cannot go on", file=sys.stderr, flush=True)
            sys.exit(int(behaviour[behaviour.index("exit-when-told") + 1]))
