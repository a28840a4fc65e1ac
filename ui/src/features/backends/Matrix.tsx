import { Link } from "@tanstack/react-router";
import { useVirtualizer } from "@tanstack/react-virtual";
import { memo, useEffect, useMemo, useRef, useState, type RefObject } from "react";
import type { BackendOnNode, FleetBackend, Upgrades } from "@/api/types";
import { IconButton } from "@/components/Button";
import { cx } from "@/components/cx";
import { Menu, MenuItem, MenuLine, MenuNote } from "@/components/Menu";
import { Pill } from "@/components/Pill";
import { StatusMark } from "@/components/StatusPill";
import { Tooltip } from "@/components/Tooltip";
import type { SeenNode } from "@/data/nodes";
import { STATUS_WORDS } from "@/format/status";
import { plural, sentence } from "@/format/text";
import { DRIFT_WORDS, driftsByCause, shortDigest, versionWord } from "./drift";
import styles from "./Matrix.module.css";
import { useRequestOperation } from "./operationDialog";
import { EVERYWHERE, onNodes } from "./TargetPicker";

interface MatrixProps {
  nodes: readonly SeenNode[];
  backends: readonly FleetBackend[];
  upgrades: Upgrades;
}

/** Nodes × backends. Only the rows in view exist; columns are as many as there are backends, and scroll. */
export function Matrix({ nodes, backends, upgrades }: MatrixProps) {
  const scroller = useRef<HTMLDivElement>(null);
  const places = useMemo(
    () =>
      new Map(backends.map((backend) => [backend.name, new Map(backend.nodes.map((place) => [place.node_id, place]))])),
    [backends],
  );
  const rows = useVirtualizer({
    count: nodes.length,
    getScrollElement: () => scroller.current,
    getItemKey: (index) => nodes[index]?.id ?? index,
    estimateSize: () => 52,
    overscan: 8,
  });
  const columns = {
    gridTemplateColumns: `minmax(110px, min(200px, 34vw)) repeat(${backends.length}, minmax(190px, 1fr))`,
  };
  const width = useWidth(scroller);
  return (
    <div className={cx(styles.frame, width === "more" && styles.more)}>
      {width !== "fits" ? (
        <p className={styles.hint}>Scroll sideways to see all {plural(backends.length, "backend")}.</p>
      ) : null}
      <div
        ref={scroller}
        className={styles.scroller}
        role="table"
        aria-label="Backends by node"
        aria-rowcount={nodes.length + 1}
        tabIndex={0}
      >
        <div role="row" aria-rowindex={1} className={cx(styles.row, styles.head)} style={columns}>
          <div role="columnheader" className={styles.corner}>
            Node
          </div>
          {backends.map((backend) => (
            <ColumnHead
              key={backend.name}
              backend={backend}
              total={nodes.length}
              upgradable={backend.name in upgrades}
            />
          ))}
        </div>
        <div role="rowgroup" className={styles.list} style={{ height: rows.getTotalSize() }}>
          {rows.getVirtualItems().map((item) => {
            const node = nodes[item.index];
            return node === undefined ? null : (
              <div
                key={item.key}
                ref={rows.measureElement}
                data-index={item.index}
                role="row"
                aria-rowindex={item.index + 2}
                className={cx(styles.row, styles.place)}
                style={{ ...columns, transform: `translateY(${item.start}px)` }}
              >
                <div role="rowheader" className={styles.node}>
                  <span title={STATUS_WORDS[node.state]}>
                    <StatusMark status={node.state} />
                  </span>
                  <Link to="/nodes/$nodeId" params={{ nodeId: node.id }} className={styles.link}>
                    {node.name}
                  </Link>
                </div>
                {backends.map(({ name }) => (
                  <Cell
                    key={name}
                    backend={name}
                    node={node}
                    place={places.get(name)?.get(node.id)}
                    available={availableFor(upgrades, name, node.id)}
                  />
                ))}
              </div>
            );
          })}
        </div>
      </div>
    </div>
  );
}

