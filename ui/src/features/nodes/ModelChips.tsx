import type { Replica } from "@/api/types";
import { useQuery } from "@tanstack/react-query";
import { memo } from "react";
import { Chip } from "@/components/Chip";
import { modelQueries } from "@/data/models";
import { REPLICA_WORDS } from "@/data/modelState";

const MOST = 3;

const stateWord = ({ corral_state }: Replica) => REPLICA_WORDS[corral_state].word.toLowerCase();

/** The models on a node, with the state of those that are not ready. */
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
          title={`Model ${replica.model_name}: ${stateWord(replica)}`}
        >
          {replica.model_name}
          {replica.corral_state === "ready" ? "" : ` (${stateWord(replica)})`}
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
