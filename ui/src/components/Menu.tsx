import { Menu as Base } from "@base-ui/react/menu";
import type { ReactElement, ReactNode } from "react";
import { Icon, type IconName } from "./Icon";
import styles from "./Menu.module.css";
import { cx } from "./cx";

export function Menu({
  trigger,
  children,
  side = "bottom",
}: {
  trigger: ReactElement;
  children: ReactNode;
  side?: "bottom" | "top";
}) {
  return (
    <Base.Root modal={false}>
      <Base.Trigger render={trigger} />
      <Base.Portal>
        <Base.Positioner className={styles.positioner} side={side} align="end" sideOffset={4} collisionPadding={8}>
          <Base.Popup className={styles.popup}>{children}</Base.Popup>
        </Base.Positioner>
      </Base.Portal>
    </Base.Root>
  );
}

interface MenuItemProps {
  icon: IconName;
  danger?: boolean;
  onSelect: () => void;
  children: ReactNode;
}

export function MenuItem({ icon, danger = false, onSelect, children }: MenuItemProps) {
  return (
    <Base.Item className={cx(styles.item, danger && styles.danger)} onClick={onSelect}>
      <Icon name={icon} />
      {children}
    </Base.Item>
  );
}

export function MenuLine() {
  return <Base.Separator className={styles.line} />;
}

export function MenuNote({ children }: { children: ReactNode }) {
  return <div className={styles.note}>{children}</div>;
}

interface MenuChoiceProps<T extends string> {
  label: string;
  value: T;
  options: readonly { value: T; label: string; icon: IconName }[];
  onChange: (value: T) => void;
}

export function MenuChoice<T extends string>({ label, value, options, onChange }: MenuChoiceProps<T>) {
  return (
    <Base.Group>
      <Base.GroupLabel className={styles.groupLabel}>{label}</Base.GroupLabel>
      <Base.RadioGroup value={value} onValueChange={(next) => onChange(next as T)}>
        {options.map((option) => (
          <Base.RadioItem key={option.value} value={option.value} closeOnClick={false} className={styles.item}>
            <Icon name={option.icon} />
            {option.label}
            <Base.RadioItemIndicator className={styles.tick}>
              <Icon name="approve" />
            </Base.RadioItemIndicator>
          </Base.RadioItem>
        ))}
      </Base.RadioGroup>
    </Base.Group>
  );
}
