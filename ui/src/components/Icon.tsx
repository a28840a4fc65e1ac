const PATHS = {
  access: "M9.8 6.2a3 3 0 10-2.9 2.3l1.3 1.2v1.5h1.5v1.5h1.5v1.3h2.3v-2.2L9.6 8M6.4 5.6v.01",
  activity: "M8 3v5l3 2M2.5 8A5.5 5.5 0 108 2.5 5.5 5.5 0 003.2 5.3M2.5 2.8v2.7h2.7",
  add: "M8 3v10M3 8h10",
  approve: "M3 8.5l3.2 3.2L13 5",
  back: "M10 3L5 8l5 5",
  backends: "M8 2l5.5 3v6L8 14l-5.5-3V5zM2.5 5L8 8l5.5-3M8 8v6",
  chat: "M2.5 3h11v8h-6l-3 2.5V11h-2z",
  chevron: "M4 6l4 4 4-4",
  close: "M4 4l8 8M12 4l-8 8",
  computer: "M2.5 3h11v7.5h-11zM6 13.5h4M8 10.5v3",
  copy: "M5.5 5.5v-3h8v8h-3M2.5 5.5h8v8h-8z",
  drain: "M8 2.5v8M4.5 7.5L8 11l3.5-3.5M3 13.5h10",
  edit: "M3 13l.6-2.8 7.2-7.2 2.2 2.2-7.2 7.2zM9.4 4.4l2.2 2.2",
  label: "M2.5 2.5h5l6 6-5 5-6-6zM5.2 5.2v.01",
  models: "M8 2.2l1.6 4.2 4.2 1.6-4.2 1.6L8 13.8 6.4 9.6 2.2 8l4.2-1.6z",
  moon: "M13 9.4A5.6 5.6 0 016.6 3a5.6 5.6 0 106.4 6.4z",
  more: "M3.5 8v.01M8 8v.01M12.5 8v.01",
  nodes: "M2.5 3h11v4h-11zM2.5 9h11v4h-11zM5 5v.01M5 11v.01",
  overview: "M2.5 2.5h4.5v6h-4.5zM9 2.5h4.5v3.5H9zM9 8h4.5v5.5H9zM2.5 10.5h4.5v3h-4.5z",
  pause: "M5.5 3v10M10.5 3v10",
  pin: "M6 2.5h4l-.5 4 2 2.5h-7l2-2.5zM8 9v4.5",
  remove: "M3 4.5h10M6 4.5v-2h4v2M4.5 4.5l.6 9h5.8l.6-9M6.8 7v4M9.2 7v4",
  resume: "M5 3.2l7.5 4.8L5 12.8z",
  retry: "M13 8a5 5 0 11-1.6-3.7M13 2.2v3h-3",
  rollouts: "M3 13.5v-2.2M6.3 13.5V8.7M9.7 13.5V6M13 13.5V2.5",
  search: "M7 11.5a4.5 4.5 0 100-9 4.5 4.5 0 000 9zM10.3 10.3l3.2 3.2",
  send: "M2.5 13.5L13.8 8 2.5 2.5v4.2L9 8 2.5 9.3z",
  settings: "M2.5 4.5h6M11 4.5h2.5M2.5 11.5h2.5M7.5 11.5h6M9.75 3v3M6.25 10v3",
  signOut: "M6.5 2.5h-4v11h4M10 5l3 3-3 3M13 8H6",
  stop: "M4 4h8v8H4z",
  sun: "M8 10.8a2.8 2.8 0 100-5.6 2.8 2.8 0 000 5.6zM8 1.5v1.2M8 13.3v1.2M1.5 8h1.2M13.3 8h1.2M3.4 3.4l.9.9M11.7 11.7l.9.9M12.6 3.4l-.9.9M4.3 11.7l-.9.9",
  system: "M2.5 8h2.8l1.7-4.5 2.4 9L11 8h2.5",
  upgrade: "M8 13V5M4.5 8L8 4.5 11.5 8M3 2.5h10",
  user: "M8 8a2.6 2.6 0 100-5.2A2.6 2.6 0 008 8zM2.8 13.8c.5-2.6 2.6-4 5.2-4s4.7 1.4 5.2 4",
  warning: "M8 2.2l6.2 11.3H1.8zM8 6.5v3M8 11.6v.01",
} as const;

export type IconName = keyof typeof PATHS;

/** Decoration only: the text beside an icon or the label of its control has the same meaning. */
export function Icon({ name, size = 16 }: { name: IconName; size?: number }) {
  return (
    <svg
      aria-hidden="true"
      width={size}
      height={size}
      viewBox="0 0 16 16"
      fill="none"
      stroke="currentColor"
      strokeWidth={name === "more" ? 2.2 : 1.4}
      strokeLinecap="round"
      strokeLinejoin="round"
    >
      <path d={PATHS[name]} />
    </svg>
  );
}
