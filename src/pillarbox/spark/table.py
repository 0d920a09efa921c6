"""A typed log: a Delta table with indexed rows, whose commits name their steps.

The partition column `_first` of a file has the index of its first row, `_time` the time of its
commit. Each commit sets a transaction number to the new end of the table, so two writers can't
assign the same indices: Delta rejects the later commit, which is then retried. Does not need Spark
or Java.
"""

from __future__ import annotations

import datetime
import json
import time
import uuid
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pillarbox.closing import Closing
from pillarbox.spark.errors import DivergedError, FencedError, SparkError
from pillarbox.spark.files import files_at
from pillarbox.spark.location import location_of
from pillarbox.spark.remote_store import Options, delta_options, options_of
from pillarbox.spark.steps import Step
from pillarbox.spark.table_files import (
    CHECKPOINT_COMMITS,
    KEPT_HOURS,
    LOG,
    META,
    PARTITIONED,
    DataFile,
    NewFile,
    addition,
    conformed,
    deltalake,
    files_in,
    no_hooks,
    numbered,
    own_metadata,
    parquet_file,
    remove_empty_folders,
    step_metadata,
    vacuum_table,
    write_arrow,
)

_END = "pillarbox.end"
_COMMIT = "pillarbox.commit"  # a unique id of each commit
_ATTEMPTS = 100
#: How many commits are searched for a step, newest first. Older ones are only in checkpoints.
_SEARCHED_COMMITS = (8, 64, 256)
_EPOCH_OF = "pillarbox.epoch:"
_BUSY = "other writers keep committing to {}; stop them"


def is_table(location: str, options: Options | None = None) -> bool:
    """Return whether there is a Delta table at a location: a commit, or a checkpoint of some."""
    # A process that is killed in its first commit leaves a file with another ending.
    names = files_at(location, options).names(LOG)
    return any(name.endswith((".json", ".parquet")) for name in names)


def table_at(url: str, options: Options | None = None) -> TableLog | None:
    """Open the typed log at a URL or a path; return None if there is none."""
    location = location_of(url)
    if location is None or not is_table(location, options):
        return None
    return TableLog(location, options)