type Width = "fits" | "more" | "end";

/** Whether the table is wider than the screen, and whether there is more to the right: a phone shows no scroll bar. */
function useWidth(scroller: RefObject<HTMLDivElement | null>): Width {
  const [width, setWidth] = useState<Width>("fits");
  useEffect(() => {
    const element = scroller.current;
    if (element === null) return;
    const measure = () => {
      const { scrollLeft, clientWidth, scrollWidth } = element;
      setWidth(scrollWidth <= clientWidth + 1 ? "fits" : scrollLeft + clientWidth < scrollWidth - 1 ? "more" : "end");
    };
    const resized = new ResizeObserver(measure);
    resized.observe(element);
    for (const child of element.children) resized.observe(child);
    element.addEventListener("scroll", measure, { passive: true });
    return () => {
      resized.disconnect();
      element.removeEventListener("scroll", measure);
    };
  }, [scroller]);
  return width;
}

function availableFor(upgrades: Upgrades, backend: string, nodeId: string): string | null {
  const lagging = upgrades[backend]?.node_drift.find(({ node_id }) => node_id === nodeId);
  return lagging === undefined ? null : lagging.available_version || "a newer build";
}

function ColumnHead({ backend, total, upgradable }: { backend: FleetBackend; total: number; upgradable: boolean }) {
  const requestOperation = useRequestOperation();
  const { name } = backend;
  const installed = backend.nodes.filter((place) => versionWord(place) !== "").length;
  const versions = new Set(backend.nodes.map(versionWord).filter((word) => word !== ""));
  return (
    <div role="columnheader" className={styles.column}>
      <span className={styles.columnName}>
        <strong>{name}</strong>
        <span className={styles.soft}>
          {installed} of {total}
          {versions.size > 1 ? `, ${versions.size} versions` : ""}
        </span>
      </span>
      <Menu trigger={<IconButton icon="more" label={`Actions for ${name}`} />}>
        <MenuItem
          icon="add"
          onSelect={() => requestOperation({ verb: "install", element: name, name, target: EVERYWHERE })}
        >
          Install on…
        </MenuItem>
        <MenuItem
          icon="upgrade"
          onSelect={() => requestOperation({ verb: "upgrade", element: name, name, target: EVERYWHERE })}
        >
          {upgradable ? "Upgrade…" : "Upgrade (no newer version known)…"}
        </MenuItem>
        <MenuItem
          icon="retry"
          onSelect={() => requestOperation({ verb: "rollback", element: name, name, target: EVERYWHERE })}
        >
          Roll back…
        </MenuItem>
        <MenuItem
          icon="pin"
          onSelect={() => requestOperation({ verb: "pin", element: name, name, target: EVERYWHERE })}
        >
          Pin version…
        </MenuItem>
        {backend.nodes.some(({ pinned }) => pinned !== "") ? (
          <MenuItem
            icon="resume"
            onSelect={() => requestOperation({ verb: "follow", element: name, name, target: EVERYWHERE })}
          >
            Follow the galleries…
          </MenuItem>
        ) : null}
        <MenuLine />
        <MenuItem
          icon="remove"
          danger
          onSelect={() => requestOperation({ verb: "delete", element: name, name, target: EVERYWHERE })}
        >
          Delete…
        </MenuItem>
      </Menu>
    </div>
  );
}

interface CellProps {
  backend: string;
  node: SeenNode;
  place: BackendOnNode | undefined;
  available: string | null;
}

