"""The messages of LocalAI's `backend.proto` that Corral uses."""

from corral.formats.protobuf import message, schema

SERVICE = "/backend.Backend/"
MESSAGE_MOST_BYTES = 50 << 20
MISMATCH = "model identity mismatch"
NOT_LOADED = "model not loaded"

GRAMMAR_TRIGGER = schema(
    "GrammarTrigger",
    word="1 string",
)

MODEL_OPTIONS = schema(
    "ModelOptions",
    Model="1 string",
    ContextSize="2 int32",
    Seed="3 int32",
    NBatch="4 int32",
    F16Memory="5 bool",
    MLock="6 bool",
    MMap="7 bool",
    VocabOnly="8 bool",
    LowVRAM="9 bool",
    Embeddings="10 bool",
    NUMA="11 bool",
    NGPULayers="12 int32",
    MainGPU="13 string",
    TensorSplit="14 string",
    Threads="15 int32",
    RopeFreqBase="17 float",
    RopeFreqScale="18 float",
    RMSNormEps="19 float",
    NGQA="20 int32",
    ModelFile="21 string",
    PipelineType="26 string",
    SchedulerType="27 string",
    CUDA="28 bool",
    CFGScale="29 float",
    IMG2IMG="30 bool",
    CLIPModel="31 string",
    CLIPSubfolder="32 string",
    CLIPSkip="33 int32",
    Tokenizer="34 string",
    LoraBase="35 string",
    LoraAdapter="36 string",
    NoMulMatQ="37 bool",
    AudioPath="38 string",
    DraftModel="39 string",
    Quantization="40 string",
    MMProj="41 string",
    LoraScale="42 float",
    RopeScaling="43 string",
    YarnExtFactor="44 float",
    YarnAttnFactor="45 float",
    YarnBetaFast="46 float",
    YarnBetaSlow="47 float",
    ControlNet="48 string",
    Type="49 string",
    GPUMemoryUtilization="50 float",
    TrustRemoteCode="51 bool",
    EnforceEager="52 bool",
    SwapSpace="53 int32",
    MaxModelLen="54 int32",
    TensorParallelSize="55 int32",
    FlashAttention="56 string",
    NoKVOffload="57 bool",
    LoadFormat="58 string",
    ModelPath="59 string",
    LoraAdapters="60 repeated string",
    LoraScales="61 repeated float",
    Options="62 repeated string",
    CacheTypeKey="63 string",
    CacheTypeValue="64 string",
    GrammarTriggers=message(65, GRAMMAR_TRIGGER, repeated=True),
    DisableLogStatus="66 bool",
    DType="67 string",
    LimitImagePerPrompt="68 int32",
    LimitVideoPerPrompt="69 int32",
    LimitAudioPerPrompt="70 int32",
    Reranking="71 bool",
    Overrides="72 repeated string",
    EngineArgs="73 string",
    EnableScore="75 bool",
)

MESSAGE = schema(
    "Message",
    role="1 string",
    content="2 string",
    name="3 string",
    tool_call_id="4 string",
    reasoning_content="5 string",
    tool_calls="6 string",
)

PREDICT_OPTIONS = schema(
    "PredictOptions",
    Prompt="1 string",
    Seed="2 int32",
    Threads="3 int32",
    Tokens="4 int32",
    TopK="5 int32",
    Repeat="6 int32",
    Batch="7 int32",
    NKeep="8 int32",
    Temperature="9 float",
    Penalty="10 float",
    F16KV="11 bool",
    DebugMode="12 bool",
    StopPrompts="13 repeated string",
    IgnoreEOS="14 bool",
    TailFreeSamplingZ="15 float",
    TypicalP="16 float",
    FrequencyPenalty="17 float",
    PresencePenalty="18 float",
    Mirostat="19 int32",
    MirostatETA="20 float",
    MirostatTAU="21 float",
    PenalizeNL="22 bool",
    LogitBias="23 string",
    MLock="25 bool",
    MMap="26 bool",
    PromptCacheAll="27 bool",
    PromptCacheRO="28 bool",
    Grammar="29 string",
    MainGPU="30 string",
    TensorSplit="31 string",
    TopP="32 float",
    PromptCachePath="33 string",
    Debug="34 bool",
    EmbeddingTokens="35 repeated int32",
    Embeddings="36 string",
    RopeFreqBase="37 float",
    RopeFreqScale="38 float",
    NegativePromptScale="39 float",
    NegativePrompt="40 string",
    NDraft="41 int32",
    Images="42 repeated string",
    UseTokenizerTemplate="43 bool",
    Messages=message(44, MESSAGE, repeated=True),
    Videos="45 repeated string",
    Audios="46 repeated string",
    CorrelationId="47 string",
    Tools="48 string",
    ToolChoice="49 string",
    Logprobs="50 int32",
    TopLogprobs="51 int32",
    Metadata="52 map",
    MinP="53 float",
    ModelIdentity="54 string",
)

