"""The gRPC driver against a running backend process."""

import asyncio
import base64
import json
import struct
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from corral.core.errors import CorralError, InvalidInput, NotFound, Unavailable
from corral.core.models.config import ModelConfig, config_revision
from corral.core.replicas.routing import LOCALAI_GRPC, ModelRoute, ReplicaId, RouteReplica
from corral.frontend.gateway.drivers import DriverRequest
from corral.frontend.gateway.drivers.localai_grpc import LocalAiGrpc
from corral.store.serving.models import parse_config_text
from corral.system import SystemClock, SystemIds
from corral.system.grpc_channel import BackendCannot, BackendFailed, BackendGone, WrongProcess
from corral.system.localai_loader import LocalAiLoader
from corral.system.worker_files import FileServer, WorkerFiles
from harness.file_server import RunningFileServer
from harness.proxy import Proxy
from harness.running_backend import RunningBackend
from harness.waiting import wait_until_async

pytestmark = pytest.mark.processes

TOKENIZER = "name: tiny\nbackend: test\nparameters: {model: tiny.gguf, temperature: 0.25}\n" + (
    "template: {use_tokenizer_template: true}\nstopwords: ['<end>']\n"
)
GO = """
name: tiny
backend: test
parameters: {model: tiny.gguf}
system_prompt: be kind
template:
  chat_message: "<{{.RoleName}}>{{.Content}}"
  chat: "{{.SystemPrompt}}|{{.Input}}|"
  completion: "complete: {{.Input}}"
  function: "{{range .Functions}}{{.Name}} {{end}}{{.Input}}"
"""
HELLO = {"messages": [{"role": "user", "content": "hello"}]}
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]


class Models:
    def __init__(self, config: ModelConfig) -> None:
        self.config = config
        self.reads = 0

    async def read_config(self, name: str, revision: str) -> ModelConfig:
        self.reads += 1
        if revision != config_revision(self.config):
            raise NotFound(f"{name} has no revision {revision}")
        return self.config


