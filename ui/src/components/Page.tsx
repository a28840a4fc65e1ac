import type { ReactNode } from "react";
import styles from "./Page.module.css";
import { useTitle } from "./useTitle";

interface PageProps {
  title: string;
  /** Buttons beside the title. */
  actions?: ReactNode;
  /** Stays in view while the page scrolls. */
  toolbar?: ReactNode;
  children: ReactNode;
}

/** A page that scrolls as a whole. */
export function Page({ title, actions, toolbar, children }: PageProps) {
  useTitle(title);
  return (
    <div className={styles.page}>
      <header className={styles.header}>
        <h1>{title}</h1>
        {actions === undefined ? null : <div className={styles.actions}>{actions}</div>}
      </header>
      {toolbar === undefined ? null : <div className={styles.toolbar}>{toolbar}</div>}
      <div className={styles.body}>{children}</div>
    </div>
  );
}

export function Card({ title, actions, children }: { title?: ReactNode; actions?: ReactNode; children: ReactNode }) {
  return (
    <section className={styles.card}>
      {title === undefined ? null : (
        <header className={styles.cardHead}>
          <h2>{title}</h2>
          {actions === undefined ? null : <div className={styles.actions}>{actions}</div>}
        </header>
      )}
      {children}
    </section>
  );
}
