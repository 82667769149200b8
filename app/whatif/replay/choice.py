"""Which records of the archive a replay gets: by cluster, tenant and topic, and what others say of
its policies."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from state.engine.documents import source_of
from state.engine.globs import SCOPES, Limits, Source, matching, overlaid
from udfs.topics import split_partition, split_topic


@dataclass(frozen=True)
class Choice:
    """Patterns (`*`, `?`, `[...]`) of what is wanted; empty: everything."""

    clusters: tuple[str, ...] = ()
    tenants: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    replaced: Mapping[Source, Limits] = field(default_factory=dict)
    """Limits that are put over those of archived policy documents of these scopes and names, or
    patterns, key by key; without any the archived documents are left out."""

    @property
    def filters(self) -> dict[str, list[str]]:
        """The patterns by what they are about, without empty ones."""
        every = {"clusters": self.clusters, "tenants": self.tenants, "topics": self.topics}
        return {name: list(patterns) for name, patterns in every.items() if patterns}

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The wanted rows of `events`. A record without a topic is not filtered by topics."""
        if self.clusters:
            batch = _matching(batch, "cluster", lambda name: _any(name, self.clusters))
        if self.tenants or self.topics:
            batch = _matching(batch, "topic", self._of_topic)
        if self.replaced:
            batch = self._with_replaced(batch)
        return batch

    def _of_topic(self, name: str | None) -> bool:
        if name is None:
            return True
        parts = split_topic(name)
        tenant = parts.tenant if parts is not None else ""
        if self.tenants and not _any(tenant, self.tenants):
            return False
        return not self.topics or any(_any(spelled, self.topics) for spelled in _spellings(name))

    def _with_replaced(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if "policy_json" not in batch.schema.names:
            return batch
        column = batch.column("policy_json")
        if column.null_count == len(column):
            return batch
        patterns = [source for source in self.replaced if source[0] in SCOPES]
        texts = [text and self._merged(text, patterns) for text in column.to_pylist()]
        at = batch.schema.get_field_index("policy_json")
        batch = batch.set_column(at, batch.schema.field(at), pa.array(texts, column.type))
        return batch.filter(pa.array([text != "" for text in texts]))

    def replaces(self, source: Source) -> bool:
        """Whether limits are put over those of archived documents of this scope and name."""
        patterns = dict.fromkeys(one for one in self.replaced if one[0] in SCOPES)
        return source in self.replaced or any(matching(patterns, *source))

    def _merged(self, text: str, patterns: Sequence[Source]) -> str:
        """An archived document with the limits that are put over its own; empty: it is left out."""
        document = json.loads(text)
        source = policy_key(document)
        names = [*matching(patterns, *source), source]
        every = [self.replaced[name] for name in names if name in self.replaced]
        if not every:
            return text
        if not every[-1]:
            return ""
        limits = document.get("limits") or {}
        for over in every:
            limits = overlaid(limits, over)
        return json.dumps({**document, "limits": limits})


EVERYTHING = Choice()


def policy_key(document: Mapping[str, Any]) -> Source:
    """What a policy document of the archive is about; a topic in its one spelling."""
    return source_of({**document, **{key: str(document.get(key)) for key in ("scope", "name")}})


def _spellings(name: str) -> tuple[str, ...]:
    """A topic as a pattern may mean it: with and without its scheme and its partition."""
    base, _ = split_partition(name)
    return tuple(
        dict.fromkeys(
            text for full in (name, base) for text in (full, full.partition("://")[2] or full)
        )
    )


def _any(name: str | None, patterns: Sequence[str]) -> bool:
    return name is not None and any(fnmatchcase(name, pattern) for pattern in patterns)


def _matching(
    batch: pa.RecordBatch, column: str, wanted: Callable[[str | None], bool]
) -> pa.RecordBatch:
    """Rows whose value in a text column is wanted, each distinct value being asked once."""
    encoded = pc.dictionary_encode(batch.column(column), null_encoding="encode")
    keep = pa.array([wanted(name) for name in encoded.dictionary.to_pylist()], pa.bool_())
    return batch.filter(keep.take(encoded.indices))
