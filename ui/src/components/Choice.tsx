import { useId, type ReactNode } from "react";
import styles from "./Choice.module.css";

interface ChoiceProps<T extends string> {
  label: string;
  value: T;
  options: readonly { value: T; word: ReactNode; hint?: ReactNode }[];
  onChange: (value: T) => void;
}

/** One of a few options, all visible. */
export function Choice<T extends string>({ label, value, options, onChange }: ChoiceProps<T>) {
  const name = useId();
  return (
    <fieldset className={styles.choice}>
      <legend>{label}</legend>
      {options.map((option) => (
        <label key={option.value} className={styles.option}>
          <input type="radio" name={name} checked={option.value === value} onChange={() => onChange(option.value)} />
          <span>
            {option.word}
            {option.hint === undefined ? null : <span className={styles.hint}>{option.hint}</span>}
          </span>
        </label>
      ))}
    </fieldset>
  );
}

interface ChoicesProps {
  label: string;
  values: readonly string[];
  options: readonly string[];
  onChange: (values: string[]) => void;
  hint: string;
}

/** Any of a few options, all visible. */
export function Choices({ label, values, options, onChange, hint }: ChoicesProps) {
  return (
    <fieldset className={styles.choice}>
      <legend>{label}</legend>
      {options.map((option) => (
        <label key={option} className={styles.option}>
          <input
            type="checkbox"
            checked={values.includes(option)}
            onChange={(event) =>
              onChange(options.filter((one) => (one === option ? event.target.checked : values.includes(one))))
            }
          />
          <span>{option}</span>
        </label>
      ))}
      <span className={styles.hint}>{hint}</span>
    </fieldset>
  );
}

interface SelectProps<T extends string> {
  label: string;
  value: T;
  options: readonly { value: T; word: string }[];
  onChange: (value: T) => void;
  hidden?: boolean;
  /** The subject, for screen readers. */
  about?: string;
}

/** One of many options. The browser's own control works everywhere, also on a phone. */
export function Select<T extends string>({
  label,
  value,
  options,
  onChange,
  hidden = false,
  about = "",
}: SelectProps<T>) {
  const id = useId();
  return (
    <div className={styles.field}>
      <label htmlFor={id} className={hidden ? "visually-hidden" : undefined}>
        {label}
        {about === "" ? null : <span className="visually-hidden">: {about}</span>}
      </label>
      <select id={id} className={styles.select} value={value} onChange={(event) => onChange(event.target.value as T)}>
        {options.map((option) => (
          <option key={option.value} value={option.value}>
            {option.word}
          </option>
        ))}
      </select>
    </div>
  );
}
