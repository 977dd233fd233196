"""The allow-list of reply topics: a caller names where its answer goes, an operator says where answers may go."""

import re
from collections.abc import Iterable
from fnmatch import translate

from assay.schemas.errors import SettingError

DEFAULT_REPLY_TOPICS = ("*.reply", "f-reply-*")

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}", re.ASCII)  # Kafka's rule, with "." and ".." excluded below


def is_topic_name(name: str) -> bool:
    """Whether Kafka can have a topic of this name."""
    return _TOPIC.fullmatch(name) is not None and name not in (".", "..")


class ReplyTopics:
    """Names and patterns (`*`, `?`, `[...]`) of the topics that replies may go to; case counts.

    >>> allowed = ReplyTopics(("*.reply", "answers"))
    >>> [allowed.allows(topic) for topic in ("shop.reply", "answers", "transactions")]
    [True, True, False]
    """

    def __init__(self, patterns: Iterable[str] = DEFAULT_REPLY_TOPICS) -> None:
        """Raises SettingError for a pattern that no topic can match."""
        self.patterns = tuple(patterns)
        for pattern in self.patterns:
            if not pattern or not set(pattern) <= _PATTERN_CHARACTERS:
                raise SettingError(
                    "a reply topic can't be allowed by this",
                    expected="a topic name, or a pattern of one with *, ? or [...]",
                    got=repr(pattern),
                    mend="correct ASSAY_REPLY_TOPICS",
                )
        self._matches = re.compile("|".join(map(translate, self.patterns)) or r"(?!)").match

    def allows(self, topic: str) -> bool:
        """Whether a reply may go to this topic."""
        return is_topic_name(topic) and self._matches(topic) is not None


_PATTERN_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-*?[]!")
