import { Select } from "@/components/Choice";
import { TextField } from "@/components/TextField";
import { LIMITS, PRIORITIES, type LimitFields, type Priority } from "./limits";
import styles from "./Limits.module.css";

interface LimitFieldsetProps {
  fields: LimitFields;
  onChange: (fields: LimitFields) => void;
  /** Shown in empty fields. */
  empty: string;
}

export function LimitFieldset({ fields, onChange, empty }: LimitFieldsetProps) {
  return (
    <fieldset className={styles.fields}>
      <legend>Limits</legend>
      {LIMITS.map(({ name, word }) => (
        <TextField
          key={name}
          label={word}
          inputMode="numeric"
          placeholder={empty}
          value={fields[name]}
          onChange={(event) => onChange({ ...fields, [name]: event.target.value })}
        />
      ))}
      <Select<Priority | "">
        label="Priority"
        value={fields.priority}
        onChange={(priority) => onChange({ ...fields, priority })}
        options={[{ value: "", word: empty }, ...PRIORITIES]}
      />
    </fieldset>
  );
}
