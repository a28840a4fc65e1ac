import { useQuery } from "@tanstack/react-query";
import { Link, Outlet, useNavigate } from "@tanstack/react-router";
import { useRef } from "react";
import type { Session } from "@/api/types";
import { messageOf } from "@/components/Answers";
import { Brand } from "@/components/Brand";
import { cx } from "@/components/cx";
import { Icon, type IconName } from "@/components/Icon";
import { Menu, MenuChoice, MenuItem, MenuLine, MenuNote } from "@/components/Menu";
import { useAnnounce } from "@/components/Toasts";
import { nodeQueries } from "@/data/nodes";
import { OperationsBar } from "@/features/operations/OperationsBar";
import { useSignOut } from "@/features/session/queries";
import { ConnectionBanner, ConnectionState } from "./ConnectionState";
import styles from "./Shell.module.css";
import { setTheme, useTheme } from "./theme";
import { useAllCode } from "./lateCode";
import { useLive } from "./useLive";

export function Shell({ session }: { session: Session }) {
  useLive();
  useAllCode();
  const main = useRef<HTMLElement>(null);
  return (
    <div className={styles.shell}>
      {/* A button and not an anchor: what follows `#` in the address is the page's own address. */}
      <button type="button" className={styles.skip} onClick={() => main.current?.focus()}>
        Skip to content
      </button>
      <header className={styles.side}>
        <Link to="/" className={styles.home} aria-label="Corral home page">
          <Brand />
        </Link>
        <nav className={styles.nav} aria-label="Main">
          <NavLink to="/" icon="overview" word="Overview" />
          <NavLink to="/nodes" icon="nodes" word="Nodes" badge={<PendingBadge />} />
          <NavLink to="/backends" icon="backends" word="Backends" />
          <NavLink to="/models" icon="models" word="Models" />
          <NavLink to="/chat" icon="chat" word="Chat" />
          {SECOND_PAGES.map((page) => (
            <NavLink key={page.to} {...page} second />
          ))}
          <MoreMenu />
        </nav>
        <div className={styles.foot}>
          <ConnectionState />
          <AccountMenu session={session} />
        </div>
      </header>
      <main ref={main} className={styles.main} tabIndex={-1}>
        <ConnectionBanner />
        <OperationsBar />
        <div className={styles.content}>
          <Outlet />
        </div>
      </main>
    </div>
  );
}

const SECOND_PAGES = [
  { to: "/rollouts", icon: "rollouts", word: "Rollouts" },
  { to: "/activity", icon: "activity", word: "Activity" },
  { to: "/access", icon: "access", word: "Access" },
  { to: "/system", icon: "system", word: "System" },
] as const satisfies readonly { to: Page; icon: IconName; word: string }[];

type Page = "/" | "/nodes" | "/backends" | "/models" | "/chat" | "/rollouts" | "/activity" | "/access" | "/system";

interface NavLinkProps {
  to: Page;
  icon: IconName;
  word: string;
  badge?: React.ReactNode;
  /** A page that does not fit into the navigation bar of a phone. */
  second?: boolean;
}

function NavLink({ to, icon, word, badge, second = false }: NavLinkProps) {
  return (
    <Link
      to={to}
      className={cx(styles.link, second && styles.second)}
      activeOptions={{ includeSearch: false, exact: to === "/" }}
    >
      <Icon name={icon} size={18} />
      <span>{word}</span>
      {badge}
    </Link>
  );
}

function MoreMenu() {
  const navigate = useNavigate();
  return (
    <Menu
      side="top"
      trigger={
        <button type="button" className={cx(styles.link, styles.moreButton)}>
          <Icon name="more" size={18} />
          <span>More</span>
        </button>
      }
    >
      {SECOND_PAGES.map(({ to, icon, word }) => (
        <MenuItem key={to} icon={icon} onSelect={() => void navigate({ to })}>
          {word}
        </MenuItem>
      ))}
    </Menu>
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
  { value: "system", label: "System", icon: "computer" },
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
        onSelect={() =>
          signOut.mutate(undefined, {
            onError: (error) => announce.failed("Could not sign out.", messageOf(error)),
          })
        }
      >
        Sign out
      </MenuItem>
    </Menu>
  );
}
