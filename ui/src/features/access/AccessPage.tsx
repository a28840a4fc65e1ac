import { getRouteApi } from "@tanstack/react-router";
import { useState } from "react";
import { Button } from "@/components/Button";
import { Page } from "@/components/Page";
import { SearchField } from "@/components/SearchField";
import { Tabs } from "@/components/Tabs";
import { AuditLog } from "./AuditLog";
import { Keys } from "./Keys";
import { NewKeyDialog } from "./NewKeyDialog";
import type { AccessSearch, AccessTab } from "./search";

const route = getRouteApi("/access");

export function AccessPage() {
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const [making, setMaking] = useState(false);
  const tab = search.tab ?? "keys";
  const text = search.q ?? "";
  const show = (change: AccessSearch, replace = false) =>
    void navigate({ search: (now) => ({ ...now, ...change }), replace });
  return (
    <Page
      title="Access"
      actions={
        tab === "keys" ? (
          <Button look="primary" icon="add" onClick={() => setMaking(true)}>
            New key
          </Button>
        ) : undefined
      }
      toolbar={
        <>
          <Tabs<AccessTab>
            label="Parts of the access"
            value={tab}
            onChange={(next) => show({ tab: next, q: "" })}
            tabs={[
              { value: "keys", word: "Keys" },
              { value: "audit", word: "Audit log" },
            ]}
          />
          <SearchField
            label={tab === "keys" ? "Search keys" : "Filter the audit log"}
            placeholder={tab === "keys" ? "Name, scope…" : "Who, what, on what…"}
            text={text}
            onText={(q) => show({ q }, true)}
          />
        </>
      }
    >
      {tab === "keys" ? <Keys text={text} onMake={() => setMaking(true)} /> : <AuditLog text={text} />}
      <NewKeyDialog open={making} onClose={() => setMaking(false)} />
    </Page>
  );
}
