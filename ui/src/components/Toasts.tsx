import { Toast } from "@base-ui/react/toast";
import type { ReactNode } from "react";
import { IconButton } from "./Button";
import { Icon } from "./Icon";
import styles from "./Toasts.module.css";
import { cx } from "./cx";

type Kind = "done" | "failed";

/** Shows that an action succeeded, or, until dismissed, that it failed and why. */
export function useAnnounce(): { done: (text: string) => void; failed: (title: string, text: string) => void } {
  const manager = Toast.useToastManager();
  return {
    done: (text) => void manager.add({ title: text, type: "done" satisfies Kind, timeout: 4000 }),
    failed: (title, text) =>
      void manager.add({ title, description: text, type: "failed" satisfies Kind, timeout: 0, priority: "high" }),
  };
}

function List() {
  const { toasts } = Toast.useToastManager();
  return toasts.map((toast) => (
    <Toast.Root key={toast.id} toast={toast} className={cx(styles.toast, styles[toast.type ?? "done"])}>
      <Icon name={toast.type === "failed" ? "warning" : "approve"} />
      <div className={styles.text}>
        <Toast.Title className={styles.title} render={<p />} />
        <Toast.Description className={styles.description} />
      </div>
      <Toast.Close render={<IconButton icon="close" label="Dismiss" />} />
    </Toast.Root>
  ));
}

export function Toasts({ children }: { children: ReactNode }) {
  return (
    <Toast.Provider limit={4}>
      {children}
      <Toast.Portal>
        <Toast.Viewport className={styles.viewport}>
          <List />
        </Toast.Viewport>
      </Toast.Portal>
    </Toast.Provider>
  );
}
