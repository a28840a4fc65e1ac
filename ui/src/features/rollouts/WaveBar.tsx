import type { RolloutWave } from "@/api/types";
import { cx } from "@/components/cx";
import { plural } from "@/format/text";
import styles from "./WaveBar.module.css";
import { WAVE_PILLS } from "./words";

const share = ({ nodes }: RolloutWave) => nodes.filter(({ state }) => state === "done").length / (nodes.length || 1);

/** The waves side by side, each as wide as its share of the nodes and as full as it is done. */
export function WaveBar({ waves }: { waves: readonly RolloutWave[] }) {
  return (
    <ol className={styles.bar} aria-label="Waves">
      {waves.map((wave) => (
        <li
          key={wave.number}
          className={cx(styles.wave, styles[wave.state])}
          style={{ flexGrow: wave.nodes.length || 1 }}
          title={`Wave ${wave.number}: ${WAVE_PILLS[wave.state]?.word ?? wave.state}, ${plural(wave.nodes.length, "node")}`}
        >
          <span className={styles.fill} style={{ width: `${share(wave) * 100}%` }} />
          <span className="visually-hidden">
            Wave {wave.number}: {WAVE_PILLS[wave.state]?.word ?? wave.state}, {plural(wave.nodes.length, "node")}
          </span>
        </li>
      ))}
    </ol>
  );
}
