function words(value: unknown): string {
  if (value === null || value === undefined || value === "") return "unknown";
  if (value === true) return "yes";
  if (value === false) return "no";
  if (typeof value === "object") return JSON.stringify(value);
  return String(value);
}

/** What the server tells about a part of itself, as names and values; parts differ, so no field is presumed. */
export function factsOf(part: Readonly<Record<string, unknown>>): [string, string][] {
  return Object.entries(part).map(([key, value]) => {
    const name = key.replaceAll("_", " ");
    return [name.charAt(0).toUpperCase() + name.slice(1), words(value)];
  });
}
