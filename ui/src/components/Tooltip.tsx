import { Tooltip as Base } from "@base-ui/react/tooltip";
import type { ReactElement } from "react";
import styles from "./Tooltip.module.css";

/** A text beside a hovered or focused element. It must not be required to continue. */
export function Tooltip({ text, children }: { text: string; children: ReactElement }) {
  return (
    <Base.Provider delay={150}>
      <Base.Root>
        <Base.Trigger render={children} />
        <Base.Portal>
          <Base.Positioner sideOffset={6} collisionPadding={8} className={styles.positioner}>
            <Base.Popup className={styles.popup} role="tooltip">
              {text}
            </Base.Popup>
          </Base.Positioner>
        </Base.Portal>
      </Base.Root>
    </Base.Provider>
  );
}
