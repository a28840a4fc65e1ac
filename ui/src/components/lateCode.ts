/** Code that is fetched when it is first needed. */

/** The code could not be fetched, most likely because the frontend is restarting. */
export class CodeNotLoaded extends Error {}

type Loader = () => Promise<unknown>;

const loaders: Loader[] = [];

/** Fails with its own error type and text. By the text, the router recognizes an import error and would reload the page
 * at once, which shows the browser's error page while the frontend is down. */
export function late<Module>(load: () => Promise<Module>): () => Promise<Module> {
  const loaded = () =>
    load().catch((error: unknown): never => {
      throw new CodeNotLoaded(
        `The page could not be loaded: ${error instanceof Error ? error.message : String(error)}`,
      );
    });
  loaders.push(loaded);
  return loaded;
}

/** Afterwards a restart of the frontend does not break navigation. */
export async function fetchAllLateCode(): Promise<void> {
  await Promise.allSettled(loaders.map((load) => load()));
}
