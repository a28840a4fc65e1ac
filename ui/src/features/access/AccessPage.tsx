import { getRouteApi } from "@tanstack/react-router";
import { useState } from "react";
import { Button } from "@/components/Button";
import { Page } from "@/components/Page";
import { SearchField } from "@/components/SearchField";
import { Tabs } from "@/components/Tabs";
import { AuditLog } from "./AuditLog";
import { Keys } from "./Keys";
import { DefaultLimitsDialog } from "./LimitsOfKeyDialog";
import { NewKeyDialog } from "./NewKeyDialog";
import type { AccessSearch, AccessTab } from "./search";

const route = getRouteApi("/access");

export function AccessPage() {
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const [creating, setCreating] = useState(false);
  const [limiting, setLimiting] = useState(false);
  const tab = search.tab ?? "keys";
  const text = search.q ?? "";
  const show = (change: AccessSearch, replace = false) =>
    void navigate({ search: (now) => ({ ...now, ...change }), replace });
  return (
    <Page
      title="Access"
      actions={
        tab === "keys" ? (
          <>
            <Button onClick={() => setLimiting(true)}>Default limits…</Button>
            <Button look="primary" icon="add" onClick={() => setCreating(true)}>
              New key
            </Button>
          </>
        ) : undefined
      }
      toolbar={
        <>
          <Tabs<AccessTab>
            label="Access views"
            value={tab}
            onChange={(next) => show({ tab: next, q: "" })}
            tabs={[
              { value: "keys", word: "Keys" },
              { value: "audit", word: "Audit log" },
            ]}
          />
          <SearchField
            label={tab === "keys" ? "Search keys" : "Filter the audit log"}
            placeholder={tab === "keys" ? "Name, scope…" : "User, action, object…"}
            text={text}
            onText={(q) => show({ q }, true)}
          />
        </>
      }
    >
      {tab === "keys" ? <Keys text={text} onCreate={() => setCreating(true)} /> : <AuditLog text={text} />}
      <DefaultLimitsDialog open={limiting} onClose={() => setLimiting(false)} />
      <NewKeyDialog open={creating} onClose={() => setCreating(false)} />
    </Page>
  );
}
