import { useQuery } from "@tanstack/react-query";
import { memo } from "react";
import { Chip } from "@/components/Chip";
import { modelQueries } from "@/data/models";

const MOST = 3;

/** The models on a node, by name; those that do not serve yet say so. */
export const ModelChips = memo(function ModelChips({ nodeId }: { nodeId: string }) {
  const { data } = useQuery({
    ...modelQueries.replicas(),
    select: (all) => all.filter(({ node_id }) => node_id === nodeId),
  });
  if (data === undefined || data.length === 0) return null;
  return (
    <>
      {data.slice(0, MOST).map((replica) => (
        <Chip
          key={replica.id}
          icon="models"
          round
          strong={replica.corral_state === "ready"}
          title={`Model ${replica.model_name}: ${replica.corral_state}`}
        >
          {replica.model_name}
          {replica.corral_state === "ready" ? "" : ` (${replica.corral_state})`}
        </Chip>
      ))}
      {data.length > MOST ? (
        <Chip icon="models" round title={data.map(({ model_name }) => model_name).join("\n")}>
          +{data.length - MOST}
        </Chip>
      ) : null}
    </>
  );
});
