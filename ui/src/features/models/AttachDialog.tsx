import { useState, type SubmitEvent } from "react";
import { api } from "@/api/client";
import type { AttachRequest, Endpoint, UpstreamProtocol } from "@/api/types";
import { InlineError } from "@/components/Answers";
import { Button } from "@/components/Button";
import { Choice, Choices } from "@/components/Choice";
import { Dialog, DialogActions } from "@/components/Dialog";
import { TextArea } from "@/components/TextArea";
import { TextField } from "@/components/TextField";
import { useAnnounce } from "@/components/Toasts";
import { sentence } from "@/format/text";
import { useModelChange } from "./queries";
import styles from "./ScaleDialog.module.css";

type Continuation = NonNullable<AttachRequest["continuation"]>;

const NATIVE_PATHS = ["/v1/messages", "/v1/messages/count_tokens", "/v1/responses"];
const KEPT = "Leave empty to keep the present one.";

interface AttachDialogProps {
  open: boolean;
  /** Empty: the name is asked for, and the model is added if there is none of that name. */
  model: string;
  /** An endpoint that is attached already, whose settings are changed. */
  endpoint?: Endpoint | undefined;
  onClose: () => void;
  onAttached?: ((model: string) => void) | undefined;
}

export function AttachDialog({ open, model, endpoint, onClose, onAttached }: AttachDialogProps) {
  return (
    <Dialog
      open={open}
      onClose={onClose}
      title={
        endpoint !== undefined
          ? `Edit ${endpoint.url}`
          : model === ""
            ? "Attach a server"
            : `Attach a server to ${model}`
      }
      description={
        endpoint === undefined ? (
          <p>A server that already runs. Corral sends it requests, and neither starts nor stops it.</p>
        ) : undefined
      }
    >
      {open ? <AttachForm model={model} endpoint={endpoint} onClose={onClose} onAttached={onAttached} /> : null}
    </Dialog>
  );
}

function AttachForm({ model, endpoint: known, onClose, onAttached }: Omit<AttachDialogProps, "open">) {
  const announce = useAnnounce();
  const [name, setName] = useState(model);
  const [url, setUrl] = useState(known?.url ?? "");
  const [upstreamModel, setUpstreamModel] = useState(known?.upstream_model ?? "");
  const [key, setKey] = useState("");
  const [protocol, setProtocol] = useState<UpstreamProtocol>(known?.protocol ?? "openai");
  const [paths, setPaths] = useState(known?.endpoints ?? []);
  const [continuation, setContinuation] = useState<Continuation>((known?.continuation ?? "") as Continuation);
  const [limit, setLimit] = useState(String(known?.limit ?? 32));
  const [weight, setWeight] = useState(String(known?.weight ?? 1));
  const [ca, setCa] = useState("");
  const [pin, setPin] = useState(known?.pin ?? "");
  const attach = useModelChange((request: AttachRequest) => api.attachEndpoint(name, request));

  const done = known === undefined ? "Attached" : "Changed";

  function submit(event: SubmitEvent) {
    event.preventDefault();
    const request: AttachRequest = {
      url: url.trim(),
      upstream_model: upstreamModel.trim(),
      protocol,
      // They have no effect for Anthropic's API, and are refused there.
      endpoints: protocol === "anthropic" ? [] : paths,
      continuation: protocol === "anthropic" ? "" : continuation,
      limit: Number(limit),
      weight: Number(weight),
      pin: pin.trim(),
      // What is left out stays as it is.
      ...(ca.trim() === "" ? {} : { ca_pem: ca.trim() }),
      ...(key === "" ? {} : { api_key: key }),
    };
    attach.mutate(request, {
      onSuccess: (endpoint) => {
        const problem = endpoint.reason || endpoint.warnings[0];
        if (problem) announce.failed(`${done} ${endpoint.url}, but it may not serve yet.`, sentence(problem));
        else announce.done(`${done} ${endpoint.url}.`);
        onAttached?.(endpoint.model);
        onClose();
      },
    });
  }

  return (
    <form className={styles.form} onSubmit={submit}>
      {model === "" ? (
        <TextField
          label="Model"
          required
          autoCapitalize="none"
          spellCheck={false}
          value={name}
          onChange={(event) => setName(event.target.value)}
          hint="The name that clients use. A model that does not exist is added."
        />
      ) : null}
      {known !== undefined ? null : (
        <>
          <TextField
            label="URL"
            type="url"
            required
            placeholder="http://10.0.0.5:8000/v1"
            value={url}
            onChange={(event) => setUrl(event.target.value)}
            hint="The base of its API."
          />
          <TextField
            label="Name of the model there"
            autoCapitalize="none"
            spellCheck={false}
            value={upstreamModel}
            onChange={(event) => setUpstreamModel(event.target.value)}
            hint="Leave empty if it is the same."
          />
        </>
      )}
      <TextField
        label="API key"
        type="password"
        autoComplete="off"
        value={key}
        onChange={(event) => setKey(event.target.value)}
        hint={known?.has_key === true ? KEPT : "Stored for all frontends and never shown again."}
      />
      <Choice<UpstreamProtocol>
        label="API"
        value={protocol}
        onChange={setProtocol}
        options={[
          { value: "openai", word: "OpenAI" },
          { value: "ollama", word: "Ollama" },
          { value: "anthropic", word: "Anthropic", hint: "Chat completions are translated." },
        ]}
      />
      {protocol === "anthropic" ? null : (
        <>
          <Choices
            label="Paths that it has itself"
            values={paths}
            onChange={setPaths}
            options={NATIVE_PATHS}
            hint="Requests for the others are translated."
          />
          <Choice<Continuation>
            label="Continues answers that broke off elsewhere"
            value={continuation}
            onChange={setContinuation}
            options={[
              { value: "", word: "No" },
              { value: "assistant-prefill", word: "As llama.cpp", hint: "The last message is continued." },
              { value: "continue-final-message", word: "As vLLM", hint: "The same, with vLLM's fields." },
            ]}
          />
        </>
      )}
      <div className={styles.counts}>
        <TextField
          label="Most open requests"
          type="number"
          min={1}
          max={100000}
          required
          value={limit}
          onChange={(event) => setLimit(event.target.value)}
        />
        <TextField
          label="Weight"
          type="number"
          min={1}
          max={1000}
          required
          value={weight}
          onChange={(event) => setWeight(event.target.value)}
          hint="Its share of the requests; replicas have 1."
        />
      </div>
      <TextField
        label="Fingerprint of its certificate"
        autoCapitalize="none"
        spellCheck={false}
        value={pin}
        onChange={(event) => setPin(event.target.value)}
        hint="SHA-256, for https:// with a certificate of its own."
      />
      <TextArea
        label="CA of its certificate"
        placeholder="-----BEGIN CERTIFICATE-----"
        value={ca}
        onChange={(event) => setCa(event.target.value)}
        hint={known?.has_ca === true ? KEPT : "PEM, for https://. Empty: the system's authorities, or the fingerprint."}
      />
      {attach.isError ? <InlineError error={attach.error} /> : null}
      <DialogActions>
        <Button onClick={onClose}>Cancel</Button>
        <Button type="submit" look="primary" busy={attach.isPending}>
          {known === undefined ? "Attach" : "Save"}
        </Button>
      </DialogActions>
    </form>
  );
}
