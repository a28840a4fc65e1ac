import { Button } from "@/components/Button";
import { cx } from "@/components/cx";
import { useNow } from "@/components/useNow";
import { sentence } from "@/format/text";
import { formatClock } from "@/format/time";
import { eventStream, useConnection } from "@/live/connection";
import styles from "./ConnectionState.module.css";

const WORDS = { connecting: "Connecting…", live: "Live", reconnecting: "Reconnecting…" } as const;

export function ConnectionState() {
  const { state } = useConnection();
  return (
    <span className={cx(styles.state, styles[state])} role="status" data-connection={state}>
      <svg aria-hidden="true" width="10" height="10" viewBox="0 0 10 10">
        {state === "live" ? (
          <circle cx="5" cy="5" r="4" fill="currentColor" />
        ) : (
          <circle cx="5" cy="5" r="3.6" fill="none" stroke="currentColor" strokeWidth="1.8" strokeDasharray="3.2 2.4" />
        )}
      </svg>
      {WORDS[state]}
    </span>
  );
}

/** While disconnected, the page shows old data: this banner says so, and since when. */
export function ConnectionBanner() {
  const connection = useConnection();
  if (connection.state !== "reconnecting") return null;
  return (
    <div className={styles.banner} role="alert">
      <p>
        <strong>Not connected since {formatClock(connection.lostAt)}.</strong> The data shown is from that time.{" "}
        {sentence(connection.reason)}
      </p>
      <span className={styles.retry}>
        <Countdown retryAt={connection.retryAt} />
        <Button size="small" onClick={eventStream.retryNow}>
          Retry now
        </Button>
      </span>
    </div>
  );
}

function Countdown({ retryAt }: { retryAt: number | null }) {
  const now = useNow();
  const seconds = retryAt === null ? 0 : Math.ceil((retryAt - now) / 1000);
  // Hidden from screen readers: an alert that changes every second would be read out every second.
  return <span aria-hidden="true">{seconds > 0 ? `Retrying in ${seconds} s` : "Retrying…"}</span>;
}
