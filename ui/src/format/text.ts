/** The server's texts go on after a colon in a log or a terminal; here they stand alone and start like sentences. A
 * first word that is not plain (a name in quotes, an address) or that is the `name` it tells of stays as it is. */
export function sentence(text: string, name = ""): string {
  if (name !== "" && text.startsWith(name)) return text;
  return /^[a-z]+[ ,;]/.test(text) ? text.charAt(0).toUpperCase() + text.slice(1) : text;
}

/** For a text that begins with a name, and that another one follows. */
export function stopped(text: string): string {
  const said = text.trimEnd();
  return said === "" || /[.!?…:]$/.test(said) ? said : `${said}.`;
}

/** For a text that another one follows. */
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
