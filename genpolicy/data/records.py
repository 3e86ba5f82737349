"""Records: one labelled position a row, in Parquet shards that a ``dataset.yaml`` describes.

The columns are the same for every game and hold text, so that a person can read them. A column without data is null.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq
import yaml  # type: ignore[import-untyped]

import genpolicy
from genpolicy.errors import DatasetError, lacks_memory
from genpolicy.files import read_at_most, sha256_of
from genpolicy.game import Game
from genpolicy.shipped import data_folder
from genpolicy.values import CENTIPAWN_SCALE, score_to_value
from genpolicy.yaml_text import CHARACTERS_PER_NODE, YAML_LOADER, check_yaml

FORMAT_VERSION = 1
"""Raised when a data set written by this code could not be read by older code."""
MAX_INFO_NODES = 2_000_000  # values in dataset.yaml: those of a hundred thousand shards and as many sources
INFO_FILE = "dataset.yaml"
SPLITS = ("train", "validation", "test")
BATCH_ROWS = 8192
PIECE_ROWS = 256
MAX_PIECE_BYTES = 1 << 25
"""Of so many rows, 128 KiB each: a small file can unpack to far more than there is memory."""

SCHEMA = pa.schema(
    [
        pa.field("game_id", pa.string()),
        pa.field("ply", pa.int32()),
        pa.field("state", pa.string(), nullable=False),
        pa.field("line", pa.string()),
        pa.field("ended", pa.bool_(), nullable=False),
        pa.field("scores", pa.list_(pa.string())),
        pa.field("move_values", pa.string()),
        pa.field("played", pa.string()),
        pa.field("result", pa.float32()),
        pa.field("split", pa.string()),
        pa.field("policy", pa.string()),
        pa.field("value", pa.float32()),
    ]
)


@dataclass(frozen=True)
class Record:
    """One position and its labels."""

    state: str
    """Text of the position, as ``Game.format`` writes it."""
    game_id: str | None = None
    """Game that the position comes from, unique in the data set."""
    ply: int | None = None
    """Ply of the position in its game, 0 for the game's first position."""
    line: str | None = None
    """The oracle's best moves for both sides, protocol moves joined by spaces; None where it has no label."""
    ended: bool = False
    """The game ends after the last move of ``line`` (what follows is PAD); False: a short line was cut (unlabelled)."""
    scores: tuple[str | None, ...] = ()
    """Score text (``genpolicy.values``) of each position of the line that was searched, for its player to move."""
    move_values: str | None = None
    """Every legal move, or the best few, with its score for the player who makes it: ``"e2e4=cp:31 d2d4=cp:28"``."""
    played: str | None = None
    """The move that was played in the game."""
    result: float | None = None
    """Result of the game for player 0: 1, 0 or -1; None where unknown."""
    split: str | None = None
    """``"train"``, ``"validation"`` or ``"test"``."""
    policy: str | None = None
    """A search's policy: ``"e2e4=0.61 d2d4=0.39"``."""
    value: float | None = None
    """A search's value in [-1, 1] for the player to move."""

    @property
    def moves(self) -> tuple[str, ...]:
        """The moves of ``line``; () where it has no label."""
        return tuple(self.line.split()) if self.line else ()

    @property
    def scored_moves(self) -> dict[str, str]:
        """Score text of each move that has one, from ``move_values``; empty where there are none."""
        pairs = (entry.partition("=") for entry in (self.move_values or "").split())
        return {move: score for move, _, score in pairs}

    def best_moves(self, game: Game[Any]) -> frozenset[int]:
        """Ids of the labelled move and of all that tie for the best value, where the record values its moves.

        An engine that searches each move by itself may value another above its own first choice.

        Raises:
            ValueError: a move or a score that cannot be read.
        """
        values = {game.moves.index(move): score_to_value(score) for move, score in self.scored_moves.items()}
        best = max(values.values(), default=None)
        labelled = map(game.moves.index, self.moves[:1])
        return frozenset([*labelled, *(move for move, value in values.items() if value == best)])

    def to_row(self) -> dict[str, Any]:
        """The record as plain values by column name; ``Record(**row)`` takes them back."""
        return {**vars(self), "scores": list(self.scores)}

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """The record of a row as ``to_row`` or Parquet gives it."""
        return cls(**{**row, "scores": tuple(row["scores"] or ())})


