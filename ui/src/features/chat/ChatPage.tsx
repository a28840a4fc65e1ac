import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { useEffect, useMemo, useRef, useState, type SubmitEvent, type KeyboardEvent } from "react";
import { Empty, InlineError, Loading, Problem } from "@/components/Answers";
import { Button } from "@/components/Button";
import { Select } from "@/components/Choice";
import { CopyBox } from "@/components/CopyBox";
import { Dialog } from "@/components/Dialog";
import { cx } from "@/components/cx";
import { Spinner } from "@/components/Spinner";
import { TextField } from "@/components/TextField";
import { useNow } from "@/components/useNow";
import { useTitle } from "@/components/useTitle";
import { modelQueries } from "@/data/models";
import { failureCauses, modelState, type ModelWord } from "@/data/modelState";
import { groupBy } from "@/format/groups";
import { formatSeconds } from "@/format/rates";
import { plural } from "@/format/text";
import styles from "./ChatPage.module.css";
import { asCurl, asPython } from "./examples";
import { chatModels, type ChatModels } from "./chatModels";
import { buildRequest, useChat, type Answer, type Parameters, type Turn } from "./useChat";

const route = getRouteApi("/chat");

export function ChatPage() {
  useTitle("Chat");
  const models = useQuery(modelQueries.list());
  if (models.data === undefined) {
    if (models.isPending) return <Loading what="models" />;
    return (
      <Problem
        title="Could not load models"
        error={models.error}
        retrying={models.isFetching}
        onRetry={() => void models.refetch()}
      />
    );
  }
  const chatable = chatModels(models.data);
  if (chatable.size === 0) {
    return (
      <div className={styles.page}>
        <header className={styles.header}>
          <h1>Chat</h1>
        </header>
        <Empty icon="chat" title="No chat models" hint="Install one from the gallery. Your first message loads it.">
          <Link to="/models" search={{ tab: "gallery" }}>
            Open the gallery
          </Link>
        </Empty>
      </div>
    );
  }
  return <Chat chatable={chatable} />;
}

const START: Parameters = { system: "", temperature: "", topP: "", maxTokens: "" };

function Chat({ chatable }: { chatable: ChatModels }) {
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const replicas = useQuery(modelQueries.replicas()).data;
  const summary = useQuery(modelQueries.summary()).data;
  const byModel = useMemo(() => replicas && groupBy(replicas, ({ model_name }) => model_name), [replicas]);
  const replicasAndLoadsOf = (name: string) => {
    const served = chatable.get(name) ?? name;
    return [byModel && (byModel.get(served) ?? []), summary && (summary[served]?.loads ?? [])] as const;
  };
  const stateOf = (name: string) => modelState(...replicasAndLoadsOf(name)).word;
  const causesOf = (name: string) => {
    const [modelReplicas, loads] = replicasAndLoadsOf(name);
    return failureCauses(modelReplicas ?? [], loads ?? []);
  };
  const names = [...chatable.keys()];
  const model =
    search.model !== undefined && chatable.has(search.model)
      ? search.model
      : (names.find((name) => stateOf(name) === "Ready") ?? names[0] ?? "");
  const [parameters, setParameters] = useState(START);
  const [showParameters, setShowParameters] = useState(false);
  const [showCode, setShowCode] = useState(false);
  const [draft, setDraft] = useState("");
  const chat = useChat();

  function send() {
    const text = draft.trim();
    if (text === "" || chat.isBusy) return;
    setDraft("");
    void chat.ask(model, text, parameters);
  }

  return (
    <div className={styles.page}>
      <header className={styles.header}>
        <h1>Chat</h1>
        <Select
          label="Model"
          hidden
          value={model}
          onChange={(next) => void navigate({ search: { model: next }, replace: true })}
          options={names.map((name) => ({ value: name, word: pickWord(name, stateOf(name)) }))}
        />
        <span className={styles.tools}>
          <Button
            size="small"
            icon="settings"
            aria-expanded={showParameters}
            onClick={() => setShowParameters(!showParameters)}
          >
            Parameters
          </Button>
          <Button size="small" icon="copy" onClick={() => setShowCode(true)}>
            View code
          </Button>
          {chat.turns.length > 0 ? (
            <Button size="small" look="quiet" onClick={chat.clear}>
              Clear
            </Button>
          ) : null}
        </span>
      </header>
      {showParameters ? <ParameterFields parameters={parameters} onChange={setParameters} /> : null}
      <Turns turns={chat.turns} model={model} hint={startHint(stateOf(model), causesOf(model))} />
      <Composer draft={draft} onDraft={setDraft} onSend={send} isBusy={chat.isBusy} onStop={chat.stop} model={model} />
      <Dialog
        open={showCode}
        onClose={() => setShowCode(false)}
        wide
        title="Use this chat in your own program"
        description={<p>Set the environment variable CORRAL_API_KEY to an API key first.</p>}
      >
        {showCode ? <Code model={model} turns={chat.turns} draft={draft} parameters={parameters} /> : null}
      </Dialog>
    </div>
  );
}

