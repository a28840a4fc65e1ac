import { useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import type { Available, BackendOffer } from "@/api/types";
import { Empty, Loading, Problem } from "@/components/Answers";
import { Button } from "@/components/Button";
import { Chip } from "@/components/Chip";
import { cx } from "@/components/cx";
import { GalleryProblems } from "@/components/GalleryProblems";
import { Icon } from "@/components/Icon";
import { Card } from "@/components/Page";
import { Pill } from "@/components/Pill";
import { Tooltip } from "@/components/Tooltip";
import type { SeenNode } from "@/data/nodes";
import { formatBytes } from "@/format/bytes";
import { plural, sentence } from "@/format/text";
import styles from "./Gallery.module.css";
import { useRequestOperation } from "./operationDialog";
import { galleryQueries } from "./queries";
import type { BackendsSearch } from "./search";
import { EVERYWHERE } from "./TargetPicker";

const EVERYTHING_HINT =
  "A backend usually has one build for each kind of hardware (CPU, CUDA, ROCm…), and Corral picks the one that fits each node. This option lists every build, including development builds, so that you can install a specific one.";

interface GalleryProps {
  text: string;
  tag: string;
  everything: boolean;
  onChange: (change: BackendsSearch) => void;
  backendNodes: readonly SeenNode[];
}

export function Gallery({ text, tag, everything, onChange, backendNodes }: GalleryProps) {
  const available = useQuery(galleryQueries.available(everything));
  if (available.data === undefined) {
    if (available.isPending) return <Loading what="the gallery" />;
    return (
      <Problem
        title="Could not load the gallery"
        error={available.error}
        retrying={available.isFetching}
        onRetry={() => void available.refetch()}
      />
    );
  }
  return (
    <Offers
      data={available.data}
      text={text}
      tag={tag}
      everything={everything}
      onChange={onChange}
      backendNodes={backendNodes}
    />
  );
}

function Offers({ data, text, tag, everything, onChange, backendNodes }: GalleryProps & { data: Available }) {
  const tags = useMemo(() => countTags(data.backends), [data.backends]);
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const found = data.backends.filter(
    (offer) =>
      (tag === "" || offer.tags.includes(tag)) &&
      words.every((word) => `${offer.name} ${offer.description} ${offer.tags.join(" ")}`.toLowerCase().includes(word)),
  );
  return (
    <>
      <div className={styles.filters}>
        <div className={styles.tags} role="group" aria-label="Show by tag">
          {tags.map(([name, count]) => (
            <button
              key={name}
              type="button"
              className={styles.tag}
              aria-pressed={name === tag}
              onClick={() => onChange({ tag: name === tag ? "" : name })}
            >
              {name} <span className={styles.soft}>{count}</span>
            </button>
          ))}
        </div>
        <Tooltip text={EVERYTHING_HINT}>
          <label className={styles.everything}>
            <input
              type="checkbox"
              aria-description={EVERYTHING_HINT}
              checked={everything}
              onChange={(event) => onChange({ all: event.target.checked ? "yes" : "" })}
            />
            Show individual and development builds
          </label>
        </Tooltip>
      </div>
      <GalleryProblems galleries={data.galleries} />
      {data.backends.length === 0 ? (
        <Empty
          icon="search"
          title="No backends in the galleries"
          hint="Configure another gallery, or install a backend from a URI."
        />
      ) : found.length === 0 ? (
        <Empty
          icon="search"
          title="No matches"
          hint={`None of ${plural(data.backends.length, "backend")} matches the search and the tag.`}
        >
          <Button onClick={() => onChange({ q: "", tag: "" })}>Show all</Button>
        </Empty>
      ) : (
        <ul className={styles.offers}>
          {found.map((offer) => (
            <li key={offer.id}>
              <OfferCard offer={offer} data={data} total={backendNodes.length} />
            </li>
          ))}
        </ul>
      )}
    </>
  );
}

function countTags(offers: readonly BackendOffer[]): [string, number][] {
  const counts = new Map<string, number>();
  for (const tag of offers.flatMap(({ tags }) => tags)) counts.set(tag, (counts.get(tag) ?? 0) + 1);
  return [...counts].sort(([a, m], [b, n]) => n - m || a.localeCompare(b)).slice(0, 24);
}

function OfferCard({ offer, data, total }: { offer: BackendOffer; data: Available; total: number }) {
  const requestOperation = useRequestOperation();
  const [isOpen, setOpen] = useState(false);
  const fits = offer.variants.filter(({ variant }) => variant !== null).reduce((sum, { nodes }) => sum + nodes, 0);
  return (
    <Card
      title={
        <span className={styles.title}>
          {offer.name}
          {offer.installed_on > 0 ? (
            <Pill tone="green">
              On {offer.installed_on} of {plural(total, "node")}
            </Pill>
          ) : null}
          {offer.is_development ? <Pill tone="violet">Development</Pill> : null}
        </span>
      }
      actions={
        <Button
          size="small"
          icon="add"
          aria-label={`Install ${offer.name}`}
          onClick={() => requestOperation({ verb: "install", element: offer.id, name: offer.name, target: EVERYWHERE })}
        >
          Install…
        </Button>
      }
    >
      <div className={styles.body}>
        <p>{offer.description}</p>
        <p className={styles.soft}>
          {[offer.version, sizeWords(offer), offer.license, `from ${offer.gallery}`].filter(Boolean).join(" · ")}
        </p>
        <p className={styles.chips}>
          {offer.tags.map((tag) => (
            <Chip key={tag}>{tag}</Chip>
          ))}
        </p>
        <button type="button" className={styles.chevron} aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
          <span className={cx(styles.turn, isOpen && styles.turned)}>
            <Icon name="chevron" size={14} />
          </span>
          Fits {fits} of {plural(total, "node")}: show builds
        </button>
        {isOpen ? <Variants offer={offer} data={data} /> : null}
      </div>
    </Card>
  );
}

/** The compressed download size; the unpacked backend takes more disk space. */
function sizeWords(offer: BackendOffer): string {
  const size = sizeOf(offer);
  return size === "" ? "size unknown" : `${size} download`;
}

function sizeOf(offer: BackendOffer): string {
  const sizes = offer.variants.map(({ size_bytes }) => size_bytes).filter((size) => size !== null);
  const least = Math.min(...sizes);
  const most = Math.max(...sizes);
  if (sizes.length === 0) return offer.size_bytes === null ? "" : formatBytes(offer.size_bytes);
  return least === most ? formatBytes(least) : `${formatBytes(least)} to ${formatBytes(most)}`;
}

const MOST_NAMES = 12;

function Variants({ offer, data }: { offer: BackendOffer; data: Available }) {
  return (
    <ul className={styles.variants}>
      {offer.variants.map((variant) => {
        const names = data.nodes
          .filter(({ capability }) => capability === variant.capability)
          .map(({ node_name }) => node_name);
        return (
          <li key={variant.capability}>
            <span className={styles.variantHead}>
              {variant.variant === null ? <Pill tone="grey">No matching build</Pill> : <code>{variant.variant}</code>}
              <span className={styles.soft}>
                {[variant.version, variant.size_bytes === null ? "" : `${formatBytes(variant.size_bytes)} download`]
                  .filter(Boolean)
                  .join(" · ")}
              </span>
            </span>
            <span>
              {names.slice(0, MOST_NAMES).join(", ")}
              {names.length > MOST_NAMES ? ` and ${names.length - MOST_NAMES} more` : ""}
            </span>
            <span className={styles.soft}>{sentence(variant.reason, offer.name)}</span>
          </li>
        );
      })}
    </ul>
  );
}
