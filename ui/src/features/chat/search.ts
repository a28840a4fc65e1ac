export interface ChatSearch {
  model?: string;
}

export function validateChatSearch(raw: Record<string, unknown>): ChatSearch {
  return typeof raw.model === "string" && raw.model !== "" ? { model: raw.model } : {};
}