const pickWord = (name: string, state: ModelWord) =>
  state === "Ready" || state === "Unknown" ? name : `${name} (${state.toLowerCase()})`;

function startHint(state: ModelWord, causes: readonly string[]): string {
  if (state === "Ready") return "Messages go to one of its replicas. Each answer shows which node produced it.";
  if (state === "Unknown") return "If the model is not loaded, the first answer waits until it is.";
  if (state === "Failed") return ["The model could not be loaded", ...causes.slice(0, 1)].join(": ");
  if (state === "Not reachable") return "Its replicas are offline. An answer waits until one of them is back.";
  return "The model is not loaded. The first answer waits until it is.";
}

function Code({
  model,
  turns,
  draft,
  parameters,
}: {
  model: string;
  turns: readonly Turn[];
  draft: string;
  parameters: Parameters;
}) {
  const sent: Turn[] =
    draft.trim() !== "" || turns.length === 0
      ? [...turns, { role: "user", text: draft.trim() || "Hello!" }]
      : turns.slice(0, turns.findLastIndex(({ role }) => role === "user") + 1);
  const request = buildRequest(model, sent, parameters);
  const base = new URL(".", window.location.href.split("#")[0]).href;
  return (
    <>
      <h3 className={styles.codeTitle}>curl</h3>
      <CopyBox label="curl command" text={asCurl(base, request)} />
      <h3 className={styles.codeTitle}>Python</h3>
      <CopyBox label="Python code" text={asPython(base, request)} />
    </>
  );
}

function ParameterFields({
  parameters,
  onChange,
}: {
  parameters: Parameters;
  onChange: (parameters: Parameters) => void;
}) {
  const field = (name: keyof Parameters) => ({
    value: parameters[name],
    onChange: (event: { target: { value: string } }) => onChange({ ...parameters, [name]: event.target.value }),
  });
  return (
    <div className={styles.parameters}>
      <label className={styles.system}>
        System prompt
        <textarea rows={2} placeholder="None" {...field("system")} />
      </label>
      <TextField
        label="Temperature"
        type="number"
        min={0}
        max={2}
        step={0.1}
        placeholder="default"
        {...field("temperature")}
      />
      <TextField label="Top p" type="number" min={0} max={1} step={0.05} placeholder="default" {...field("topP")} />
      <TextField label="Max tokens" type="number" min={1} step={1} placeholder="no limit" {...field("maxTokens")} />
    </div>
  );
}