@dataclass
class DatasetInfo:
    """The content of ``dataset.yaml``. The first block is its identity: work resumes only where that agrees."""

    game: str
    """Specification of the game."""
    made_by: str
    """``"import"``, ``"label"`` or ``"selfplay"``."""
    oracle: dict[str, Any] | None = None
    """Name, version, limits and score scale of what labelled it; None where it has no labels."""
    options: dict[str, Any] = field(default_factory=dict)
    """What else decides the records: horizon, seed, split fractions, ..."""
    sources: list[dict[str, Any]] = field(default_factory=list)
    """Files the positions come from: ``file``, ``sha256``."""

    format: int = FORMAT_VERSION
    genpolicy: str = genpolicy.__version__
    """Version of the code that began the data set."""
    command: str = ""
    """The command line that makes it."""
    complete: bool = False
    """False until the work that makes it has finished."""
    units: int = 0
    """Units of work whose records are in the shards, for resuming after an interruption (``DatasetWriter``)."""
    counts: dict[str, Any] = field(default_factory=dict)
    """Records, games, splits, skipped with reasons, duplicates, test positions that occur in training."""
    shards: list[dict[str, Any]] = field(default_factory=list)
    """``file``, ``rows``, ``sha256`` of each, in order."""

    def identity(self) -> dict[str, Any]:
        """What two parts of one data set must agree in."""
        sources = [source.get("sha256", source.get("file")) for source in self.sources]
        facts = {"game": self.game, "made_by": self.made_by, "oracle": self.oracle, "sources": sources}
        return {**facts, **{f"option {key}": value for key, value in self.options.items()}}

    def to_yaml(self) -> bytes:
        """The text of ``dataset.yaml``."""
        data = asdict(self)
        ordered = {"format": data.pop("format"), "genpolicy": data.pop("genpolicy"), **data}
        text: str = yaml.safe_dump(ordered, sort_keys=False, allow_unicode=True, width=120)
        return text.encode()

    @staticmethod
    def read(folder: Path) -> DatasetInfo:
        """The ``dataset.yaml`` of a folder.

        Raises:
            DatasetError: missing, unreadable, or written by newer code.
        """
        path = folder / INFO_FILE
        try:
            text = read_at_most(path, MAX_INFO_NODES * CHARACTERS_PER_NODE).decode()
            check_yaml(text, MAX_INFO_NODES, max_text=len(text))
            data = yaml.load(text, Loader=YAML_LOADER)
        except (FileNotFoundError, NotADirectoryError):
            if folder.is_file():
                raise DatasetError(f"{folder}: is a file; give the folder of a data set, with {INFO_FILE}") from None
            what = "no such folder" if not folder.exists() else f"holds no {INFO_FILE}, so it is not a data set"
            way_out = "genpolicy data import|label|selfplay makes one, sample:GAME is shipped"
            raise DatasetError(f"{folder}: {what} ({way_out})") from None
        except (yaml.YAMLError, ValueError, OSError, RecursionError) as error:
            raise DatasetError(f"{path}: unreadable: {error}") from error
        if not isinstance(data, dict) or type(data.get("format")) is not int:
            raise DatasetError(f"{path}: no key 'format': not a data set's; restore it or make it again")
        if data["format"] > FORMAT_VERSION:
            raise DatasetError(
                f"{path}: written in format {data['format']}, this code reads up to {FORMAT_VERSION}: upgrade genpolicy"
            )
        known = {f.name for f in fields(DatasetInfo)}
        missing = {"game", "made_by", "shards"} - set(data)
        if missing or set(data) - known:
            wrong_keys = ", ".join(sorted(map(str, missing | (set(data) - known))))
            raise DatasetError(f"{path}: keys missing or unknown: {wrong_keys}; restore it or make the data set again")
        for key, value in data.items():
            wrong = None if key == "oracle" and value is None else _type_error_text(key, value, _SHAPE[key])
            if wrong is not None:
                raise DatasetError(f"{path}: key {wrong}; restore the file or make the data set again")
        made = DatasetInfo(**data)
        splits, num_rows = made.counts.get("splits"), sum(shard["rows"] for shard in made.shards)
        if made.complete and splits and (set(splits) - {*SPLITS, "none"} or sum(splits.values()) != num_rows):
            raise DatasetError(f"{path}: counts.splits {splits} are not of {num_rows} records; restore the file")
        return made


