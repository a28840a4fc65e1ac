import type { Node } from "@/api/types";
import { Meter } from "@/components/Meter";
import { figuresAsOf } from "@/data/nodes";
import { gpuMemoryKind } from "./hardware";

export function MemoryMeters({ node }: { node: Node }) {
  const kind = gpuMemoryKind(node);
  return (
    <>
      {kind === "own" ? (
        <Meter label="GPU" totalBytes={node.total_vram} freeBytes={node.available_vram} asOf={figuresAsOf(node)} />
      ) : null}
      <Meter
        label="RAM"
        warnFrom={0.92}
        totalBytes={node.total_ram}
        freeBytes={node.available_ram}
        asOf={figuresAsOf(node)}
        {...(kind === "shared" ? { note: "shared with the GPU" } : {})}
      />
    </>
  );
}

export function DiskMeter({ node }: { node: Node }) {
  return (
    <Meter
      label="Disk"
      warnFrom={0.85}
      totalBytes={node.total_disk}
      freeBytes={node.available_disk}
      asOf={figuresAsOf(node)}
    />
  );
}
