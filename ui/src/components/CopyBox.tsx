import { useRef, useState } from "react";
import { Button } from "./Button";
import styles from "./CopyBox.module.css";

/** The clipboard API exists only in secure contexts, and a frontend on a home network often uses plain HTTP; the older
 * command works there too. */
async function writeClipboard(text: string, source: HTMLElement): Promise<boolean> {
  const clipboard = navigator.clipboard as Clipboard | undefined;
  if (clipboard !== undefined) {
    try {
      await clipboard.writeText(text);
      return true;
    } catch {
      // Denied by a policy or a person: the selection below may still be allowed.
    }
  }
  window.getSelection()?.selectAllChildren(source);
  // eslint-disable-next-line @typescript-eslint/no-deprecated -- plain HTTP has nothing newer
  return document.execCommand("copy");
}

export function CopyBox({ label, text }: { label: string; text: string }) {
  const code = useRef<HTMLElement>(null);
  const [outcome, setOutcome] = useState<"none" | "copied" | "selected">("none");

  async function copy() {
    if (code.current === null) return;
    setOutcome((await writeClipboard(text, code.current)) ? "copied" : "selected");
  }

  return (
    <div className={styles.box}>
      <pre className={styles.pre} tabIndex={0} aria-label={label}>
        <code ref={code}>{text}</code>
      </pre>
      <div className={styles.bar}>
        <span role="status" className={styles.outcome}>
          {outcome === "selected"
            ? "This browser does not allow copying. The text is selected: press Ctrl+C or ⌘C."
            : ""}
          {outcome === "copied" ? <span className="visually-hidden">Copied.</span> : null}
        </span>
        <Button look="primary" icon={outcome === "copied" ? "approve" : "copy"} onClick={() => void copy()}>
          {outcome === "copied" ? "Copied" : "Copy"}
        </Button>
      </div>
    </div>
  );
}
