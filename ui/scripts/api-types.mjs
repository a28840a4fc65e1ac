// Writes src/api/schema.ts from a running frontend's OpenAPI document; with --check, only checks that it is current.
// Finds the frontend as the command line does: CORRAL_URL and CORRAL_API_KEY.
import { readFile, writeFile } from "node:fs/promises";
import openapiTS, { astToString } from "openapi-typescript";

const target = new URL("../src/api/schema.ts", import.meta.url);
const url = process.env.CORRAL_URL ?? "http://127.0.0.1:8080";
const key = process.env.CORRAL_API_KEY;
if (!key) {
  console.error("CORRAL_API_KEY is not set: the frontend shows its API to administrators only.");
  process.exit(2);
}

const answer = await fetch(`${url}/openapi.json`, { headers: { Authorization: `Bearer ${key}` } });
if (!answer.ok) {
  console.error(`${url} answered ${answer.status}: ${await answer.text()}`);
  process.exit(1);
}
const schema = await answer.json();
const types = `// Written by \`npm run api-types\` from the frontend's OpenAPI document; not by hand.\n${astToString(await openapiTS(schema))}`;

if (!process.argv.includes("--check")) {
  await writeFile(target, types);
} else if ((await readFile(target, "utf8")) !== types) {
  console.error("src/api/schema.ts does not match the frontend: run `npm run api-types` against it.");
  process.exit(1);
}
