"""Who may read and who may change. A pure ASGI middleware in front of every route under /restore/api, now and later.

With a key: `Authorization: Bearer`, for reading too, since ids and times of prompts are private. Without one: reading
wants a `Host` that a rebound DNS name cannot have and no foreign `Origin` (vLLM's own CORS default would let any page
read), changing wants a client on this machine. Forwarding headers are never believed, only taken as a sign that a proxy
stands between.
"""

import hashlib
import ipaddress
import re
import secrets
import socket
from collections.abc import Sequence
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.context import AppContext
from app.errors import problem

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_HOST = re.compile(r"(?:\[(?P<address>[0-9a-f:.]+)\]|(?P<name>[a-z0-9._-]+))(?::[0-9]+)?")
FORWARDING_HEADERS = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip")


class RefusedError(Exception):
    """The request is not answered. `status` and one line that says what to do."""

    def __init__(self, status: int, detail: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.headers = headers


class Protection:
    """The middleware. It refuses with the app's error shape; what it lets through it does not touch."""

    def __init__(self, app: ASGIApp, context: AppContext) -> None:
        self.app = app
        self.context = context

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check, then pass on."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_private(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.setdefault("Cache-Control", "no-store")
                headers["X-Content-Type-Options"] = "nosniff"
            await send(message)

        is_change = scope["method"] not in SAFE_METHODS
        # Wherever a proxy's prefix or a mount may have put it. No static file has such a folder.
        if is_change or "/api/" in f"{scope['path']}/":
            try:
                self._check(scope, is_change)
            except RefusedError as e:
                await problem(e.status, str(e), e.headers)(scope, receive, send_private)
                return
        await self.app(scope, receive, send_private)

    def _check(self, scope: Scope, is_change: bool) -> None:
        headers = Headers(scope=scope)
        keys = self.context.api_keys
        if keys:
            check_key(headers, keys)
        else:
            client = scope.get("client")
            check_host(headers, {self.context.bound_host, *self.context.settings.allowed_hosts, *own_names()})
            if is_change:
                check_local(headers, client[0] if client else None)
        if is_change or not keys:
            check_origin(headers)
        if is_change and headers.get("content-type", "").split(";")[0].strip().lower() != "application/json":
            raise RefusedError(415, "send JSON: Content-Type: application/json")


def has_key(headers: Headers, keys: Sequence[str]) -> bool:
    """Whether one of the keys is given. Each is compared, in constant time: their digests have one length."""
    scheme, _, given = headers.get("authorization", "").partition(" ")
    # One space and the key, as it stands: what vLLM refuses for its own routes is refused here.
    digest = hashlib.sha256(given.encode()).digest()
    is_known = False
    for key in keys:
        is_known |= secrets.compare_digest(digest, hashlib.sha256(key.encode()).digest())
    return scheme.lower() == "bearer" and is_known


def check_key(headers: Headers, keys: Sequence[str]) -> None:
    """Refuse without one of the keys."""
    if not has_key(headers, keys):
        raise RefusedError(
            401,
            "this server has an API key: send Authorization: Bearer KEY, with the key given to --api-key",
            {"WWW-Authenticate": "Bearer"},
        )


def check_host(headers: Headers, names: set[str | None]) -> None:
    """Refuse a `Host` that is neither an address nor a name of this server: DNS may have been made to point here."""
    name = host_name(headers)
    if not (is_loopback_name(name) or is_address(name) or name in names):
        raise RefusedError(
            403,
            f"the host name {name!r} is not known to be this server's: use an IP address, start the server with "
            "--api-key, or list the name in RESTORE_ALLOWED_HOSTS",
        )


def check_local(headers: Headers, client: str | None) -> None:
    """Refuse a change from another machine or through a proxy. A client without address came over a Unix socket."""
    is_forwarded = any(h in headers for h in FORWARDING_HEADERS)
    if not is_forwarded and is_loopback_name(host_name(headers)) and (client is None or is_loopback_name(client)):
        return
    raise RefusedError(
        403,
        "without an API key only a client on this machine, under the name localhost or 127.0.0.1 and through no proxy, "
        "may change anything: start the server with --api-key to change it from elsewhere",
    )


def check_origin(headers: Headers) -> None:
    """Refuse what a page of another site sends from its reader's browser."""
    origin = headers.get("origin")
    if origin is None:
        return
    try:
        netloc = urlsplit(origin).netloc.lower()
    except ValueError:  # no URL at all, such as `http://[::1`
        netloc = None
    if netloc != headers.get("host", "").lower():
        raise RefusedError(403, f"a page of {origin} may not use this API; open the dashboard of this server itself")


def host_name(headers: Headers) -> str:
    """The `Host` header without its port, in lower case; empty where it is not a host and a port."""
    match = _HOST.fullmatch(headers.get("host", "").lower())
    return (match["address"] or match["name"]).removesuffix(".") if match else ""


def is_loopback_name(name: str) -> bool:
    """Whether a host name or address can only mean this machine."""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def is_address(name: str) -> bool:
    """Whether this is an IP address as it stands; no DNS answer can change what it means."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def own_names() -> set[str]:
    """What this machine calls itself. A stranger's DNS entry cannot have that name."""
    return {socket.gethostname().lower()}
