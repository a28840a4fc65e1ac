/** The building blocks of a details panel. */
import { useEffect, useRef, type ReactNode } from "react";
import { messageOf } from "./Answers";
import { Button, IconButton } from "./Button";
import { Spinner } from "./Spinner";
import styles from "./PanelParts.module.css";

interface PanelHeaderProps {
  title: string;
  /** The subject; a new one gets the focus again. */
  id: string;
  onClose: () => void;
  children?: ReactNode;
}

export function PanelHeader({ title, id, onClose, children }: PanelHeaderProps) {
  const heading = useRef<HTMLHeadingElement>(null);
  // Keyboard users continue reading here.
  useEffect(() => heading.current?.focus({ preventScroll: true }), [id]);
  return (
    <header className={styles.header}>
      <div className={styles.titles}>
        <h2 ref={heading} tabIndex={-1} className={styles.title}>
          {title}
        </h2>
        {children}
      </div>
      <IconButton icon="close" label="Close details" onClick={onClose} />
    </header>
  );
}

export function PanelActions({ children }: { children: ReactNode }) {
  return <div className={styles.actions}>{children}</div>;
}

export function PanelSection({ title, children }: { title: string; children: ReactNode }) {
  return (
    <section className={styles.section}>
      <h3>{title}</h3>
      {children}
    </section>
  );
}

export interface Query<T> {
  data: T | undefined;
  isPending: boolean;
  isFetching: boolean;
  error: unknown;
  refetch: () => unknown;
}

/** The data of a query, or a line with its error and a retry button. */
export function QueryResult<T>({ query, children }: { query: Query<T>; children: (data: T) => ReactNode }) {
  if (query.data !== undefined) return children(query.data);
  if (query.isPending) return <Spinner />;
  return (
    <p className={styles.unread}>
      {messageOf(query.error)}{" "}
      <Button size="small" icon="retry" busy={query.isFetching} onClick={() => void query.refetch()}>
        Try again
      </Button>
    </p>
  );
}

export function Facts({ children }: { children: ReactNode }) {
  return <dl className={styles.facts}>{children}</dl>;
}

export function Fact({ name, children }: { name: string; children: ReactNode }) {
  return (
    <div className={styles.fact}>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}
