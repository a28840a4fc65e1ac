import { useQuery } from "@tanstack/react-query";
import { Loading, Problem } from "@/components/Answers";
import { sessionQuery } from "@/features/session/queries";
import { SignInPage } from "@/features/session/SignInPage";
import { Shell } from "./Shell";

/** Who is not signed in sees the sign-in page at whatever address; once signed in, the address still holds. */
export function Gate() {
  const session = useQuery(sessionQuery);
  if (session.isPending) return <Loading what="Corral" />;
  if (session.data === undefined) {
    return (
      <Problem
        title="Corral does not answer"
        error={session.error}
        retrying={session.isFetching}
        onRetry={() => void session.refetch()}
      />
    );
  }
  return session.data === null ? <SignInPage /> : <Shell session={session.data} />;
}