_WORDS = {str: "text", int: "a whole number of at least 0", bool: "true or false", dict: "a mapping", list: "a list"}
_SHAPE: dict[str, Any] = {
    **dict.fromkeys(("format", "units"), int),
    **dict.fromkeys(("game", "made_by", "genpolicy", "command"), str),
    **dict.fromkeys(("oracle", "options"), dict),
    "complete": bool,
    "sources": [dict],
    "shards": [{"file": Path, "rows": int, "sha256": str}],
    "counts": {
        **dict.fromkeys(("records?", "games?", "labelled?", "duplicates?"), int),
        **{key: {"*": int} for key in ("splits?", "skipped?", "tallies?")},
        "leakage?": {"*": {"records": int, "in_training": int, "in_training_turned?": int}},
    },
}
"""What each key of ``dataset.yaml`` holds: ``?`` behind a key that may be missing, ``*`` for every key there is."""


def _type_error_text(where: str, value: Any, shape: Any) -> str | None:
    """What is wrong with a value, or None: ``"complete must be true or false, got 'yes'"``."""
    kind: Any = shape if isinstance(shape, type) else type(shape)
    expected: Any = str if kind is Path else kind
    if type(value) is not expected or (kind is int and value < 0):  # a bool is an int for isinstance
        return f"{where} must be {_WORDS[expected]}, got {'nothing' if value is None else repr(value)}"
    if kind is Path and Path(value).name != value:
        return f"{where} must be the name of a file in the folder, got {value!r}"
    inner: list[tuple[str, Any, Any]] = []
    if isinstance(shape, list):
        inner = [(f"{where}[{number}]", entry, shape[0]) for number, entry in enumerate(value)]
    elif isinstance(shape, dict):
        for key, part in shape.items():
            name = key.removesuffix("?")
            if key == "*":
                inner += [(f"{where}.{name}", entry, part) for name, entry in value.items()]
            elif name == key or name in value:
                inner.append((f"{where}.{name}", value.get(name), part))
    return next((text for entry in inner if (text := _type_error_text(*entry))), None)


