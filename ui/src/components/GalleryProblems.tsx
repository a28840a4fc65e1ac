import type { Gallery } from "@/api/types";
import { closed, plural } from "@/format/text";
import { formatAge } from "@/format/time";
import styles from "./GalleryProblems.module.css";
import { Icon } from "./Icon";

/** Galleries that could not be refreshed; their last known entries are still shown. */
export function GalleryProblems({ galleries }: { galleries: readonly Gallery[] }) {
  const failing = galleries.filter(({ problem }) => problem !== "");
  if (failing.length === 0) return null;
  return (
    <ul className={styles.problems}>
      {failing.map((gallery) => (
        <li key={gallery.name}>
          <Icon name="warning" size={14} /> Could not refresh gallery {gallery.name}: {closed(gallery.problem)}{" "}
          {gallery.entries > 0
            ? `Its ${plural(gallery.entries, "entry is", "entries are")} from ${formatAge(gallery.age_s)}.`
            : "It has no entries yet."}
        </li>
      ))}
    </ul>
  );
}
