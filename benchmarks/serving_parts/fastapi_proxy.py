"""What one writes first: FastAPI in front, httpx behind, one process.

fastapi_proxy.py PORT ADDRESS
"""

import sys
from collections.abc import AsyncIterator

import httpx
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import Response, StreamingResponse

PORT, ADDRESS = int(sys.argv[1]), sys.argv[2]
app = FastAPI()
client = httpx.AsyncClient(
    base_url=f"http://{ADDRESS}", timeout=60, limits=httpx.Limits(max_connections=1000, max_keepalive_connections=1000)
)


@app.post("/v1/chat/completions")
async def chat(request: Request) -> Response:
    body = await request.json()
    if not body.get("stream"):
        answer = await client.post("/v1/chat/completions", json=body)
        return Response(answer.content, status_code=answer.status_code, media_type="application/json")
    upstream = await client.send(client.build_request("POST", "/v1/chat/completions", json=body), stream=True)

    async def pieces() -> AsyncIterator[bytes]:
        async for piece in upstream.aiter_raw():
            yield piece
        await upstream.aclose()

    return StreamingResponse(pieces(), media_type="text/event-stream")


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=PORT, log_level="error", access_log=False)
