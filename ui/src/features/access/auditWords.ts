type Names = Record<string, string>;

/** An entry's subject by name instead of ID, and its other details without that name. */
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

/** The details of an audit entry beside actor, action and subject. */
export function detailWords(detail: Record<string, unknown>, names: Names): string {
  return Object.entries(withRest(detail))
    .map(([key, value]) => [key, valueWords(value, names)])
    .filter(([, words]) => words !== "")
    .map(([key, words]) => `${key}: ${words}`)
    .join(" · ");
}

/** An entry names only the first of many nodes, and their number. */
function withRest({ node_count: count, ...detail }: Record<string, unknown>): Record<string, unknown> {
  const nodes: unknown = detail.nodes;
  if (!isList(nodes) || typeof count !== "number" || count <= nodes.length) return detail;
  return { ...detail, nodes: [...nodes, `and ${count - nodes.length} more`] };
}

const isList = (value: unknown): value is unknown[] => Array.isArray(value);

/** Nodes by name; long digests shortened. */
function valueWords(value: unknown, names: Names): string {
  if (typeof value === "string") return names[value] ?? (/^[0-9a-f]{40,}$/.test(value) ? value.slice(0, 12) : value);
  if (isList(value)) return value.map((each) => valueWords(each, names)).join(", ");
  if (typeof value === "number" || typeof value === "boolean") return String(value);
  if (typeof value !== "object" || value === null) return "";
  return Object.entries(value)
    .map(([key, each]) => `${key}=${valueWords(each, names)}`)
    .join(", ");
}
