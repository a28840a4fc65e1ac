import type { ComponentProps, ReactNode } from "react";
import styles from "./Button.module.css";
import { cx } from "./cx";
import { Icon, type IconName } from "./Icon";
import { Spinner } from "./Spinner";

interface ButtonProps extends Omit<ComponentProps<"button">, "children"> {
  look?: "primary" | "plain" | "quiet" | "danger";
  size?: "regular" | "small";
  icon?: IconName;
  /** The action is in progress: shows it, and does not start it twice. */
  busy?: boolean;
  children: ReactNode;
}

export function Button({
  look = "plain",
  size = "regular",
  icon,
  busy = false,
  children,
  onClick,
  ...rest
}: ButtonProps) {
  return (
    <button
      type="button"
      {...rest}
      className={cx(styles.button, styles[look], styles[size])}
      // Not `disabled`: that would move the keyboard focus to the top of the page.
      aria-disabled={busy || rest["aria-disabled"]}
      aria-busy={busy}
      onClick={(event) => {
        if (busy) event.preventDefault();
        else onClick?.(event);
      }}
    >
      {busy ? <Spinner /> : icon ? <Icon name={icon} /> : null}
      {children}
    </button>
  );
}

interface IconButtonProps extends Omit<ComponentProps<"button">, "children" | "aria-label"> {
  icon: IconName;
  label: string;
}

export function IconButton({ icon, label, ...rest }: IconButtonProps) {
  return (
    <button type="button" title={label} {...rest} aria-label={label} className={styles.iconButton}>
      <Icon name={icon} />
    </button>
  );
}