class Received:
    """What the client would see."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: Mapping[str, str] = {}
        self.body = b""
        self.tokens: tuple[int, int] | None = None

    def start(self, status: int, headers: Mapping[str, str]) -> None:
        assert not self.status
        self.status, self.headers = status, headers

    async def write(self, data: bytes) -> None:
        self.body += data

    def count_tokens(self, *, prompt: int, completion: int) -> None:
        self.tokens = (prompt, completion)

    def json(self) -> Any:
        return json.loads(self.body)

    def events(self) -> list[Any]:
        lines = self.body.decode().split("\n\n")
        assert lines.pop() == ""
        assert lines.pop() == "data: [DONE]"
        return [json.loads(line.removeprefix("data: ")) for line in lines]


class Rig:
    def __init__(self, backend: RunningBackend, files: WorkerFiles | None = None) -> None:
        self.backend = backend
        self.wrong: list[tuple[str, str]] = []
        self._files = files
        self.models = Models(parse_config_text(TOKENIZER))
        self.driver = LocalAiGrpc(
            self.models,
            clock=SystemClock(),
            ids=SystemIds(),
            files=files,
            on_wrong_process=lambda replica, reason: self.wrong.append((replica.id, reason)),
        )

    def use(self, text: str) -> None:
        self.models.config = parse_config_text(text)

    @property
    def replica(self) -> RouteReplica:
        return RouteReplica(
            id=ReplicaId("r1"), node_id="n1", node_name="node", slot=0, address=self.backend.address,
            protocol=LOCALAI_GRPC, token=self.backend.token, generation=1, capacity=None,
            revision=config_revision(self.models.config),
        )  # fmt: skip

    async def load(self) -> None:
        await LocalAiLoader().load(
            self.models.config, self.replica, paths={"tiny.gguf": "/m/tiny/tiny.gguf"}, fitted={}, within_s=60
        )

    async def send(
        self, path: str, body: Any, *, replica: RouteReplica | None = None, content_type: str = "application/json"
    ) -> Received:
        received = Received()
        await self._handle(path, body, received, replica or self.replica, content_type)
        return received

    async def _handle(self, path: str, body: Any, received: Received, replica: RouteReplica, content_type: str) -> None:
        data = body if isinstance(body, bytes) else json.dumps({"model": "tiny", **body}).encode()
        request = DriverRequest(
            path=path, model="tiny", route=ModelRoute(model="tiny"), stream=b'"stream": true' in data,
            content_type=content_type, body=data,
        )  # fmt: skip
        await self.driver.handle(request, replica, received)

    async def chat(self, **body: Any) -> Any:
        received = await self.send("/v1/chat/completions", {**HELLO, **body})
        assert received.status == 200
        return received.json()

    async def asked(self, **body: Any) -> Any:
        """What the backend got, by its own account."""
        question = {"messages": [{"role": "user", "content": "options?"}]}
        answer = await self.chat(**{**question, **body})
        return json.loads(answer["choices"][0]["message"]["content"])


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBackend]:
    running = RunningBackend(tmp_path_factory.mktemp("backend"))
    yield running
    running.stop()


@pytest.fixture
async def rig(backend: RunningBackend) -> AsyncIterator[Rig]:
    rig = Rig(backend)
    await rig.load()
    yield rig
    await rig.driver.close()


async def test_a_chat_is_answered_with_usage_and_reason(rig: Rig) -> None:
    answer = await rig.chat(model="gpt-4")
    assert answer["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "tiny.gguf 1 says hello"},
            "finish_reason": "stop",
        }
    ]
    assert answer["usage"] == {"prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14}
    assert (answer["object"], answer["model"]) == ("chat.completion", "gpt-4")
    assert answer["id"].startswith("chatcmpl-")


async def test_a_stream_has_the_same_text_piece_by_piece_and_characters_whole(rig: Rig) -> None:
    question = {"messages": [{"role": "user", "content": "h\u00e9llo \U0001f40e"}]}
    body = {**question, "stream": True, "stream_options": {"include_usage": True}}
    received = await rig.send("/v1/chat/completions", body)
    events = received.events()
    assert received.headers["content-type"] == "text/event-stream"
    assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    text = "".join(event["choices"][0]["delta"].get("content", "") for event in events[:-1])
    assert text == "tiny.gguf 1 says h\u00e9llo \U0001f40e"
    assert events[-2]["choices"][0]["finish_reason"] == "stop"
    assert events[-1]["choices"] == []
    assert events[-1]["usage"]["prompt_tokens"] == 11
    assert received.tokens == (11, events[-1]["usage"]["completion_tokens"])
    assert len({event["id"] for event in events}) == 1


async def test_a_stream_of_nothing_is_an_answer(rig: Rig) -> None:
    body = {"messages": [{"role": "user", "content": "empty"}], "stream": True}
    events = (await rig.send("/v1/chat/completions", body)).events()
    assert [event["choices"][0]["finish_reason"] for event in events] == [None, "stop"]


async def test_tool_calls_come_whole_and_in_pieces(rig: Rig) -> None:
    body = {"messages": [{"role": "user", "content": "tool"}], "tools": TOOLS}
    choice = (await rig.chat(**body))["choices"][0]
    function = {"name": "weather", "arguments": '{"city": "Paris"}'}
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["tool_calls"] == [{"id": "call_7", "type": "function", "function": function}]
    assert choice["message"]["content"] is None
    events = (await rig.send("/v1/chat/completions", {**body, "stream": True})).events()
    pieces = [piece for event in events for piece in event["choices"][0]["delta"].get("tool_calls", [])]
    assert pieces[0] == {
        "index": 0, "id": "call_7", "type": "function", "function": {"name": "weather", "arguments": ""}
    }  # fmt: skip
    assert "".join(piece["function"]["arguments"] for piece in pieces) == '{"city": "Paris"}'
    assert events[-1]["choices"][0]["finish_reason"] == "tool_calls"


async def test_reasoning_is_kept_apart(rig: Rig) -> None:
    body = {"messages": [{"role": "user", "content": "think"}]}
    message = (await rig.chat(**body))["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("hmm, yes", "thought")
    events = (await rig.send("/v1/chat/completions", {**body, "stream": True})).events()
    deltas = [event["choices"][0]["delta"] for event in events]
    assert [delta["reasoning_content"] for delta in deltas if "reasoning_content" in delta] == ["hmm, ", "yes"]


async def test_logprobs_are_there_when_they_were_requested(rig: Rig) -> None:
    choice = (await rig.chat(logprobs=True, top_logprobs=2))["choices"][0]
    assert choice["logprobs"]["content"][0]["token"] == "x"
    assert "logprobs" not in (await rig.chat())["choices"][0]


async def test_the_length_of_an_answer_can_be_its_end(rig: Rig) -> None:
    assert (await rig.chat(max_tokens=3))["choices"][0]["finish_reason"] == "length"
    assert (await rig.chat(max_completion_tokens=4))["choices"][0]["finish_reason"] == "stop"


async def test_several_choices_are_several_answers(rig: Rig) -> None:
    answer = await rig.chat(n=2)
    assert [choice["index"] for choice in answer["choices"]] == [0, 1]
    assert answer["usage"]["completion_tokens"] == 6


async def test_the_backend_gets_messages_and_what_the_request_and_the_configuration_say(rig: Rig) -> None:
    messages = [
        {"role": "system", "content": "s"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]},
        {"role": "tool", "content": "42", "tool_call_id": "1", "name": "f"},
        {"role": "user", "content": [
            {"type": "text", "text": "options?"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
            {"type": "input_audio", "input_audio": {"data": "BBBB", "format": "wav"}},
        ]},
    ]  # fmt: skip
    got = await rig.asked(
        messages=messages, top_k=5, stop=["x"], seed=7, tools=TOOLS, tool_choice="required", logit_bias={"5": -1},
        reasoning_effort="low", chat_template_kwargs={"enable_thinking": False},
        response_format={"type": "json_object"}, metadata={"a": 1},
    )  # fmt: skip
    request = got["request"]
    assert request["UseTokenizerTemplate"] is True
    assert "Prompt" not in request
    assert request["Messages"] == [
        {"role": "system", "content": "s"},
        {"role": "assistant", "tool_calls": '[{"id": "1"}]'},
        {"role": "tool", "content": "42", "name": "f", "tool_call_id": "1"},
        {"role": "user", "content": "options?"},
    ]
    assert (request["Images"], request["Audios"]) == (["AAAA"], ["BBBB"])
    assert (request["Temperature"], request["TopK"], request["Seed"]) == (0.25, 5, 7)
    assert request["StopPrompts"] == ["<end>", "x"]
    assert json.loads(request["Tools"]) == TOOLS
    assert (request["ToolChoice"], request["LogitBias"]) == ('"required"', '{"5": -1.0}')
    assert request["Metadata"] == {
        "a": "1",
        "enable_thinking": "false",
        "reasoning_effort": "low",
        "chat_template_kwargs": '{"enable_thinking": false}',
    }
    assert request["Grammar"].startswith("root ::= object")
    assert request["ModelIdentity"] == "tiny.gguf"
    assert got["loaded"]["ModelFile"] == "/m/tiny/tiny.gguf"
    assert got["loaded"]["ModelPath"] == "/m/tiny"
    assert got["loaded"]["ContextSize"] == 4096
    shape = {"name": "x", "strict": True, "schema": {"enum": ["a", "b"]}}
    shaped = await rig.asked(response_format={"type": "json_schema", "json_schema": shape})
    assert shaped["request"]["Grammar"].startswith('root ::= rule-0\nrule-0 ::= "\\"a\\"" | "\\"b\\""\n')
    rig.use(TOKENIZER.replace("temperature: 0.25", "logit_bias: {'7': 2}"))
    assert (await rig.asked())["request"]["LogitBias"] == '{"7": 2}'


async def test_a_prompt_is_rendered_where_the_configuration_has_templates(rig: Rig) -> None:
    rig.use(GO)
    answer = await rig.chat(messages=[{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}])
    assert answer["choices"][0]["message"]["content"] == "tiny.gguf 1 says be kind|<user>a\n<assistant>b|"
    answer = await rig.chat(tools=TOOLS)
    assert answer["choices"][0]["message"]["content"] == "tiny.gguf 1 says weather <user>hello"
    rig.use(GO.replace("{{.Name}} ", "{{toJson .}}"))
    answer = await rig.chat(tools=TOOLS)
    told = '{"name":"weather","description":"","strict":false,"parameters":{"type":"object"}}'
    assert answer["choices"][0]["message"]["content"] == f"tiny.gguf 1 says {told}<user>hello"
    rig.use(GO.replace('function: "{{range .Functions}}{{.Name}} {{end}}{{.Input}}"', 'function: "call?"'))
    called = (await rig.chat(tools=TOOLS))["choices"][0]
    assert called["finish_reason"] == "tool_calls"
    assert called["message"]["tool_calls"][0]["function"]["name"] == "weather"
    events = (await rig.send("/v1/chat/completions", {**HELLO, "tools": TOOLS, "stream": True})).events()
    [piece] = [piece for event in events for piece in event["choices"][0]["delta"].get("tool_calls", [])]
    assert (piece["index"], piece["function"]["name"]) == (0, "weather")
    assert events[-1]["choices"][0]["finish_reason"] == "tool_calls"
    assert not any(event["choices"][0]["delta"].get("content") for event in events)


async def test_an_image_in_a_rendered_prompt_uses_the_backends_placeholder(rig: Rig) -> None:
    rig.use(GO)
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    answer = await rig.chat(messages=[{"role": "user", "content": [{"type": "text", "text": "what?"}, picture]}])
    assert answer["choices"][0]["message"]["content"] == "tiny.gguf 1 says be kind|<user>[pic]what?|"


async def test_completions_are_rendered_streamed_and_echoed(rig: Rig) -> None:
    rig.use(GO)
    answer = (await rig.send("/v1/completions", {"prompt": ["a", "b"], "echo": True})).json()
    assert [choice["text"] for choice in answer["choices"]] == [
        "atiny.gguf 1 says complete: a",
        "btiny.gguf 1 says complete: b",
    ]
    assert answer["usage"] == {"prompt_tokens": 22, "completion_tokens": 6, "total_tokens": 28}
    events = (await rig.send("/v1/completions", {"prompt": "a", "stream": True})).events()
    assert "".join(event["choices"][0]["text"] for event in events) == "tiny.gguf 1 says complete: a"


async def test_embeddings_of_texts_and_tokens_as_numbers_and_packed(rig: Rig) -> None:
    received = await rig.send("/v1/embeddings", {"input": ["abc", "de"]})
    assert [item["embedding"] for item in received.json()["data"]] == [[3.0, 0.5, -1.0], [2.0, 0.5, -1.0]]
    assert received.tokens == (4, 0)
    packed = (await rig.send("/v1/embeddings", {"input": [1, 2, 3], "encoding_format": "base64"})).json()
    assert struct.unpack("<3f", base64.b64decode(packed["data"][0]["embedding"])) == (6.0, 0.5, -1.0)


async def test_documents_are_ranked(rig: Rig) -> None:
    body = {"query": "red horse", "documents": ["blue sky", {"text": "a red horse"}, "red"], "top_n": 2}
    answer = (await rig.send("/v1/rerank", body)).json()
    assert answer["results"] == [
        {"index": 1, "relevance_score": 0.5, "document": {"text": "a red horse"}},
        {"index": 2, "relevance_score": 0.25, "document": {"text": "red"}},
    ]


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("/v1/chat/completions", {"messages": []}, "at least one message"),
        ("/v1/chat/completions", {"messages": "x"}, "invalid request"),
        ("/v1/chat/completions", b"{", "not valid JSON"),
        ("/v1/chat/completions", {**HELLO, "n": 99}, "between 1 and"),
        ("/v1/chat/completions", {**HELLO, "n": 2, "stream": True}, "must be 1 in a stream"),
        ("/v1/chat/completions", {**HELLO, "seed": 1 << 40}, "Seed cannot be"),
        ("/v1/chat/completions", {**HELLO, "max_tokens": -5}, "must not be negative"),
        ("/v1/chat/completions", {**HELLO, "response_format": {"type": "json_schema"}}, "json_object"),
        (
            "/v1/chat/completions",
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "http://10.0.0.1/x"}]}]},
            "other URLs are not supported",
        ),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "refuse"}]}, "the prompt is too long"),
        ("/v1/completions", {"prompt": []}, "must not be empty"),
        ("/v1/embeddings", {"input": []}, "must not be empty"),
        ("/v1/embeddings", {"input": [["a"]]}, "token numbers"),
        ("/v1/embeddings", {"input": "a", "dimensions": 9}, "3 dimensions"),
        ("/v1/rerank", {"query": "a", "documents": []}, "must not be empty"),
        ("/v1/responses", {"input": "a"}, "not supported"),
        ("/v1/audio/transcriptions", {}, "form"),
        ("/v1/images/generations", {"prompt": "x", "size": "huge"}, "WIDTHxHEIGHT"),
    ],
)
async def test_a_clients_mistake_is_rejected_and_nothing_is_sent(rig: Rig, path: str, body: Any, said: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        await rig.send(path, body)
    assert said in str(refused.value)


async def test_tools_need_a_template_that_knows_them_and_what_cannot_be_rendered_is_refused(rig: Rig) -> None:
    rig.use("name: tiny\nbackend: test\nparameters: {model: tiny.gguf}\n")
    with pytest.raises(InvalidInput, match="no template for tools"):
        await rig.chat(tools=TOOLS)
    rig.use("name: tiny\nparameters: {model: tiny.gguf}\ntemplate: {chat: '{{.Nope}}'}\n")
    with pytest.raises(InvalidInput, match="no field 'Nope'"):
        await rig.chat()


async def test_a_backend_that_fails_says_why_in_its_own_words(rig: Rig) -> None:
    with pytest.raises(BackendFailed, match="the model fell over"):
        await rig.chat(messages=[{"role": "user", "content": "fail"}])
    with pytest.raises(BackendFailed, match="for each token"):
        await rig.send("/v1/embeddings", {"input": "per token"})


async def test_a_stream_that_breaks_is_an_error_after_what_was_sent(rig: Rig) -> None:
    received = Received()
    with pytest.raises(BackendFailed, match="in the middle"):
        await rig._handle(
            "/v1/chat/completions", {"messages": [{"role": "user", "content": "break"}], "stream": True}, received,
            rig.replica, "application/json",
        )  # fmt: skip
    assert received.status == 200
    assert b"[DONE]" not in received.body
    assert received.tokens is not None
    assert received.tokens[0] == 11


async def test_a_client_that_leaves_ends_the_backends_work(rig: Rig) -> None:
    body = {"messages": [{"role": "user", "content": "slow"}], "stream": True}
    received = Received()
    task = asyncio.create_task(rig._handle("/v1/chat/completions", body, received, rig.replica, "application/json"))

    async def has_begun() -> bool | None:
        return bool(received.body) or None

    async def has_left() -> bool | None:
        return "left" in rig.backend.output() or None

    await wait_until_async(has_begun, what="the first word", within_s=5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await wait_until_async(has_left, what="the backend stops", within_s=5)


async def test_a_process_with_another_token_or_model_is_never_asked_to_answer(rig: Rig) -> None:
    with pytest.raises(WrongProcess, match="taken over the port"):
        await rig.send("/v1/chat/completions", HELLO, replica=replace(rig.replica, token="wrong"))
    rig.use(TOKENIZER.replace("tiny.gguf", "other.gguf"))
    with pytest.raises(WrongProcess, match="another model"):
        await rig.chat()
    assert [name for name, _ in rig.wrong] == ["r1", "r1"]


async def test_a_process_without_a_token_of_its_own_is_opened_by_the_shared_one(rig: Rig) -> None:
    """LocalAI's workers start their backends with the registration token."""
    driver = LocalAiGrpc(rig.models, clock=SystemClock(), ids=SystemIds(), shared_token=rig.backend.token)
    rig.driver, before = driver, rig.driver
    received = await rig.send("/v1/chat/completions", HELLO, replica=replace(rig.replica, token=""))
    await driver.close()
    rig.driver = before
    assert received.status == 200