class TableLog(Closing):
    """One typed log, as of the last `refresh`."""

    def __init__(self, location: str, options: Options | None = None) -> None:
        self.path = location
        options = options_of(location) if options is None else options
        self.storage = files_at(location, options)
        self._options = delta_options(options)
        #: The metadata of the last step that was committed here, by writer.
        self._own_steps: dict[str, dict[str, str]] = {}
        self._open()

    def _open(self) -> None:
        lake = deltalake()
        try:
            self._table = lake.DeltaTable(self.path, storage_options=self._options)
        except lake.exceptions.DeltaError as error:
            message = str(error).partition("\n")[0][:300]
            raise OSError(f"the table {self.path} can't be read: {message}") from error
        self._clear_cache()

    def _clear_cache(self) -> None:
        self._files: list[DataFile] | None = None
        self._transactions: dict[str, int | None] = {}
        self._commits: dict[int, list[dict[str, Any]]] = {}

    def refresh(self) -> None:
        before = self._table.version()
        self._table.update_incremental()
        if self._table.version() != before:
            self._clear_cache()

    def close(self) -> None:
        """Do nothing: files are opened for each read."""

    @property
    def end_index(self) -> int:
        return self._transaction(_END) or 0

    def _transaction(self, name: str) -> int | None:
        """Return the version of a Delta application transaction; None if there is none."""
        if name not in self._transactions:
            self._transactions[name] = self._table.transaction_version(name)
        return self._transactions[name]

    @property
    def first_index(self) -> int:
        return self.files()[0].first if self.files() else self.end_index

    @property
    def version(self) -> int:
        return int(self._table.version())

    @property
    def schema(self) -> Any:
        """The Arrow schema of the rows, without the partition columns."""
        import pyarrow as pa  # noqa: PLC0415 - behind an extra

        fields = pa.schema(self._table.schema().to_arrow())
        return pa.schema([each for each in fields if each.name not in PARTITIONED])

    @property
    def added_columns(self) -> set[str]:
        """Columns that were added after the table was created; older files lack them."""
        created = json.loads(self._table.metadata().description or "[]")
        return set(self.schema.names) - set(created)

    @property
    def spark_schema(self) -> dict[str, Any]:
        """The Spark schema of the rows as JSON, without the partition columns."""
        schema: dict[str, Any] = json.loads(self._table.schema().to_json())
        return schema | {"fields": [x for x in schema["fields"] if x["name"] not in PARTITIONED]}

    def add_columns(self, fields: Sequence[Mapping[str, Any]]) -> None:
        """Add columns, given in Spark's JSON form."""
        lake = deltalake()
        schema = lake.Schema.from_json(json.dumps({"type": "struct", "fields": list(fields)}))
        version = self.version + 1
        self._table.alter.add_columns(schema.fields, post_commithook_properties=no_hooks())
        self._sync_since(version)

    # -- reading ---------------------------------------------------------------------------

    def files(self, start: int = 0, end: int | None = None) -> list[DataFile]:
        """Return the files with rows between two indices, in order."""
        until = self.end_index if end is None else end
        if self._files is None:
            self._files = sorted(files_in(self._table, self.path), key=lambda each: each.first)
        low = bisect_right(self._files, start, key=lambda each: each.end)
        high = bisect_left(self._files, until, key=lambda each: each.first)
        return self._files[low:high]

    def check(self, start: int) -> None:
        """Raise if rows from an index on are missing: another program changed the table."""
        expected, files = start, self.files(start)
        for file in files:
            if file.first > expected:
                break
            expected = file.end
        if expected < self.end_index:
            after = next((each.first for each in files if each.first > expected), self.end_index)
            raise SparkError(
                f"the rows {expected} to {after} (exclusive) of {self.path} are no longer in the"
                " table: another program has removed them. Restore an earlier version of the table"
            )
        if missing := self.storage.missing([each.name for each in files]):
            raise SparkError(
                f"{len(missing)} files of the table disappeared from {self.path} before they were"
                f" read ({missing[0]}, ...): a vacuum or another program has removed them. Restore"
                " them, or reset the processors that read this log to a later index"
            )

    def index_at_time(self, time_ns: int) -> int:
        """Return the index of the first row committed at or after this time."""
        later = (each.first for each in self.files() if each.time_us * 1000 >= time_ns)
        return next(later, self.end_index)

    def rows(self, start: int = 0, end: int | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the rows between two indices, with their indices."""
        until, schema = self.end_index if end is None else end, self.schema
        for file in self.files(start, until):
            index = file.first
            for batch in parquet_file(self.storage, file.name).iter_batches():
                for row in conformed(batch, schema).to_pylist(maps_as_pydicts="lossy"):
                    if start <= index < until:
                        yield index, row
                    index += 1

    # -- writing ---------------------------------------------------------------------------

    def holds(self, step: Step) -> bool:
        """Return whether the step is committed; raise if it contradicts the table's history."""
        last = self._transaction(step.writer)
        if last is None or last < step.number - 1:
            return False
        if last == step.number - 1:
            found = self._step_of(step.writer, last)
            if found is None or found["ends"] == json.dumps(step.starts):
                return False
        else:
            found = self._step_of(step.writer, step.number)
            if found is not None and found["hash"] == step.hash:
                return True
        raise DivergedError(
            f"{step.writer!r} has committed step {last} to {self.path}, but its checkpoint is about"
            f" to run step {step.number} from {step.starts}: they do not belong together. Restore"
            " the checkpoint, or reset the processor"
        )

    def holds_hash(self, writer: str, number: int, hash_: str) -> bool:
        """Return whether a step is committed, with this hash if its commit is still listed."""
        last = self._transaction(writer)
        if last is None or last < number:
            return False
        found = self._step_of(writer, number)
        return found is None or found["hash"] == hash_

    def _step_of(self, writer: str, number: int) -> dict[str, str] | None:
        own = self._own_steps.get(writer)
        if own is not None and own["step"] == str(number):
            return own
        for limit in _SEARCHED_COMMITS:
            found = [x for x in self._steps(writer, limit) if x["step"] == str(number)]
            if found or limit > self._table.version():
                return found[0] if found else None
        return None

    def _steps(self, writer: str | None, limit: int) -> Iterator[dict[str, str]]:
        if limit not in self._commits:
            self._commits[limit] = self._table.history(limit)
        for commit in self._commits[limit]:
            name = commit.get(f"{META}processor")
            if name is not None and writer in (None, name):
                yield own_metadata(commit)

    def last_steps(self) -> dict[str, dict[str, str]]:
        """Return the newest step of each processor among the newest commits."""
        steps: dict[str, dict[str, str]] = {}
        for each in self._steps(None, _SEARCHED_COMMITS[1]):
            steps.setdefault(each["processor"], {k: each[k] for k in ("step", "hash")})
        return steps

    def claim(self, writer: str) -> int:
        """Claim and return the next epoch of a writer: older runs can no longer commit."""
        for _ in range(_ATTEMPTS):
            self.refresh()
            epoch = self._epoch(writer) + 1
            if self._try([], {}, {f"{_EPOCH_OF}{writer}": epoch}):
                return epoch
        raise FencedError(f"other runs keep claiming {self.path}; stop them")

    def _epoch(self, writer: str) -> int:
        return self._transaction(f"{_EPOCH_OF}{writer}") or 0

    def commit(
        self, files: Sequence[NewFile], step: Step, epoch: int | None = None, *, check: bool = True
    ) -> bool:
        """Add files to the table; with `check`, return False if the step is committed already.

        The files must be durable before the call. The commit is durable when this returns.
        """
        transactions = {} if epoch is None else {f"{_EPOCH_OF}{step.writer}": epoch}
        if check:
            transactions[step.writer] = step.number
        for _ in range(_ATTEMPTS):
            if check and self.holds(step):
                return False
            if epoch is not None and self._epoch(step.writer) > epoch:
                raise FencedError(
                    f"a later run of {step.writer!r} has taken over {self.path}; this run must"
                    " stop and can write nothing more"
                )
            metadata = step_metadata(step) if check else {}
            if self._try(files, metadata, transactions):
                if check:
                    self._own_steps[step.writer] = own_metadata(metadata)
                return True
            self.refresh()
        raise SparkError(_BUSY.format(self.path))

    def _try(
        self, files: Sequence[NewFile], metadata: Mapping[str, str], versions: Mapping[str, int]
    ) -> bool:
        """Try to commit files at the end of the table; return False on a conflict."""
        end, added = self.end_index, []
        for file in files:
            added.append(addition(file, numbered(end, datetime.datetime.now(datetime.UTC))))
            end += file.count
        return self._commit(added, metadata, {_END: end, **versions})

    def _commit(
        self, actions: Sequence[Any], metadata: Mapping[str, str], versions: Mapping[str, int]
    ) -> bool:
        """Commit durably; return False if another writer committed first."""
        lake, commit_id = deltalake(), uuid.uuid4().hex
        properties = lake.CommitProperties(
            custom_metadata={**metadata, _COMMIT: commit_id},
            max_commit_retries=1,
            app_transactions=[lake.Transaction(*each) for each in versions.items()],
        )
        version = self._table.version() + 1
        try:
            self._table.create_write_transaction(
                list(actions),
                "append",
                self._table.schema(),
                partition_by=PARTITIONED,
                commit_properties=properties,
                post_commithook_properties=no_hooks(),
            )
        except (lake.exceptions.DeltaError, OSError) as error:
            if not self._was_committed(version, commit_id):
                if isinstance(error, lake.exceptions.CommitFailedError):
                    return False
                raise
        known = self._transactions
        versions_since = self._sync_since(version)
        if self.version == version:
            self._transactions = {**known, **versions}
        if any(each % CHECKPOINT_COMMITS == CHECKPOINT_COMMITS - 1 for each in versions_since):
            self._checkpoint(version - _SEARCHED_COMMITS[-1])
        return True

    def _sync_since(self, version: int) -> range:
        """Refresh, and sync the commits from this version on, which are returned.

        Delta may have retried a commit under a later version, after one of another program.
        """
        self.refresh()
        versions = range(version, self.version + 1)
        self.storage.sync(*(f"{LOG}/{each:020}.json" for each in versions), LOG)
        return versions

    def _checkpoint(self, keep: int) -> None:
        """Write a checkpoint and remove commits before `keep`, which slow down every open."""
        self.vacuum()  # the checkpoint no longer lists files that left the table long ago
        self._table.create_checkpoint()
        self.storage.sync_all(LOG)  # before the commits that it replaces are removed
        # An open table would still read the commits that the checkpoint replaces.
        self._open()
        old = [x for x in self.storage.names(LOG) if x[:20].isdigit() and int(x[:20]) < keep]
        self.storage.remove_files(f"{LOG}/{name}" for name in old)

    def _was_committed(self, version: int, commit_id: str) -> bool:
        """Return whether a failed commit is in the table: its response may have been lost."""
        self.refresh()
        since = self._table.version() - version + 1
        return since > 0 and any(c.get(_COMMIT) == commit_id for c in self._table.history(since))

    def replace(self, old: Sequence[DataFile], new: NewFile) -> bool:
        """Replace consecutive files by one; return False if another writer committed first."""
        from deltalake.transaction import RemoveAction  # noqa: PLC0415 - behind an extra

        now = time.time_ns() // 1_000_000
        removed = [RemoveAction(each.name, False, now, each.size_bytes) for each in old]
        added = addition(new, numbered(old[0].first, old[-1].time), changes=False)
        return self._commit([*removed, added], {}, {_END: self.end_index})

    def vacuum(self, hours: int = KEPT_HOURS) -> int:
        """Delete files that left the table this many hours ago; return how many."""
        version = self.version + 1
        removed = vacuum_table(self._table, hours)
        if removed:
            self._sync_since(version)
            remove_empty_folders(self.storage, removed)
        return len(removed)

    def removed(self) -> list[str]:
        """Return the files that left the table lately: a reader may still use them."""
        return vacuum_table(self._table, 0, dry_run=True)

    def append(self, rows: Sequence[Mapping[str, Any]], marks: Mapping[str, int]) -> None:
        """Append rows outside of a step, and set marks: named numbers stored in the table."""
        import pyarrow as pa  # noqa: PLC0415 - behind an extra

        files = [self.write([pa.Table.from_pylist(list(rows), self.schema)])] if rows else []
        for _ in range(_ATTEMPTS):
            if self._try(files, {}, {f"{META}{mark}": at for mark, at in marks.items()}):
                return
            self.refresh()
        raise SparkError(_BUSY.format(self.path))

    def write(self, tables: Iterable[Any], prefix: str = "") -> NewFile:
        """Write Arrow tables to one file, without committing it."""
        return write_arrow(self.storage, f"{prefix}{uuid.uuid4().hex}.parquet", self.schema, tables)

    def mark(self, name: str) -> int:
        """Return a mark, a named number stored in the table; 0 if it is not set."""
        return self._transaction(f"{META}{name}") or 0
