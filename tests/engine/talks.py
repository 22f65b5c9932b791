"""Real conversations with the embedded model, as tokens, and what it answers to them without this project's scheduler
half. The tests of the engine import it.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.engine.references import Answers, answers_of
from tests.engine.server import BLOCK, GPU_BLOCKS, MODEL, Server

MUSEUM_TOKENS = 40
LESSON_TOKENS = 48
"""Of each answer."""
_SYSTEM = (
    "You are a patient guide in a museum of the history of science. You explain in plain words, name dates and places, "
    "and never speak of more than one thing at a time. Visitors come from many countries, so avoid idioms. "
)
_QUESTIONS = (
    "Who was the first person to see the moons of Jupiter, and with what instrument did he see them?",
    "Why did ships carry more than one clock when they sailed around the world two hundred years ago?",
    "What did people believe about heat before they knew about atoms, and who changed their minds?",
)
_SUBJECTS = ("tides", "volcanoes", "printing", "glass", "salt", "clocks", "maps", "bridges")


@dataclass(frozen=True)
class Talks:
    """Prompts as tokens, and the answers to them.

    `museum`: three conversations, each of several full blocks with a shared head. `lessons`: eight of nine blocks and a
    few tokens each, with a shared head, which do not fit into the GPU's blocks together. `none` is vLLM's word without
    a connector; `stock`, of the museum alone, that of its own scheduler half over the host copy worker.
    """

    museum: list[list[int]]
    lessons: list[list[int]]
    none: Answers
    stock: Answers

    @property
    def museum_answers(self) -> list[list[int]]:
        """Without a connector."""
        return [answer[:MUSEUM_TOKENS] for answer in self.none.first[: len(self.museum)]]

    @property
    def lesson_answers(self) -> list[list[int]]:
        """Without a connector."""
        return self.none.first[len(self.museum) :]


def make_talks(server: Server, folder: Path) -> Talks:
    """Has the server tokenize all prompts, and two other engines answer them, side by side, while it waits."""
    museum = [_tokens(server, _SYSTEM * 2, question) for question in _QUESTIONS]
    assert all(len(prompt) > 3 * BLOCK for prompt in museum)
    text = "Please explain the history of {} to a curious child, step by step, with dates. "
    lessons = [_tokens(server, "You are a kind teacher.", text.format(subject) * 14) for subject in _SUBJECTS]
    needed = sum(-(-(len(p) + LESSON_TOKENS) // BLOCK) for p in lessons)
    assert needed > GPU_BLOCKS, "all of them together must not fit, so that some are preempted"
    with ThreadPoolExecutor(2) as pool:
        none = pool.submit(answers_of, "none", [*museum, *lessons], LESSON_TOKENS, folder, len(museum))
        stock = pool.submit(answers_of, "stock", museum, MUSEUM_TOKENS, folder, len(museum))
    return Talks(museum, lessons, none.result(), stock.result())


def _tokens(server: Server, system: str, user: str) -> list[int]:
    messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
    return server.api("POST", "/tokenize", json={"model": MODEL, "messages": messages}).json()["tokens"]
