// The build: hashed assets under /restore/, into the package that serves them. No inline scripts: the server's
// Content-Security-Policy allows 'self' only, so the module-preload polyfill (an inline script) stays out.
import { defineConfig } from "vitest/config";

const server = process.env.RESTORE_URL ?? "http://127.0.0.1:8000";

export default defineConfig({
  base: "/restore/",
  build: {
    outDir: "../app/static",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
  },
  server: {
    // `npm run dev` shows a running server's data: RESTORE_URL=http://host:port npm run dev
    proxy: { "/restore/api": server, "/restore/healthz": server, "/v1": server },
  },
  test: { environment: "happy-dom", include: ["test/**/*.test.{ts,tsx}"] },
});
