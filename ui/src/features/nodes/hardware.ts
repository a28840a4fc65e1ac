import type { Gpu, Node } from "@/api/types";
import { formatBytes } from "@/format/bytes";

const VENDORS: Record<string, string> = {
  nvidia: "NVIDIA",
  amd: "AMD",
  intel: "Intel",
  apple: "Apple",
  vulkan: "Vulkan",
};

function vendorName(vendor: string): string {
  return VENDORS[vendor] ?? vendor;
}

function isKnown(text: string | null): text is string {
  return text !== null && text !== "" && text !== "unknown";
}

/** One line per kind of GPU: `2 × NVIDIA L40S`. A worker of LocalAI reports the vendor only. */
export function gpuLines(node: Node): string[] {
  const counts = new Map<string, number>();
  for (const gpu of node.gpus) {
    const named = gpuName(gpu);
    counts.set(named, (counts.get(named) ?? 0) + 1);
  }
  if (counts.size === 0) return isKnown(node.gpu_vendor) ? [`${vendorName(node.gpu_vendor)} GPU`] : [];
  return [...counts].map(([name, count]) => (count === 1 ? name : `${count} × ${name}`));
}

export function gpuName(gpu: Gpu): string {
  const vendor = isKnown(gpu.vendor) ? vendorName(gpu.vendor) : "";
  if (!isKnown(gpu.name)) return vendor === "" ? "unknown GPU" : `${vendor} GPU`;
  return vendor === "" || gpu.name.toLowerCase().includes(vendor.toLowerCase()) ? gpu.name : `${vendor} ${gpu.name}`;
}

export function gpuMemory(gpu: Gpu): string {
  if (gpu.unified) return "shares system memory";
  if (gpu.memory_total_bytes === null) return "memory unknown";
  if (gpu.memory_free_bytes === null) return formatBytes(gpu.memory_total_bytes);
  return `${formatBytes(gpu.memory_free_bytes)} free of ${formatBytes(gpu.memory_total_bytes)}`;
}

export function cpuLine(node: Node): string {
  if (node.cpu_model === null && node.cpu_count === null) return "CPU unknown";
  const model = node.cpu_model ?? "CPU";
  return node.cpu_count === null ? model : `${model} · ${node.cpu_count} threads`;
}

/** What selects a backend build: `nvidia-cuda-12 · cc 8.9`. */
export function capabilityLine(node: Node): string {
  const parts = [];
  if (isKnown(node.capability)) parts.push(node.capability);
  if (isKnown(node.gpu_compute_capability)) parts.push(`cc ${node.gpu_compute_capability}`);
  return parts.join(" · ");
}

/** `none` needs no meter; `shared` is system memory, shown once. */
export function gpuMemoryKind(node: Node): "none" | "own" | "shared" {
  if (node.gpus.length > 0) return node.gpus.every((gpu) => gpu.unified) ? "shared" : "own";
  return isKnown(node.gpu_vendor) || (node.total_vram ?? 0) > 0 ? "own" : "none";
}
