// Writes src/api/schema.d.ts from the API's own OpenAPI document, or with --check fails when the committed file is stale.
// The document comes from `python -m app.openapi`, run in the repository root; PYTHON names another interpreter.
import { execFileSync } from "node:child_process";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import openapiTS, { astToString } from "openapi-typescript";

const web = dirname(dirname(fileURLToPath(import.meta.url)));
const root = dirname(web);
const target = join(web, "src/api/schema.d.ts");
const venv = join(root, ".venv/bin/python");
const python = process.env.PYTHON ?? (existsSync(venv) ? venv : "python3");

const document = JSON.parse(execFileSync(python, ["-m", "app.openapi"], { cwd: root, encoding: "utf8" }));
const header = "// Generated from the API's OpenAPI document by `npm run schema`. Do not edit.\n\n";
const text = header + astToString(await openapiTS(document, { defaultNonNullable: false }));

if (!process.argv.includes("--check")) {
  writeFileSync(target, text);
} else if (!existsSync(target) || readFileSync(target, "utf8") !== text) {
  process.stderr.write("web/src/api/schema.d.ts is stale: run `npm run schema` in web/ and commit it.\n");
  process.exit(1);
}
