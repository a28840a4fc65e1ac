import { useState, type SubmitEvent } from "react";
import { InlineError } from "@/components/Answers";
import { Brand } from "@/components/Brand";
import { Button } from "@/components/Button";
import { TextField } from "@/components/TextField";
import { useTitle } from "@/components/useTitle";
import { useSignIn } from "./queries";
import styles from "./SignInPage.module.css";

export function SignInPage() {
  useTitle("Sign in");
  const [apiKey, setApiKey] = useState("");
  const signIn = useSignIn();

  function submit(event: SubmitEvent) {
    event.preventDefault();
    if (!signIn.isPending && apiKey.trim() !== "") signIn.mutate(apiKey.trim());
  }

  return (
    <main className={styles.page}>
      <form className={styles.card} onSubmit={submit}>
        <Brand />
        <div>
          <h1>Sign in</h1>
          <p className={styles.lead}>Use an API key with the admin scope.</p>
        </div>
        <TextField
          label="API key"
          type="password"
          name="api_key"
          autoComplete="current-password"
          autoCapitalize="none"
          spellCheck={false}
          autoFocus
          required
          value={apiKey}
          onChange={(event) => setApiKey(event.target.value)}
          hint={
            <>
              Corral created the first key when it first started; <code>corral up</code> prints where it is. To create
              another: <code>corral keys create --name you --scope admin</code>
            </>
          }
        />
        {signIn.isError ? <InlineError error={signIn.error} /> : null}
        <Button type="submit" look="primary" busy={signIn.isPending}>
          Sign in
        </Button>
      </form>
    </main>
  );
}
