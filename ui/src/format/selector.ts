/** Labels as people type them: `tier=fast, rack=7`. */
export function parseSelector(text: string): Record<string, string> | string {
  const labels: Record<string, string> = {};
  for (const part of text.split(/[,\s]+/).filter(Boolean)) {
    const at = part.indexOf("=");
    if (at < 1) return `“${part}” is not a label. Use key=value.`;
    labels[part.slice(0, at)] = part.slice(at + 1);
  }
  return Object.keys(labels).length === 0 ? "Enter at least one label, such as tier=fast." : labels;
}

export function formatSelector(labels: Record<string, string>): string {
  return Object.entries(labels)
    .map(([key, value]) => `${key}=${value}`)
    .join(", ");
}

export function fitsSelector(labels: Record<string, string>, selector: Record<string, string>): boolean {
  return Object.entries(selector).every(([key, value]) => labels[key] === value);
}
