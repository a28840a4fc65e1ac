/** Messages begin with the name of a node, model or backend before these words: "vm could not start …". */
const BEGINS_WITH_NAME = /^(?!it )[a-z]+ (?:could not|cannot|did not|does not|is not|was not|has no) /;

/** Capitalises a server message that stands alone. A first word that is a name or an address stays unchanged: a quoted
 * one, the given `name`, or one that messages say something about. */
export function sentence(text: string, name = ""): string {
  if ((name !== "" && text.startsWith(name)) || BEGINS_WITH_NAME.test(text)) return text;
  return /^[a-z]+[ ,;]/.test(text) ? text.charAt(0).toUpperCase() + text.slice(1) : text;
}

/** Ends a text with a full stop, without capitalising it. */
export function stopped(text: string): string {
  const trimmed = text.trimEnd();
  return trimmed === "" || /[.!?…:]$/.test(trimmed) ? trimmed : `${trimmed}.`;
}

/** Capitalises a text and ends it with a full stop. */
export function closed(text: string): string {
  return stopped(sentence(text));
}

/** "a, b and c". */
export function listed(names: readonly string[]): string {
  return names.length < 2 ? names.join("") : `${names.slice(0, -1).join(", ")} and ${names.at(-1)}`;
}

export function plural(count: number, one: string, many = `${one}s`): string {
  return `${count} ${count === 1 ? one : many}`;
}
