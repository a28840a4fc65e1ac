import styles from "./Tabs.module.css";

interface TabsProps<T extends string> {
  label: string;
  value: T;
  tabs: readonly { value: T; word: string; count?: number | undefined }[];
  onChange: (value: T) => void;
}

/** The views of a page. The address holds the current one, so the tabs are navigation. */
export function Tabs<T extends string>({ label, value, tabs, onChange }: TabsProps<T>) {
  return (
    <nav className={styles.tabs} aria-label={label}>
      {tabs.map((tab) => (
        <button
          key={tab.value}
          type="button"
          className={styles.tab}
          aria-current={tab.value === value ? "page" : undefined}
          onClick={() => onChange(tab.value)}
        >
          {tab.word}
          {tab.count === undefined ? null : <span className={styles.count}>{tab.count}</span>}
        </button>
      ))}
    </nav>
  );
}
