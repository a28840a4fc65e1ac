import { lazy, Suspense } from "react";
import { Button } from "@/components/Button";
import { Chip } from "@/components/Chip";
import { Icon } from "@/components/Icon";
import { Fact, Facts, PanelActions, PanelHeader, PanelSection } from "@/components/PanelParts";
import { sentence } from "@/format/text";
import { formatDateTime } from "@/format/time";
import { ACTION_LOOKS, useNodeAction } from "./actions";
import { ApproveButton } from "./ApproveButton";
import { capabilityLine, cpuLine, gpuLines, gpuMemory, gpuName } from "./hardware";
import { machineLabels } from "./labels";
import { LastSeen } from "./LastSeen";
import { NodeClaims } from "./NodeClaims";
import { DiskMeter, MemoryMeters } from "./NodeMeters";
import styles from "./NodePanel.module.css";
import type { SeenNode } from "@/data/nodes";
import { actionsFor, reasonFor } from "./status";
import { late } from "@/components/lateCode";
import { StatusPill } from "@/components/StatusPill";

/** Loaded on demand: the list of nodes does not need it. */
const NodeInside = lazy(late(() => import("./NodeInside").then((module) => ({ default: module.NodeInside }))));

export function NodePanel({ node, onClose }: { node: SeenNode; onClose: () => void }) {
  const startAction = useNodeAction();
  const reason = reasonFor(node);

  return (
    <>
      <PanelHeader title={node.name} id={node.id} onClose={onClose}>
        <p className={styles.status}>
          <StatusPill status={node.state} />
          {node.draining && node.state !== "draining" ? <span>draining</span> : null}
          {reason}
        </p>
      </PanelHeader>

      {node.conflict === null ? null : (
        <div className={styles.conflict} role="alert">
          <Icon name="warning" />
          <div>
            <strong>Another machine claims to be this node.</strong>
            <p>{sentence(node.conflict.message)}</p>
            <p className={styles.soft}>Detected {formatDateTime(node.conflict.at)}.</p>
          </div>
        </div>
      )}

      <NodeClaims node={node} />

      {node.refused === null ? null : (
        <div className={styles.conflict} role="alert">
          <Icon name="warning" />
          <div>
            <strong>Messages from this node are rejected.</strong>
            <p>
              {node.refused.count} so far; latest reason: {node.refused.reason}
            </p>
            <p className={styles.soft}>
              {formatDateTime(node.refused.at)}. The worker may be broken, incompatible or untrusted.
            </p>
          </div>
        </div>
      )}

      <PanelActions>
        {actionsFor(node).map((action) =>
          action === "approve" ? (
            <ApproveButton key={action} node={node} size="regular" />
          ) : (
            <Button key={action} icon={ACTION_LOOKS[action].icon} onClick={() => startAction(action, node)}>
              {ACTION_LOOKS[action].word}
            </Button>
          ),
        )}
      </PanelActions>

      <PanelSection title="Capacity">
        <div className={styles.meters}>
          <MemoryMeters node={node} />
          <DiskMeter node={node} />
        </div>
      </PanelSection>

      <Suspense fallback={null}>
        <NodeInside node={node} />
      </Suspense>

      <PanelSection title="Hardware">
        <Facts>
          <Fact name="CPU">{cpuLine(node)}</Fact>
          {node.gpus.length === 0 ? (
            <Fact name="GPU">{gpuLines(node)[0] ?? "none found"}</Fact>
          ) : (
            node.gpus.map((gpu, index) => (
              <Fact key={index} name={node.gpus.length === 1 ? "GPU" : `GPU ${index}`}>
                {gpuName(gpu)}
                <span className={styles.soft}>, {gpuMemory(gpu)}</span>
              </Fact>
            ))
          )}
          <Fact name="Capability">
            {capabilityLine(node) || "unknown"}
            {node.capability_reason ? <span className={styles.soft}>, {node.capability_reason}</span> : null}
          </Fact>
          <Fact name="Platform">{node.platform ?? "unknown"}</Fact>
        </Facts>
        {node.problems.length === 0 ? null : (
          <ul className={styles.problems} aria-label="Hardware detection problems">
            {node.problems.map((problem) => (
              <li key={problem}>{sentence(problem)}</li>
            ))}
          </ul>
        )}
      </PanelSection>

      <PanelSection title="Labels">
        <LabelGroup title="Set by administrators" labels={node.operator_labels} strong />
        <LabelGroup title="Reported by the worker" labels={node.worker_labels} />
        <LabelGroup title="Detected automatically" labels={machineLabels(node)} />
        {Object.keys(node.labels).length === 0 ? <p className={styles.soft}>None.</p> : null}
      </PanelSection>

      <PanelSection title="Worker">
        <Facts>
          <Fact name="Last seen">
            <LastSeen node={node} />
          </Fact>
          <Fact name="Workload">
            {node.model_count} {node.model_count === 1 ? "model" : "models"}, {node.in_flight_count} in flight
          </Fact>
          <Fact name="Type">{node.node_type}</Fact>
          <Fact name="Version">{node.version ?? "unknown"}</Fact>
          <Fact name="Isolation">
            {node.isolation === "partial" || node.isolation === "none" ? <Icon name="warning" /> : null}{" "}
            {node.isolation ?? "unknown"}
            {node.isolation_reason ? <span className={styles.soft}>, {sentence(node.isolation_reason)}</span> : null}
          </Fact>
          <Fact name="Address">
            <code>{node.address || "unknown"}</code>
          </Fact>
          <Fact name="File address">
            <code>{node.http_address || "unknown"}</code>
          </Fact>
          <Fact name="Node ID">
            <code>{node.id}</code>
          </Fact>
          <Fact name="Joined">{formatDateTime(node.created_at)}</Fact>
        </Facts>
      </PanelSection>
    </>
  );
}

function LabelGroup({
  title,
  labels,
  strong = false,
}: {
  title: string;
  labels: Record<string, string>;
  strong?: boolean;
}) {
  const entries = Object.entries(labels).sort(([a], [b]) => a.localeCompare(b));
  if (entries.length === 0) return null;
  return (
    <div className={styles.labelGroup}>
      <p className={styles.soft}>{title}</p>
      <p className={styles.chips}>
        {entries.map(([key, value]) => (
          <Chip key={key} strong={strong} title={`${key}=${value}`}>
            {key}={value}
          </Chip>
        ))}
      </p>
    </div>
  );
}
