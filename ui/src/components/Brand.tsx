import styles from "./Brand.module.css";

export function Brand() {
  return (
    <span className={styles.brand}>
      <svg
        aria-hidden="true"
        width="22"
        height="22"
        viewBox="0 0 32 32"
        fill="none"
        stroke="currentColor"
        strokeWidth="2.6"
        strokeLinecap="round"
      >
        <path d="M8 8v16M16 6.5v19M24 8v16M5 13h22M5 20h22" />
      </svg>
      Corral
    </span>
  );
}