async def test_a_model_that_is_no_longer_loaded_is_reported(rig: Rig) -> None:
    with pytest.raises(CorralError):
        await rig.chat(messages=[{"role": "user", "content": "unload"}])
    with pytest.raises(WrongProcess, match="no longer loaded"):
        await rig.chat()


async def test_a_configuration_that_changed_meanwhile_is_not_used(rig: Rig) -> None:
    with pytest.raises(Unavailable, match="was just changed or deleted"):
        await rig.send("/v1/chat/completions", HELLO, replica=replace(rig.replica, revision="old"))


async def test_the_configuration_is_read_once_and_the_connection_lasts(rig: Rig) -> None:
    for _ in range(5):
        await rig.chat()
    assert rig.models.reads == 1
    assert len(rig.driver._channels) == 1
    moved = replace(rig.replica, generation=2)
    await rig.send("/v1/chat/completions", HELLO, replica=moved)
    assert len(rig.driver._channels) == 1


async def test_a_dead_process_raises_unavailable_for_a_retry(rig: Rig, tmp_path: Path) -> None:
    gone = RunningBackend(tmp_path / "gone")
    gone.stop()
    with pytest.raises(BackendGone, match=r"Predict: .* refused") as told:
        await rig.send("/v1/chat/completions", HELLO, replica=replace(rig.replica, address=gone.address))
    assert gone.address not in str(told.value)