class Dataset:
    """A folder of records, or the union of several. Reads stream, so memory does not grow with the data set.

    ``Dataset.open`` makes it. A union is read as one data set: its parts' records one after the other, in the order of
    their checksums.
    """

    def __init__(self, folder: Path, info: DatasetInfo, parts: Sequence[Dataset] = (), *, name: str = "") -> None:
        self.folder = folder
        """Where it lies; of a union, where its first part does."""
        self.name = name or str(folder)
        """What it was opened by: its folder, or ``sample:GAME``."""
        self.info = info
        self.parts = tuple(parts) or (self,)
        """What it is the union of; a data set of one folder is its own only part."""
        self.beside: Dataset | None = None
        """The union it is trained in where its windows are built alone; what that holds out is held out here, too."""

    @staticmethod
    def open(folder: str | Path | Sequence[str | Path], *, verify: bool = True) -> Dataset:
        """Open a data set, or the union of several, and check that it is whole.

        Args:
            folder: Where its ``dataset.yaml`` lies, or ``sample:GAME``; or several of these.
            verify: Read every shard and compare its checksum; without it only presence and schema are checked.

        Raises:
            DatasetError: no data set, a shard missing, truncated, changed or of other columns, or no record at all;
                or parts of a union that do not go together.
        """
        if not isinstance(folder, str | Path):
            return _union([Dataset.open(each, verify=verify) for each in folder])
        name, folder = str(folder), data_folder(folder)
        dataset = Dataset(folder, DatasetInfo.read(folder), name=name)
        for shard in dataset.info.shards:
            check_shard(folder / shard["file"], shard, verify)
        if dataset.num_records == 0:
            way_out = f"resume with: {dataset.info.command}" if not dataset.info.complete else "make it again"
            raise DatasetError(f"{folder}: holds no finished records; {way_out}")
        return dataset

    @property
    def label(self) -> str:
        """Its name, for messages; of a union all of them."""
        return " + ".join(part.name for part in self.parts)

    @property
    def unfinished(self) -> list[str]:
        """For each part whose making was interrupted, what to tell the user."""
        return [
            f"{part.name}: unfinished, {part.num_records:,} records so far; resume it with: {part.info.command}"
            for part in self.parts
            if not part.info.complete
        ]

    @property
    def game_spec(self) -> str:
        """What ``genpolicy.load_game`` takes to make the records' game."""
        return self.info.game

    @property
    def centipawn_scale(self) -> float:
        """Scale of the scores' centipawns as win probability (``genpolicy.values``), as the oracle was configured."""
        return float((self.parts[0].info.oracle or {}).get("centipawn_scale", CENTIPAWN_SCALE))

    @property
    def num_records(self) -> int:
        """Number of rows."""
        return sum(int(shard["rows"]) for part in self.parts for shard in part.info.shards)

    def count(self, name: str) -> Any:
        """One of the counts of a complete data set, as ``dataset.yaml`` has it.

        Raises:
            DatasetError: ``dataset.yaml`` does not have it.
        """
        if name not in self.info.counts:
            raise DatasetError(
                f"{self.folder / INFO_FILE}: key counts.{name} is missing; restore the file or make the data set again"
            )
        return self.info.counts[name]

    @property
    def checksum(self) -> str:
        """One SHA-256 over the game and the checksums of the shards (or parts) in order: equal for equal records."""
        sums = [str(shard["sha256"]) for shard in self.info.shards]
        if len(self.parts) > 1:
            sums = [part.checksum for part in self.parts]
        return hashlib.sha256("\n".join([self.game_spec, *sums]).encode()).hexdigest()

    @property
    def splits(self) -> dict[str, int]:
        """Number of records of each split; ``"none"`` counts those without one."""
        if not self.info.complete or "splits" not in self.info.counts:
            names = (name for batch in self.batches(["split"]) for name in batch.column("split").to_pylist())
            return dict(Counter(name or "none" for name in names))
        return dict(self.info.counts["splits"])

    def batches(
        self, names: Sequence[str] | None = None, split: str | None = None, batch_rows: int = BATCH_ROWS
    ) -> Iterator[pa.RecordBatch]:
        """Columns of the records in order, some thousand rows at a time.

        Args:
            names: Columns; None gives all of them.
            split: Only records of this split; None gives all records.
            batch_rows: Most rows of one batch (fewer where a split leaves rows out).

        Raises:
            DatasetError: a column or split that does not exist, or a shard that cannot be read.
        """
        columns = list(SCHEMA.names if names is None else names)
        unknown = sorted(set(columns) - set(SCHEMA.names))
        if unknown:
            raise DatasetError(f"records have no column {', '.join(unknown)}; they have: {', '.join(SCHEMA.names)}")
        if split is not None and split not in SPLITS:
            raise DatasetError(f"{self.folder}: no split {split!r}; splits are {', '.join(SPLITS)}")
        read = columns if split is None or "split" in columns else [*columns, "split"]
        for path in (part.folder / shard["file"] for part in self.parts for shard in part.info.shards):
            try:
                with pq.ParquetFile(path) as file:
                    for batch in _batches(file, path, batch_rows, read):
                        if split is not None:
                            batch = batch.filter(pa.array([s == split for s in batch.column("split").to_pylist()]))
                        if batch.num_rows:
                            yield batch.select(columns)
            except (pa.ArrowException, OSError) as error:
                if lacks_memory(error):
                    raise
                raise DatasetError(f"{path}: unreadable: {error}; restore it or make the data set again") from error

    def columns(self, names: Sequence[str], split: str | None = None) -> pa.Table:
        """Columns of all records (of one split) in memory, as a pyarrow table; ``batches`` streams them instead."""
        schema = pa.schema([SCHEMA.field(name) for name in names if name in SCHEMA.names])
        return pa.Table.from_batches(self.batches(names, split), schema=schema)

    def records(self, split: str | None = None) -> Iterator[Record]:
        """Every record (of one split) in order, streamed."""
        for batch in self.batches(split=split):
            for row in batch.to_pylist():
                yield Record.from_row(row)


