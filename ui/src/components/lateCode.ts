/** Code that is fetched when it is first needed. */

/** It could not be fetched, most likely because the frontend is being restarted. */
export class CodeNotLoaded extends Error {}

type Loader = () => Promise<unknown>;

const loaders: Loader[] = [];

/** Fails with an error of its own: for those it knows, the router reloads at once, into the browser's own error page while nothing answers. */
export function late<Module>(load: () => Promise<Module>): () => Promise<Module> {
  const loaded = () =>
    load().catch((error: unknown): never => {
      throw new CodeNotLoaded(error instanceof Error ? error.message : String(error));
    });
  loaders.push(loaded);
  return loaded;
}

/** From then on a frontend that restarts breaks no navigation. */
export async function fetchAllLateCode(): Promise<void> {
  await Promise.allSettled(loaders.map((load) => load()));
}