function Turns({ turns, model, hint }: { turns: readonly Turn[]; model: string; hint: string }) {
  const list = useRef<HTMLDivElement>(null);
  const isAtEnd = useRef(true);
  // Follows the answer until the reader scrolls away from its end.
  useEffect(() => {
    const element = list.current;
    if (element !== null && isAtEnd.current) element.scrollTop = element.scrollHeight;
  }, [turns]);
  return (
    <div
      ref={list}
      className={styles.turns}
      role="log"
      aria-label="Conversation"
      tabIndex={0}
      onScroll={(event) => {
        const { scrollHeight, scrollTop, clientHeight } = event.currentTarget;
        isAtEnd.current = scrollHeight - scrollTop - clientHeight < 40;
      }}
    >
      {turns.length === 0 ? (
        <Empty icon="chat" title={`Chat with ${model}`} hint={hint} />
      ) : (
        turns.map((turn, index) =>
          turn.role === "user" ? (
            <div key={index} className={cx(styles.turn, styles.user)}>
              <span className="visually-hidden">You: </span>
              {turn.text}
            </div>
          ) : (
            <AnswerView key={index} answer={turn.answer} model={model} />
          ),
        )
      )}
    </div>
  );
}

function AnswerView({ answer, model }: { answer: Answer; model: string }) {
  const isWaiting = answer.firstMs === null && answer.endedMs === null;
  return (
    <div className={cx(styles.turn, styles.assistant)} data-answer={answer.endedMs === null ? "running" : "ended"}>
      <span className="visually-hidden">{model}: </span>
      {answer.reasoning === "" ? null : (
        <details className={styles.reasoning} open={answer.text === ""}>
          <summary>Reasoning</summary>
          {answer.reasoning}
        </details>
      )}
      {answer.text}
      {isWaiting ? <Waiting node={answer.node} /> : null}
      {answer.error === null ? null : <InlineError error={answer.error} about={model} />}
      <Figures answer={answer} />
    </div>
  );
}

function Waiting({ node }: { node: string }) {
  const now = useNow();
  const [began] = useState(() => Date.now());
  const seconds = Math.round((now - began) / 1000);
  return (
    <p className={styles.waiting}>
      <Spinner /> {node === "" ? "Waiting for the model" : `${node} is processing the prompt`}
      {seconds > 1 ? `, ${seconds} s` : ""}…
    </p>
  );
}

function Figures({ answer }: { answer: Answer }) {
  if (answer.firstMs === null)
    return answer.stopped ? <p className={styles.figures}>Stopped before the first token.</p> : null;
  const last = answer.endedMs;
  const spanS = last === null ? null : (last - answer.firstMs) / 1000;
  const speed = spanS !== null && spanS > 0 && answer.tokens > 1 ? (answer.tokens - 1) / spanS : null;
  const parts = [
    answer.node === "" ? "" : `answered by ${answer.node}`,
    speed === null ? "" : `${speed.toFixed(1)} tokens/s`,
    plural(answer.tokens, "token"),
    `first token after ${formatSeconds(answer.firstMs / 1000)}`,
    answer.stopped ? "stopped" : "",
  ];
  return <p className={styles.figures}>{parts.filter(Boolean).join(" · ")}</p>;
}

interface ComposerProps {
  draft: string;
  onDraft: (text: string) => void;
  onSend: () => void;
  isBusy: boolean;
  onStop: () => void;
  model: string;
}

function Composer({ draft, onDraft, onSend, isBusy, onStop, model }: ComposerProps) {
  function submit(event: SubmitEvent) {
    event.preventDefault();
    onSend();
  }
  function onKeyDown(event: KeyboardEvent) {
    if (event.key === "Enter" && !event.shiftKey && !event.nativeEvent.isComposing) {
      event.preventDefault();
      onSend();
    }
    if (event.key === "Escape" && isBusy) onStop();
  }
  return (
    <form className={styles.composer} onSubmit={submit}>
      <textarea
        aria-label={`Message to ${model}`}
        placeholder="Enter to send, Shift+Enter for a new line"
        rows={2}
        value={draft}
        onChange={(event) => onDraft(event.target.value)}
        onKeyDown={onKeyDown}
      />
      {isBusy ? (
        <Button icon="stop" onClick={onStop}>
          Stop
        </Button>
      ) : (
        <Button type="submit" look="primary" icon="send">
          Send
        </Button>
      )}
    </form>
  );
}
