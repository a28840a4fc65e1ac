import { useId, type ComponentProps, type ReactNode } from "react";
import { cx } from "./cx";
import styles from "./TextField.module.css";

interface TextAreaProps extends Omit<ComponentProps<"textarea">, "id"> {
  label: string;
  hint?: ReactNode;
}

export function TextArea({ label, hint, ...input }: TextAreaProps) {
  const id = useId();
  return (
    <div className={styles.field}>
      <label htmlFor={id}>{label}</label>
      <textarea
        rows={3}
        autoCapitalize="none"
        spellCheck={false}
        {...input}
        id={id}
        className={cx(styles.input, styles.area)}
        aria-describedby={hint === undefined ? undefined : `${id}-hint`}
      />
      {hint === undefined ? null : (
        <p id={`${id}-hint`} className={styles.hint}>
          {hint}
        </p>
      )}
    </div>
  );
}
