import { useQuery } from "@tanstack/react-query";
import { useState, type SubmitEvent } from "react";
import { api } from "@/api/client";
import type { PublicRoute, RouteBody } from "@/api/types";
import { Empty, InlineError, Loading, Problem } from "@/components/Answers";
import { Button } from "@/components/Button";
import { Chip } from "@/components/Chip";
import { ConfirmDialog } from "@/components/ConfirmDialog";
import { Dialog, DialogActions } from "@/components/Dialog";
import { Card } from "@/components/Page";
import { Pill } from "@/components/Pill";
import { TextField } from "@/components/TextField";
import { useAnnounce } from "@/components/Toasts";
import { modelQueries } from "@/data/models";
import { plural } from "@/format/text";
import { useModelChange } from "./queries";
import { leadsNowhere, parseTiers, tierText, tierWords } from "./routeTiers";
import styles from "./Routes.module.css";

/** Names for clients that lead to several models. */
export function Routes({ text }: { text: string }) {
  const routes = useQuery(modelQueries.routes());
  const [editing, setEditing] = useState<PublicRoute | null>(null);
  const [deleting, setDeleting] = useState<PublicRoute | null>(null);
  const announce = useAnnounce();
  const remove = useModelChange((name: string) => api.deleteRoute(name));
  if (routes.data === undefined)
    return routes.isPending ? (
      <Loading what="routes" />
    ) : (
      <Problem
        title="Could not load routes"
        error={routes.error}
        retrying={routes.isFetching}
        onRetry={() => void routes.refetch()}
      />
    );
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const found = routes.data.filter(({ name, tiers }) =>
    words.every((word) => `${name} ${tiers.map(tierText).join(" ")}`.toLowerCase().includes(word)),
  );
  if (found.length === 0)
    return routes.data.length === 0 ? (
      <Empty
        icon="models"
        title="No routes yet"
        hint="A route is a name for clients that leads to several models, with weights and fallbacks."
      />
    ) : (
      <Empty
        icon="search"
        title="No matching routes"
        hint={`None of ${plural(routes.data.length, "route")} matches the search.`}
      />
    );
  return (
    <>
      <ul className={styles.routes}>
        {found.map((route) => (
          <li key={route.name}>
            <RouteCard route={route} onEdit={() => setEditing(route)} onDelete={() => setDeleting(route)} />
          </li>
        ))}
      </ul>
      <RouteDialog open={editing !== null} route={editing} onClose={() => setEditing(null)} />
      <ConfirmDialog
        open={deleting !== null}
        onClose={() => setDeleting(null)}
        title={`Delete the route ${deleting?.name ?? ""}?`}
        action="Delete"
        danger
        busy={remove.isPending}
        error={remove.error}
        onConfirm={() =>
          deleting !== null &&
          remove.mutate(deleting.name, {
            onSuccess: () => {
              announce.done(`Deleted the route ${deleting.name}.`);
              setDeleting(null);
            },
          })
        }
      >
        <p>Clients can no longer use this name, unless a model has it too. Its models stay.</p>
      </ConfirmDialog>
    </>
  );
}

function RouteCard({ route, onEdit, onDelete }: { route: PublicRoute; onEdit: () => void; onDelete: () => void }) {
  return (
    <Card
      title={
        <span className={styles.title}>
          {route.name}
          {route.sticky ? <Pill tone="violet">Sticky</Pill> : null}
          {leadsNowhere(route) ? <Pill tone="yellow">Nothing ready</Pill> : null}
        </span>
      }
      actions={
        <>
          <Button size="small" look="quiet" aria-label={`Edit ${route.name}`} onClick={onEdit}>
            Edit…
          </Button>
          <Button size="small" look="quiet" aria-label={`Delete ${route.name}`} onClick={onDelete}>
            Delete…
          </Button>
        </>
      }
    >
      <dl className={styles.tiers}>
        {route.tiers.map((tier, place) => (
          <div key={place} className={styles.tier}>
            <dt>{tierWords(place, route.tiers.length)}</dt>
            <dd>
              {tier.map(({ model, weight, ready }) => (
                <Chip key={model}>
                  {model}
                  {tier.length > 1 || weight !== 1 ? ` × ${weight}` : ""} · {ready} ready
                </Chip>
              ))}
            </dd>
          </div>
        ))}
      </dl>
    </Card>
  );
}

interface RouteDialogProps {
  open: boolean;
  /** Null: a new one. */
  route: PublicRoute | null;
  onClose: () => void;
}

export function RouteDialog({ open, route, onClose }: RouteDialogProps) {
  return (
    <Dialog
      open={open}
      onClose={onClose}
      title={route === null ? "Add a route" : `Edit the route ${route.name}`}
      description={<p>A name for clients. Each fallback gets requests while no model before it can serve them.</p>}
    >
      {open ? <RouteForm route={route} onClose={onClose} /> : null}
    </Dialog>
  );
}

function RouteForm({ route, onClose }: Omit<RouteDialogProps, "open">) {
  const announce = useAnnounce();
  const [name, setName] = useState(route?.name ?? "");
  const [tiers, setTiers] = useState<string[]>(route?.tiers.map(tierText) ?? ["", ""]);
  const [sticky, setSticky] = useState(route?.sticky ?? false);
  const save = useModelChange((body: RouteBody) => api.saveRoute(name.trim(), body));

  function submit(event: SubmitEvent) {
    event.preventDefault();
    save.mutate(
      { tiers: parseTiers(tiers), sticky },
      {
        onSuccess: (saved) => {
          announce.done(`Saved the route ${saved.name}.`);
          onClose();
        },
      },
    );
  }

  return (
    <form className={styles.form} onSubmit={submit}>
      {route === null ? (
        <TextField
          label="Name"
          required
          autoCapitalize="none"
          spellCheck={false}
          value={name}
          onChange={(event) => setName(event.target.value)}
          hint="It may be that of a model that the route leads to."
        />
      ) : null}
      {tiers.map((tier, place) => (
        <TextField
          key={place}
          label={place === 0 ? "Models" : `Fallback ${place}`}
          required={place === 0}
          autoCapitalize="none"
          spellCheck={false}
          value={tier}
          onChange={(event) => setTiers(tiers.map((each, at) => (at === place ? event.target.value : each)))}
          hint={place === 0 ? "Several share the requests, also by weight: qwen=3, llama" : undefined}
        />
      ))}
      <Button size="small" icon="add" onClick={() => setTiers([...tiers, ""])}>
        Add a fallback
      </Button>
      <label className={styles.check}>
        <input type="checkbox" checked={sticky} onChange={(event) => setSticky(event.target.checked)} />
        Requests of one session stay with one model
      </label>
      {save.isError ? <InlineError error={save.error} /> : null}
      <DialogActions>
        <Button onClick={onClose}>Cancel</Button>
        <Button type="submit" look="primary" busy={save.isPending}>
          Save
        </Button>
      </DialogActions>
    </form>
  );
}