async def test_a_distant_node_does_not_count_as_unreachable(rig: Rig) -> None:
    line = Proxy(int(rig.backend.address.rpartition(":")[2]))
    line.delay_s = 0.3
    async with line.running():
        far = replace(rig.replica, id=ReplicaId("far"), address=f"127.0.0.1:{line.port}")
        received = await rig.send("/v1/chat/completions", HELLO, replica=far)
    assert received.status == 200


async def test_unsupported_methods_and_failed_loads_are_distinguished(tmp_path: Path) -> None:
    backend = RunningBackend(tmp_path / "limited", without="Embedding,PredictStream")
    rig = Rig(backend)
    try:
        await rig.load()
        with pytest.raises(BackendCannot, match="Embedding is not implemented"):
            await rig.send("/v1/embeddings", {"input": "a"})
        with pytest.raises(BackendCannot):
            await rig.send("/v1/chat/completions", {**HELLO, "stream": True})
        rig.use(TOKENIZER + "options: [fail]\n")
        with pytest.raises(BackendFailed, match="there is not enough memory"):
            await rig.load()
    finally:
        await rig.driver.close()
        backend.stop()


FORM = "multipart/form-data; boundary=XX"


def form(**fields: str) -> bytes:
    parts = [
        f'--XX\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n' for name, value in fields.items()
    ]
    audio = b'--XX\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\nsp\xf6ken\r\nwords\r\n'
    return "".join(parts).encode() + audio + b"--XX--\r\n"


