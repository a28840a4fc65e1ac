import { useQuery } from "@tanstack/react-query";
import { Link, Outlet } from "@tanstack/react-router";
import { useRef } from "react";
import type { Session } from "@/api/types";
import { messageOf } from "@/components/Answers";
import { Brand } from "@/components/Brand";
import { Icon, type IconName } from "@/components/Icon";
import { Menu, MenuChoice, MenuItem, MenuLine, MenuNote } from "@/components/Menu";
import { useAnnounce } from "@/components/Toasts";
import { nodeQueries } from "@/features/nodes";
import { useSignOut } from "@/features/session/queries";
import { ConnectionBanner, ConnectionState } from "./ConnectionState";
import styles from "./Shell.module.css";
import { setTheme, useTheme } from "./theme";
import { useLive } from "./useLive";

export function Shell({ session }: { session: Session }) {
  useLive();
  const main = useRef<HTMLElement>(null);
  return (
    <div className={styles.shell}>
      {/* A button and not an anchor: what follows `#` in the address is the page's own address. */}
      <button type="button" className={styles.skip} onClick={() => main.current?.focus()}>
        Skip to content
      </button>
      <header className={styles.side}>
        <Link to="/nodes" className={styles.home} aria-label="Corral, start page">
          <Brand />
        </Link>
        <nav className={styles.nav} aria-label="Main">
          <NavLink to="/nodes" icon="nodes" word="Nodes" badge={<PendingBadge />} />
          <NavLink to="/system" icon="system" word="System" />
        </nav>
        <div className={styles.foot}>
          <ConnectionState />
          <AccountMenu session={session} />
        </div>
      </header>
      <main ref={main} className={styles.main} tabIndex={-1}>
        <ConnectionBanner />
        <div className={styles.content}>
          <Outlet />
        </div>
      </main>
    </div>
  );
}

function NavLink({ to, icon, word, badge }: { to: "/nodes" | "/system"; icon: IconName; word: string; badge?: React.ReactNode }) {
  return (
    <Link to={to} className={styles.link} activeOptions={{ includeSearch: false }}>
      <Icon name={icon} size={18} />
      <span>{word}</span>
      {badge}
    </Link>
  );
}

function PendingBadge() {
  const nodes = useQuery({ ...nodeQueries.list(), select: (all) => all.filter(({ approved }) => !approved).length });
  if (!nodes.data) return null;
  return (
    <span className={styles.badge}>
      {nodes.data}
      <span className="visually-hidden"> waiting for approval</span>
    </span>
  );
}

const THEMES = [
  { value: "system", label: "Like the system", icon: "computer" },
  { value: "light", label: "Light", icon: "sun" },
  { value: "dark", label: "Dark", icon: "moon" },
] as const;

function AccountMenu({ session }: { session: Session }) {
  const theme = useTheme();
  const signOut = useSignOut();
  const announce = useAnnounce();
  return (
    <Menu
      side="top"
      trigger={
        <button type="button" className={styles.account} aria-label={`${session.name}: theme and sign-out`}>
          <Icon name="user" />
          <span className={styles.who}>{session.name}</span>
        </button>
      }
    >
      <MenuNote>
        Signed in as {session.name} ({session.scope})
      </MenuNote>
      <MenuLine />
      <MenuChoice label="Theme" value={theme} options={THEMES} onChange={setTheme} />
      <MenuLine />
      <MenuItem
        icon="signOut"
        onSelect={() => signOut.mutate(undefined, { onError: (error) => announce.failed("You are still signed in.", messageOf(error)) })}
      >
        Sign out
      </MenuItem>
    </Menu>
  );
}
