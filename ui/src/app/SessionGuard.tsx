import { useQuery } from "@tanstack/react-query";
import { Loading, Problem } from "@/components/Answers";
import { sessionQuery } from "@/features/session/queries";
import { SignInPage } from "@/features/session/SignInPage";
import { Shell } from "./Shell";

/** Shows the sign-in page at any address until the user is signed in; the address stays. */
export function SessionGuard() {
  const session = useQuery(sessionQuery);
  if (session.isPending) return <Loading what="Corral" />;
  if (session.data === undefined) {
    return (
      <Problem
        title="Corral is not responding"
        error={session.error}
        retrying={session.isFetching}
        onRetry={() => void session.refetch()}
      />
    );
  }
  return session.data === null ? <SignInPage /> : <Shell session={session.data} />;
}