@pytest.fixture
async def media(backend: RunningBackend, tmp_path: Path) -> AsyncIterator[Rig]:
    server = RunningFileServer(tmp_path)

    async def find(node_id: str) -> FileServer:
        assert node_id == "n1"
        return FileServer(server.url, server.token)

    files = WorkerFiles(find, ids=SystemIds())
    rig = Rig(backend, files)
    await rig.load()
    yield rig
    await rig.driver.close()
    server.stop()


def files_left(root: Path) -> list[Path]:
    return [path for path in (root / "staging").rglob("*") if path.is_file()]


async def test_speech_becomes_text_in_every_form(media: Rig, tmp_path: Path) -> None:
    async def ask(**fields: str) -> Received:
        return await media.send("/v1/audio/transcriptions", form(model="tiny", **fields), content_type=FORM)

    assert (await ask()).json() == {"text": "sp\u00f6ken\r\nwords"}
    assert (await ask(response_format="text")).body.decode() == "sp\u00f6ken\r\nwords\n"
    verbose = (await ask(response_format="verbose_json", language="de")).json()
    assert (verbose["language"], verbose["duration"], verbose["segments"][1]["end"]) == ("de", 2.5, 2.5)
    assert "words" not in verbose
    timed = (await ask(**{"response_format": "verbose_json", "timestamp_granularities[]": "word"})).json()
    assert (timed["task"], timed["words"][0]["end"]) == ("transcribe", 1.0)
    body = form(model="tiny", response_format="verbose_json")
    translated = (await media.send("/v1/audio/translations", body, content_type=FORM)).json()
    assert (translated["task"], translated["language"]) == ("translate", "translated")
    assert "00:00:01,000 --> 00:00:02,500\nend\n" in (await ask(response_format="srt")).body.decode()
    assert (await ask(response_format="vtt")).body.startswith(b"WEBVTT\n\n00:00:00.000 --> 00:00:01.000\n")
    assert not files_left(tmp_path)