const Cell = memo(function Cell({ backend, node, place, available }: CellProps) {
  const version = place === undefined ? "" : versionWord(place);
  const drifts = place === undefined ? [] : driftsByCause(place.drift);
  return (
    <div role="cell" className={styles.cell} data-current={place?.current ?? null}>
      <span className={styles.words}>
        {version === "" ? (
          drifts.length > 0 || (place?.pending ?? "") !== "" ? null : (
            <span className={styles.none}>not installed</span>
          )
        ) : (
          <span
            className={styles.version}
            title={place === undefined ? undefined : `${place.variant} ${shortDigest(place.digest)}`}
          >
            {version}
          </span>
        )}
        {drifts.map(({ cause, details }) => (
          <Tooltip key={cause} text={details.map((detail) => sentence(detail)).join(" ")}>
            <button
              type="button"
              className={styles.mark}
              aria-label={`${DRIFT_WORDS[cause].word}: ${details.join("; ")}`}
            >
              <Pill tone={DRIFT_WORDS[cause].tone}>{DRIFT_WORDS[cause].word}</Pill>
            </button>
          </Tooltip>
        ))}
        {place === undefined || place.pending === "" ? null : (
          <Pill tone="grey">{sentence(`${place.pending} pending`)}</Pill>
        )}
        {place === undefined || place.pinned === "" ? null : (
          <Tooltip text={sentence(place.pinned)}>
            <button type="button" className={styles.mark} aria-label={sentence(place.pinned)}>
              <Pill tone="violet">Pinned</Pill>
            </button>
          </Tooltip>
        )}
        {place === undefined || place.held_back === "" ? null : (
          <Tooltip text={sentence(place.held_back)}>
            <button type="button" className={styles.mark} aria-label={`Held back: ${place.held_back}`}>
              <Pill tone="yellow">Held back</Pill>
            </button>
          </Tooltip>
        )}
        {place === undefined || place.unchecked === "" ? null : (
          <Tooltip text={`Cannot check for upgrades: ${place.unchecked}`}>
            <button type="button" className={styles.mark} aria-label={`Not checked for upgrades: ${place.unchecked}`}>
              <Pill tone="grey">Not checked</Pill>
            </button>
          </Tooltip>
        )}
        {available === null || (place !== undefined && place.held_back !== "") ? null : (
          <Pill tone="blue">{available}</Pill>
        )}
      </span>
      <CellMenu backend={backend} node={node} place={place} available={available} />
    </div>
  );
});

/** What names the installed version exactly. */
const versionOf = ({ version, digest }: BackendOnNode) => (digest === "" ? version : digest);

function CellMenu({ backend, node, place, available }: CellProps) {
  const requestOperation = useRequestOperation();
  const request = { element: backend, name: backend, target: onNodes(node.id) };
  const older = place?.versions.filter((digest) => digest !== place.digest) ?? [];
  return (
    <Menu trigger={<IconButton icon="more" label={`${backend} on ${node.name}`} />}>
      {place !== undefined && place.variant !== "" ? (
        <MenuNote>
          {place.variant}
          {place.digest === "" ? "" : ` · ${shortDigest(place.digest)}`}
        </MenuNote>
      ) : null}
      {place === undefined || versionWord(place) === "" ? (
        <MenuItem icon="add" onSelect={() => requestOperation({ verb: "install", ...request })}>
          Install here…
        </MenuItem>
      ) : (
        <>
          <MenuItem icon="upgrade" onSelect={() => requestOperation({ verb: "upgrade", ...request })}>
            {available === null ? "Upgrade here…" : `Upgrade to ${available}…`}
          </MenuItem>
          {older.map((digest) => (
            <MenuItem
              key={digest}
              icon="retry"
              onSelect={() => requestOperation({ verb: "rollback", ...request, to: digest })}
            >
              Roll back to {shortDigest(digest)}…
            </MenuItem>
          ))}
          {place.pinned === "" ? (
            <MenuItem icon="pin" onSelect={() => requestOperation({ verb: "pin", ...request, to: versionOf(place) })}>
              Pin here…
            </MenuItem>
          ) : (
            <MenuItem icon="resume" onSelect={() => requestOperation({ verb: "follow", ...request })}>
              Follow the galleries here…
            </MenuItem>
          )}
          <MenuItem icon="remove" danger onSelect={() => requestOperation({ verb: "delete", ...request })}>
            Delete here…
          </MenuItem>
        </>
      )}
    </Menu>
  );
}
