import { useQuery } from "@tanstack/react-query";
import { InlineError } from "@/components/Answers";
import { Choice } from "@/components/Choice";
import { modelQueries } from "@/data/models";
import styles from "./ModelPicker.module.css";

/** The models and routes that a key may use: null means all, including models added later. */
export function ModelPicker({
  models,
  onChange,
}: {
  models: readonly string[] | null;
  onChange: (models: string[] | null) => void;
}) {
  const all = useQuery(modelQueries.list());
  const routes = useQuery(modelQueries.routes());
  const names = [...new Set([...(all.data ?? []), ...(routes.data ?? [])].map(({ name }) => name))].sort();
  return (
    <div className={styles.picker}>
      <Choice
        label="Models"
        value={models === null ? "all" : "some"}
        onChange={(kind) => onChange(kind === "all" ? null : [])}
        options={[
          { value: "all", word: "All, including models added later" },
          { value: "some", word: "Selected models" },
        ]}
      />
      {models === null ? null : all.data === undefined ? (
        all.isPending ? (
          <p>Loading models…</p>
        ) : (
          <InlineError error={all.error} />
        )
      ) : names.length === 0 ? (
        <p>No models yet.</p>
      ) : (
        <ul className={styles.list}>
          {names.map((name) => (
            <li key={name}>
              <label className={styles.model}>
                <input
                  type="checkbox"
                  checked={models.includes(name)}
                  onChange={(event) =>
                    onChange(event.target.checked ? [...models, name] : models.filter((each) => each !== name))
                  }
                />
                {name}
              </label>
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}
