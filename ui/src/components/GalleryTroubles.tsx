import type { Gallery } from "@/api/types";
import { closed, plural } from "@/format/text";
import { formatAge } from "@/format/time";
import styles from "./GalleryTroubles.module.css";
import { Icon } from "./Icon";

/** A gallery that cannot be asked is said to be so: what it had is still shown. */
export function GalleryTroubles({ galleries }: { galleries: readonly Gallery[] }) {
  const troubled = galleries.filter(({ problem }) => problem !== "");
  if (troubled.length === 0) return null;
  return (
    <ul className={styles.troubles}>
      {troubled.map((gallery) => (
        <li key={gallery.name}>
          <Icon name="warning" size={14} /> The gallery {gallery.name} could not be asked: {closed(gallery.problem)}{" "}
          {gallery.entries > 0
            ? `Its ${plural(gallery.entries, "entry is", "entries are")} from ${formatAge(gallery.age_s)}.`
            : "It has no entries yet."}
        </li>
      ))}
    </ul>
  );
}
