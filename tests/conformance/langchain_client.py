"""LangChain's OpenAI classes, as their users have them. Run as a program: URL KEY MODEL

Prints one `ok NAME` for each check, as `client.py` does.
"""

import sys
from typing import Any

import openai
from langchain_core.messages import HumanMessage, SystemMessage
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAIEmbeddings

url, key, model = sys.argv[1:]
QUESTION = [SystemMessage("You know horses."), HumanMessage("Name one colour of a horse.")]


def chat(**more: Any) -> ChatOpenAI:
    return ChatOpenAI(base_url=f"{url}/v1", api_key=key, model=model, timeout=120, max_retries=0, **more)


@tool  # type: ignore[untyped-decorator]  # its package is not in our environment
def weather(city: str) -> str:
    """The weather of a city."""
    return f"dry in {city}"


def messages_are_answered() -> None:
    answer = chat(max_tokens=16).invoke(QUESTION)
    assert answer.content
    assert answer.usage_metadata is not None
    assert answer.usage_metadata["total_tokens"] > 0
    assert answer.response_metadata["finish_reason"] in ("stop", "length")


def messages_are_streamed() -> None:
    pieces = list(chat(max_tokens=16, stream_usage=True).stream(QUESTION))
    assert "".join(str(piece.content) for piece in pieces)
    assert len(pieces) > 2
    assert any(piece.usage_metadata for piece in pieces)


def a_chain_is_answered_in_batches() -> None:
    chain = ChatPromptTemplate.from_messages([("user", "Say {word}.")]) | chat(max_tokens=16)
    answers = chain.batch([{"word": word} for word in ("hay", "oats", "water")])
    assert all(answer.content for answer in answers)
    assert len(answers) == 3


def tools_are_bound_and_called() -> None:
    answer = chat().bind_tools([weather]).invoke("tool")
    assert answer.tool_calls[0]["name"] == "weather"
    assert answer.tool_calls[0]["args"] == {"city": "Paris"}


def texts_are_embedded() -> None:
    embeddings = OpenAIEmbeddings(
        base_url=f"{url}/v1", api_key=key, model=model, check_embedding_ctx_length=False, max_retries=0
    )
    vectors = embeddings.embed_documents(["hay", "oats and hay"])
    assert len(vectors) == 2
    assert vectors[0] != vectors[1]
    assert embeddings.embed_query("hay") == vectors[0]


def an_unknown_model_is_an_error() -> None:
    said = ""
    try:
        ChatOpenAI(base_url=f"{url}/v1", api_key=key, model=f"{model}x", max_retries=0).invoke(QUESTION)
    except openai.NotFoundError as error:
        said = str(error)
    assert model in said


for check in (
    messages_are_answered,
    messages_are_streamed,
    a_chain_is_answered_in_batches,
    tools_are_bound_and_called,
    texts_are_embedded,
    an_unknown_model_is_an_error,
):
    check()
    print(f"ok {check.__name__}", flush=True)
