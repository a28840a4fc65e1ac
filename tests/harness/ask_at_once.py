"""Asks an OpenAI address the same thing several times at once. A program, so that it can run on another machine.

asking.py HOST PORT KEY COUNT: prints a JSON list of [status, seconds], one for each request.
"""

import http.client
import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor

host, port, key, count = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
BODY = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}]})


def ask(_number: int) -> tuple[int, float]:
    began_s = time.monotonic()
    connection = http.client.HTTPConnection(host, port, timeout=60)
    connection.request("POST", "/v1/chat/completions", BODY, {"Authorization": f"Bearer {key}"})
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status, time.monotonic() - began_s


with ThreadPoolExecutor(count) as threads:
    print(json.dumps(list(threads.map(ask, range(count)))))