def _batches(file: pq.ParquetFile, path: Path, rows: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """A shard's records in batches, read in small pieces."""

    def check(num: int, taken: int) -> None:
        """Records of this many bytes, as the file says or as they are in memory."""
        if taken > MAX_PIECE_BYTES * -(-num // PIECE_ROWS):
            raise DatasetError(
                f"{path}: {num} of its records take {taken:,} bytes, at most {MAX_PIECE_BYTES:,} are read at once; no "
                "command of genpolicy writes such records: do not use it"
            )

    for number in range(file.metadata.num_row_groups):  # before any is unpacked
        group = file.metadata.row_group(number)
        check(group.num_rows, sum(group.column(i).total_uncompressed_size for i in range(group.num_columns)))
    pieces: list[pa.RecordBatch] = []
    for piece in file.iter_batches(batch_size=min(rows, PIECE_ROWS), columns=columns):
        check(piece.num_rows, piece.nbytes)
        for name in columns:  # a missing position would be read as the initial one
            if piece.column(name).null_count and not SCHEMA.field(name).nullable:
                raise DatasetError(f"{path}: a record has no {name!r}; restore it or make the data set again")
        pieces.append(piece)
        if sum(each.num_rows for each in pieces) + PIECE_ROWS > rows:
            yield from pa.Table.from_batches(pieces).combine_chunks().to_batches()
            pieces = []
    if pieces:
        yield from pa.Table.from_batches(pieces).combine_chunks().to_batches()


def _union(parts: Sequence[Dataset]) -> Dataset:
    """Several data sets as one, in the order of their checksums, whatever order they are named in."""
    if not parts:
        raise DatasetError("a union of data sets needs at least one folder, got none")
    first = parts[0]
    seen: dict[str, Dataset] = {}
    for part in parts:
        if (other := seen.setdefault(part.checksum, part)) is not part:
            raise DatasetError(
                f"{other.folder} and {part.folder} hold the same records (checksum {part.checksum[:12]}); list only one"
            )
        for what, here, there in (
            ("game", part.game_spec, first.game_spec),
            ("centipawn scale", part.centipawn_scale, first.centipawn_scale),
        ):
            if here != there:
                raise DatasetError(f"{part.folder}: its {what} is {here!r}, that of {first.folder} is {there!r}")
    if len(parts) == 1:
        return first
    first, *_ = parts = sorted(parts, key=lambda part: part.checksum)
    infos = [part.info for part in parts]
    splits: Counter[str] = Counter()
    for part in parts:
        splits.update(part.splits)
    info = DatasetInfo(
        game=first.game_spec,
        made_by="union",
        oracle=first.info.oracle if all(info.oracle == first.info.oracle for info in infos) else None,
        options={k: v for k, v in first.info.options.items() if all(info.options.get(k) == v for info in infos)},
        complete=all(info.complete for info in infos),
        counts={"splits": dict(splits)},
    )
    return Dataset(first.folder, info, parts, name=first.name)


def check_shard(path: Path, shard: Mapping[str, Any], verify: bool) -> None:
    """Check that a shard is as its entry in ``dataset.yaml`` says.

    Raises:
        DatasetError: missing, damaged, truncated, or of other columns; the message names the file and the way out.
    """
    way_out = f"restore it from a copy, or make the data set again (its command is in {INFO_FILE})"
    if not path.is_file():
        raise DatasetError(f"{path}: shard is missing, or not a file; {way_out}")
    if path.is_symlink() and path.parent.resolve() not in path.resolve().parents:
        raise DatasetError(f"{path}: is a link out of the folder, to {path.resolve()}; put the file itself there")
    if verify and sha256_of(path) != shard["sha256"]:
        raise DatasetError(f"{path}: damaged or truncated (its checksum is not the one in {INFO_FILE}); {way_out}")
    try:
        with pq.ParquetFile(path) as file:
            schema, rows = file.schema_arrow, file.metadata.num_rows
    except (pa.ArrowException, OSError) as error:
        if lacks_memory(error):
            raise
        raise DatasetError(f"{path}: damaged or truncated: {error}; {way_out}") from error
    if rows != shard["rows"]:
        raise DatasetError(f"{path}: holds {rows} rows, {INFO_FILE} says {shard['rows']}; {way_out}")
    if schema.names != SCHEMA.names or schema.types != SCHEMA.types:
        raise DatasetError(f"{path}: columns are {schema.to_string()}, expected {SCHEMA.to_string()}; {way_out}")
