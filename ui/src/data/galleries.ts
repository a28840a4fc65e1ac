import type { QueryClient } from "@tanstack/react-query";
import { createReadAgain } from "./lists";

/** The event only says that a gallery changed; a page that shows a gallery loads it again. */
export function createGalleriesListener(client: QueryClient): () => void {
  return createReadAgain(client, ["available"], ["models-available"]);
}
