import type { KeyLimits, KeyLimitsInForce } from "@/api/types";
import { formatCount } from "@/format/rates";

export type LimitName = Exclude<keyof KeyLimitsInForce, "priority">;
export type Priority = KeyLimitsInForce["priority"];

/** The limits of a key, in the order in which they are shown. */
export const LIMITS: readonly { name: LimitName; word: string; short: string }[] = [
  { name: "requests_per_minute", word: "Requests per minute", short: "requests/min" },
  { name: "tokens_per_minute", word: "Tokens per minute", short: "tokens/min" },
  { name: "concurrent_requests", word: "Concurrent requests", short: "concurrent" },
  { name: "tokens_per_day", word: "Tokens per day", short: "tokens/day" },
  { name: "tokens_per_month", word: "Tokens per month", short: "tokens/month" },
];

export const PRIORITIES: readonly { value: Priority; word: string }[] = [
  { value: "high", word: "High" },
  { value: "normal", word: "Normal" },
  { value: "low", word: "Low" },
];

/** A form's fields: text, because an empty field means the default. */
export type LimitFields = Record<LimitName, string> & { priority: Priority | "" };

/** Thrown for text that is no limit. */
export class NotALimit extends Error {}

export function fieldsOf(limits: KeyLimits): LimitFields {
  const shown = (value: number | null | undefined) =>
    value === null || value === undefined ? "" : value === 0 ? "none" : String(value);
  return {
    requests_per_minute: shown(limits.requests_per_minute),
    tokens_per_minute: shown(limits.tokens_per_minute),
    concurrent_requests: shown(limits.concurrent_requests),
    tokens_per_day: shown(limits.tokens_per_day),
    tokens_per_month: shown(limits.tokens_per_month),
    priority: limits.priority ?? "",
  };
}

/** What the API gets. An empty field is null, the default; "none" is 0, no limit. */
export function limitsOf(fields: LimitFields): KeyLimits {
  const read = (name: LimitName, word: string): number | null => {
    const text = fields[name].replace(/[\s,_]/g, "").toLowerCase();
    if (text === "") return null;
    if (text === "none") return 0;
    if (!/^[1-9]\d{0,14}$/.test(text)) throw new NotALimit(`${word}: enter a whole number above 0, or "none".`);
    return Number(text);
  };
  const found = Object.fromEntries(LIMITS.map(({ name, word }) => [name, read(name, word)]));
  return { ...found, priority: fields.priority === "" ? null : fields.priority };
}

/** The limits in force in a few words; empty when there are none. */
export function describeLimits(limits: KeyLimitsInForce): string {
  const shown = LIMITS.filter(({ name }) => limits[name] > 0).map(
    ({ name, short }) => `${formatCount(limits[name])} ${short}`,
  );
  return [...shown, ...(limits.priority === "normal" ? [] : [`${limits.priority} priority`])].join(" · ");
}
