import type { ChatRequest } from "@/api/completions";

/** The same request for a terminal. The key comes from the environment, so that it is not shown. */
export function asCurl(base: string, request: ChatRequest): string {
  const body = JSON.stringify({ ...request, stream: true }, null, 2).replaceAll("'", "'\\''");
  return `curl -N ${base}v1/chat/completions \\\n  -H "Authorization: Bearer $CORRAL_API_KEY" \\\n  -H "Content-Type: application/json" \\\n  -d '${body}'`;
}

export function asPython(base: string, request: ChatRequest): string {
  const { model, messages, ...rest } = request;
  const options = Object.entries(rest).map(([name, value]) => `    ${name}=${JSON.stringify(value)},\n`);
  const conversation = messages.map(
    (message) => `        {"role": ${JSON.stringify(message.role)}, "content": ${JSON.stringify(message.content)}},\n`,
  );
  return `import os

from openai import OpenAI

client = OpenAI(base_url="${base}v1", api_key=os.environ["CORRAL_API_KEY"])
answer = client.chat.completions.create(
    model=${JSON.stringify(model)},
    messages=[
${conversation.join("")}    ],
${options.join("")}    stream=True,
)
for piece in answer:
    if piece.choices:
        print(piece.choices[0].delta.content or "", end="", flush=True)
`;
}