TOOL_CALL_DELTA = schema(
    "ToolCallDelta",
    index="1 int32",
    id="2 string",
    name="3 string",
    arguments="4 string",
)

CHAT_DELTA = schema(
    "ChatDelta",
    content="1 string",
    reasoning_content="2 string",
    tool_calls=message(3, TOOL_CALL_DELTA, repeated=True),
)

REPLY = schema(
    "Reply",
    message="1 bytes",
    tokens="2 int32",
    prompt_tokens="3 int32",
    timing_prompt_processing="4 double",
    timing_token_generation="5 double",
    audio="6 bytes",
    logprobs="7 bytes",
    chat_deltas=message(8, CHAT_DELTA, repeated=True),
)

RESULT = schema(
    "Result",
    message="1 string",
    success="2 bool",
)

EMBEDDING_RESULT = schema(
    "EmbeddingResult",
    embeddings="1 repeated float",
    tokens="2 int32",
    dim="3 int32",
    prompt_tokens="4 int32",
    layout="5 enum",
)

RERANK_REQUEST = schema(
    "RerankRequest",
    query="1 string",
    documents="2 repeated string",
    top_n="3 int32",
    ModelIdentity="4 string",
)

USAGE = schema(
    "Usage",
    total_tokens="1 int32",
    prompt_tokens="2 int32",
)

DOCUMENT_RESULT = schema(
    "DocumentResult",
    index="1 int32",
    text="2 string",
    relevance_score="3 float",
)

RERANK_RESULT = schema(
    "RerankResult",
    usage=message(1, USAGE),
    results=message(2, DOCUMENT_RESULT, repeated=True),
)

TRANSCRIPT_REQUEST = schema(
    "TranscriptRequest",
    dst="2 string",
    language="3 string",
    threads="4 uint32",
    translate="5 bool",
    diarize="6 bool",
    prompt="7 string",
    temperature="8 float",
    timestamp_granularities="9 repeated string",
    stream="10 bool",
    ModelIdentity="11 string",
)

TRANSCRIPT_WORD = schema(
    "TranscriptWord",
    start="1 int64",
    end="2 int64",
    text="3 string",
)

TRANSCRIPT_SEGMENT = schema(
    "TranscriptSegment",
    id="1 int32",
    start="2 int64",
    end="3 int64",
    text="4 string",
    tokens="5 repeated int32",
    speaker="6 string",
    words=message(7, TRANSCRIPT_WORD, repeated=True),
)

TRANSCRIPT_RESULT = schema(
    "TranscriptResult",
    segments=message(1, TRANSCRIPT_SEGMENT, repeated=True),
    text="2 string",
    language="3 string",
    duration="4 float",
    eou="5 bool",
)

TRANSCRIPT_STREAM_RESPONSE = schema(
    "TranscriptStreamResponse",
    delta="1 string",
    final_result=message(2, TRANSCRIPT_RESULT),
)

TTS_REQUEST = schema(
    "TTSRequest",
    text="1 string",
    model="2 string",
    dst="3 string",
    voice="4 string",
    language="5 string",
    instructions="6 string",
    params="7 map",
    ModelIdentity="8 string",
)

GENERATE_IMAGE_REQUEST = schema(
    "GenerateImageRequest",
    height="1 int32",
    width="2 int32",
    step="4 int32",
    seed="5 int32",
    positive_prompt="6 string",
    negative_prompt="7 string",
    dst="8 string",
    src="9 string",
    EnableParameters="10 string",
    CLIPSkip="11 int32",
    ref_images="12 repeated string",
    ModelIdentity="13 string",
)

MODEL_METADATA_RESPONSE = schema(
    "ModelMetadataResponse",
    supports_thinking="1 bool",
    rendered_template="2 string",
    media_marker="4 string",
)
