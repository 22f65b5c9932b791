"""What the client's session ids say of turns: how many a session has had, and where the last one ended.

Pure: standard library only. A hint that nobody has to give: without it a conversation is known by its chain. It is of
use where the client rewrites what was said (a summary in place of old turns, a thought that is left out), since such a
prompt departs from the chain early and looks like a first turn.
"""

from collections import OrderedDict
from hashlib import blake2b

from connector.chains import Session

MAX_SESSIONS = 4_096
"""Sessions that are remembered; beyond them the least recently used one is forgotten. Ids are kept as digests of 16
bytes, so a session takes less than 500 bytes however long its id is, and all of them 2 MB at most."""


class Sessions:
    """The sessions that asked last, `max_sessions` at most."""

    def __init__(self, max_sessions: int = MAX_SESSIONS) -> None:
        self._max_sessions = max_sessions
        self._known: OrderedDict[bytes, Session] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def comes(self, session_id: str) -> Session:
        """A request of this session arrives. A session that is not known is new."""
        name = _digest(session_id)
        session = self._known.get(name)
        if session is None:
            session = self._known[name] = Session()
            if len(self._known) > self._max_sessions:
                self._known.popitem(last=False)
        else:
            self._known.move_to_end(name)
        return session


def _digest(session_id: str) -> bytes:
    return blake2b(session_id.encode(errors="surrogatepass"), digest_size=16).digest()
