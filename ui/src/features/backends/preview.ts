/** What an upgrade would do, in words. */
import type { Preview } from "@/api/types";

type PreviewNode = Preview["waves"][number][number];

export interface PreviewWords {
  title: string;
  waves: readonly { name: string; nodes: readonly string[] }[];
  notes: readonly string[];
}

export function previewWords(preview: Preview): PreviewWords {
  const count = preview.waves.length;
  const changing = preview.waves.flat();
  const isGated = preview.strategy !== "all";
  const stopping = changing.filter(({ method }) => method === "stop-first").map(({ node_name }) => node_name);
  return {
    title:
      count === 0
        ? "No node changes its version."
        : isGated
          ? `Strategy ${preview.strategy}, ${count === 1 ? "1 wave" : `${count} waves`}, each watched for ${preview.soak_s} s.`
          : "All nodes at once.",
    waves: preview.waves.map((wave, index) => ({ name: `Wave ${index + 1}`, nodes: wave.map(nodeWords) })),
    notes: [
      ...(stopping.length === 0
        ? []
        : [`Models on ${stopping.join(", ")} are interrupted: the old version stops before the new one starts.`]),
      ...preview.skipped.map(({ node_name, reason }) => `${node_name} is skipped: ${reason}`),
    ],
  };
}

function nodeWords(node: PreviewNode): string {
  const moves = node.from_build !== node.to_build;
  const from = moves ? `${node.from_build} ${node.from_version}` : node.from_version;
  const to = moves ? `${node.to_build} ${node.to_version}` : node.to_version;
  const way = node.method === "" ? node.reason : `${node.method}, ${node.reason}`;
  return `${node.node_name}, ${from} → ${to} (${way})`;
}
