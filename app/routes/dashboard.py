"""The built dashboard as static files, with the headers that a browser needs to keep it safe and fresh."""

from pathlib import Path
from typing import Any

from fastapi import FastAPI
from starlette.responses import HTMLResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

# The bundle is ours and whole: nothing comes from elsewhere, nothing may frame it. Charts' nodes have inline styles.
SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
        "connect-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
IMMUTABLE = "public, max-age=31536000, immutable"

NOT_BUILT = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>vllm-restore: the dashboard is not built</title>
<style>body{font:16px/1.5 system-ui;max-width:40em;margin:3em auto;padding:0 1em;color-scheme:light dark}</style>
<h1>The dashboard is not built</h1>
<p>The API works; the page that shows it has not been built from <code>web/</code> yet. In the project's folder run</p>
<pre>make web</pre>
<p>or, by hand, with Node 20 or newer,</p>
<pre>cd web &amp;&amp; npm ci &amp;&amp; npm run build</pre>
<p>and load this page again; the server need not be restarted.</p>
<p>Meanwhile: <a href="api/summary">summary</a>, <a href="api/policy">policy</a>, <a href="healthz">health</a>,
<a href="openapi.json">all routes</a>.</p>
</html>
"""


class Dashboard(StaticFiles):
    """Files of the build. Those under `assets/` are named by their content and never change; the rest is asked anew."""

    def __init__(self, directory: Path) -> None:
        # The folder may be built after the start.
        super().__init__(directory=directory, html=True, check_dir=False)
        self._index = directory / "index.html"

    async def check_config(self) -> None:
        """Nothing to check: a missing folder has a page of its own."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        """As `StaticFiles`, and a page that says how to build where nothing is built."""
        if path in (".", "index.html") and not self._index.is_file():
            return HTMLResponse(NOT_BUILT, 503, {**SECURITY_HEADERS, "Cache-Control": "no-store"})
        return await super().get_response(path, scope)

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        """As `StaticFiles`, with our headers."""
        response = super().file_response(*args, **kwargs)
        path = str(args[0])
        is_hashed = Path(path).parent.name == "assets"
        response.headers["Cache-Control"] = IMMUTABLE if is_hashed else "no-cache"
        response.headers.update(SECURITY_HEADERS)
        return response


def mount_static(app: FastAPI, directory: Path) -> None:
    """Serve the dashboard at the app's root, behind every route that was added before."""
    app.mount("/", Dashboard(directory), name="dashboard")
