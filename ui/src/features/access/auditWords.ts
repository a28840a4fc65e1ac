type Names = Record<string, string>;

/** What an entry is about, by name and not by an id that says nothing to anyone; and what else it tells, but not that
 * name again. */
export function entryWords({
  subject,
  detail,
  names,
}: {
  subject: string;
  detail: Record<string, unknown>;
  names: Names;
}): { about: string; more: string } {
  const { name, verb, backend, ...rest } = detail;
  const known = names[subject] ?? name;
  if (typeof known === "string" && known !== "")
    return { about: known, more: detailWords(known === name ? { verb, backend, ...rest } : detail, names) };
  if (typeof verb === "string" && typeof backend === "string")
    return { about: `${verb} of ${backend}`, more: detailWords(rest, names) };
  return { about: subject, more: detailWords(detail, names) };
}

/** What an entry of the audit log says beside who did what to what. */
export function detailWords(detail: Record<string, unknown>, names: Names): string {
  return Object.entries(withRest(detail))
    .map(([key, value]) => [key, valueWords(value, names)])
    .filter(([, words]) => words !== "")
    .map(([key, words]) => `${key}: ${words}`)
    .join(" · ");
}

/** Of many machines only the first are told, and how many there were. */
function withRest({ node_count: count, ...detail }: Record<string, unknown>): Record<string, unknown> {
  const nodes: unknown = detail.nodes;
  if (!isList(nodes) || typeof count !== "number" || count <= nodes.length) return detail;
  return { ...detail, nodes: [...nodes, `and ${count - nodes.length} more`] };
}

const isList = (value: unknown): value is unknown[] => Array.isArray(value);

/** Nodes by name; of a long digest its beginning: enough to know it again. */
function valueWords(value: unknown, names: Names): string {
  if (typeof value === "string") return names[value] ?? (/^[0-9a-f]{40,}$/.test(value) ? value.slice(0, 12) : value);
  if (isList(value)) return value.map((each) => valueWords(each, names)).join(", ");
  if (typeof value === "number" || typeof value === "boolean") return String(value);
  if (typeof value !== "object" || value === null) return "";
  return Object.entries(value)
    .map(([key, each]) => `${key}=${valueWords(each, names)}`)
    .join(", ");
}