async def test_text_becomes_speech_and_images(media: Rig, tmp_path: Path) -> None:
    spoken = await media.send("/v1/audio/speech", {"input": "hello", "voice": "ann"})
    assert (spoken.headers["content-type"], spoken.body) == ("audio/wav", b"RIFFann:hello")
    with pytest.raises(InvalidInput, match="produced audio/wav"):
        await media.send("/v1/audio/speech", {"input": "hello", "response_format": "mp3"})
    with pytest.raises(BackendFailed, match="no such voice"):
        await media.send("/v1/audio/speech", {"input": "fail"})
    body = {"prompt": "a horse|a cow", "size": "64x32", "n": 2, "response_format": "b64_json", "seed": 3}
    drawn = (await media.send("/v1/images/generations", body)).json()
    images = [base64.b64decode(item["b64_json"]) for item in drawn["data"]]
    assert len(images) == 2
    asked = json.loads(images[0].removeprefix(b"\x89PNG"))
    assert (asked["width"], asked["height"], asked["seed"]) == (64, 32, 3)
    assert (asked["positive_prompt"], asked["negative_prompt"]) == ("a horse", "a cow")
    assert not files_left(tmp_path)


async def test_audio_is_streamed_in_both_directions(media: Rig) -> None:
    heard = await media.send("/v1/audio/transcriptions", form(model="tiny", stream="true"), content_type=FORM)
    assert heard.events() == [
        {"type": "transcript.text.delta", "delta": "sp\u00f6ken "},
        {"type": "transcript.text.delta", "delta": "words "},
        {"type": "transcript.text.done", "text": "the whole"},
    ]
    spoken = await media.send("/v1/audio/speech", {"input": "hello there", "stream": True})
    assert (spoken.headers["content-type"], spoken.body) == ("audio/wav", b"RIFFhellothere")
