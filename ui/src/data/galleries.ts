import type { QueryClient } from "@tanstack/react-query";
import { createReadAgain } from "./lists";

/** The event only tells that there is something new to choose from; a page that shows a gallery reads it again. */
export function createGalleriesListener(client: QueryClient): () => void {
  return createReadAgain(client, ["available"], ["models-available"]);
}
