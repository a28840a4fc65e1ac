/** What the details of a thing are made of. */
import { useEffect, useRef, type ReactNode } from "react";
import { messageOf } from "./Answers";
import { Button, IconButton } from "./Button";
import { Spinner } from "./Spinner";
import styles from "./PanelParts.module.css";

interface PanelHeaderProps {
  title: string;
  /** What is shown: another one gets the focus anew. */
  id: string;
  onClose: () => void;
  children?: ReactNode;
}

export function PanelHeader({ title, id, onClose, children }: PanelHeaderProps) {
  const heading = useRef<HTMLHeadingElement>(null);
  // Whoever opens it from the keyboard goes on reading here.
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

/** What a section asks for, or in a line why it is not there and the way on. */
export function Asked<T>({ query, children }: { query: Query<T>; children: (data: T) => ReactNode }) {
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
