"""Read delimited text as spreadsheets save it. Every CSV file from a user or model owner passes through this reader.

Text is UTF-8 with or without a byte order mark, or UTF-16 with one. The separator (comma, semicolon or tab) is
determined from the header. Columns separated by semicolons or tabs may contain decimal commas. Column names are matched
case-insensitively. A column of row numbers, which pandas writes without a name, is ignored.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs"}
SAVE_AS = "save it as CSV UTF-8, with commas between the columns"
# Longer marks come first: the mark of UTF-32 begins with that of UTF-16.
MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
SEPARATOR_LINE = re.compile(r"sep=(.)\r?\n")  # a first line that Excel adds
DECIMAL_COMMA = r"^(\s*[+-]?\d*),(\d+(?:[eE][+-]?\d+)?\s*)$"
LINE_END = re.compile(r"\r\n|\n|\r")
ROW_NUMBERS = re.compile(r"|unnamed: \d+|__index_level_\d+__")  # names in CSV and in Parquet


class DelimitedTextError(ValueError):
    """A file is not delimited text. The message follows the file's name and, if it is about one line, ", line 3"."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line

    def describe(self, file: object) -> str:
        """Return the message, preceded by the file's name."""
        if self.line is None:
            return f"{file} {self}"
        return f"{file}, line {self.line} {self}"


@dataclass(frozen=True, eq=False)
class DelimitedText:
    """A header and the text below it. `first_line` is the number of the line after the header."""

    header: tuple[str, ...]
    separator: str
    body: str
    first_line: int

    @property
    def has_decimal_commas(self) -> bool:
        """Whether a comma in a number can only be a decimal comma."""
        return self.separator != ","

    def rows(self) -> Iterator[tuple[int, list[str]]]:
        """Yield each row's line number and its cells without surrounding spaces. Empty lines are skipped.

        Raises DelimitedTextError if a row has more or fewer cells than the header.
        """
        reader = csv.reader((line for line, _ in _lines(self.body)), delimiter=self.separator, strict=True)
        try:
            for cells in reader:
                if not any(map(str.strip, cells)):
                    continue
                line = self.first_line + reader.line_num - 1
                if len(cells) != len(self.header):
                    raise DelimitedTextError(self._wrong_length(len(cells), ";".join(cells)), line)
                yield line, [self._clean(cell) for cell in cells]
        except csv.Error as error:
            raise DelimitedTextError(f"cannot be read as CSV: {error}; {SAVE_AS}") from None

    def table(self) -> pa.Table:
        """Return all columns as text, with null for empty cells.

        Raises DelimitedTextError in the same cases as `rows`.
        """
        import pyarrow as pa
        import pyarrow.compute as pc
        from pyarrow import csv as arrow_csv

        columns_read = [name for name in self.header if not is_row_number(name)]
        if not self.body.strip():
            return pa.table({name: pa.array([], pa.string()) for name in columns_read})
        wrong_rows: list[arrow_csv.InvalidRow] = []

        def note(row: arrow_csv.InvalidRow) -> str:
            wrong_rows.append(row)
            return "error"

        convert_options = arrow_csv.ConvertOptions(
            column_types=dict.fromkeys(columns_read, pa.string()),
            strings_can_be_null=True,
            null_values=[""],
            include_columns=columns_read,
        )
        read_options = arrow_csv.ReadOptions(column_names=list(self.header))
        parse_options = arrow_csv.ParseOptions(delimiter=self.separator, invalid_row_handler=note)
        try:
            table = arrow_csv.read_csv(io.BytesIO(self.body.encode()), read_options, parse_options, convert_options)
        except pa.ArrowException as error:
            if wrong_rows:
                problem = self._wrong_length(wrong_rows[0].actual_columns, wrong_rows[0].text or "")
                raise DelimitedTextError(f"has a row that {problem}") from None
            raise DelimitedTextError(f"cannot be read as CSV: {' '.join(str(error).split())}; {SAVE_AS}") from None
        if table.column(0).null_count:
            table = table.filter(_has_values(table))
        if self.has_decimal_commas:
            columns = [pc.replace_substring_regex(column, DECIMAL_COMMA, r"\1.\2") for column in table.columns]
            table = pa.table(columns, table.column_names)
        return table

    def _clean(self, cell: str) -> str:
        if self.has_decimal_commas:
            cell = re.sub(DECIMAL_COMMA, r"\1.\2", cell)
        return cell.strip()

    def _wrong_length(self, count: int, row: str) -> str:
        if count < len(self.header) and self.separator == "," and ";" in row:
            hint = f"it seems to be separated by semicolons: {SAVE_AS}"
        elif count > len(self.header) and self.separator == ",":
            hint = "a comma inside a value needs quotes, and decimal commas need semicolons between the columns"
        else:
            hint = SAVE_AS
        return f"has {count} values; it must have {len(self.header)}, as its header has ({hint})"


def read_delimited(
    encoded: bytes, known_names: Iterable[str] = (), pattern: re.Pattern[str] | None = None
) -> DelimitedText:
    """Find the header and the separator. Known names, and names that match the pattern, may be in any case.

    Raises DelimitedTextError if the bytes are not text, or if the file is empty.
    """
    text = decode_text(encoded)
    lines = 1
    separators: Sequence[str] = tuple(SEPARATORS)
    if declared := SEPARATOR_LINE.match(text):
        separators = (declared[1],)
        text = text[declared.end() :]
        lines = 2
    known_names = tuple(known_names)
    best = (-1, -1)
    header: tuple[str, ...] = ()
    separator = ","
    begin = 0
    used = 0
    for candidate in separators:
        cells, end, count = _split_header(text, candidate)
        columns = match_names(cells, known_names, pattern)
        score = len(set(columns) & set(known_names)), len(columns)
        if score > best:
            best = score
            header = columns
            separator = candidate
            begin = end
            used = count
    if not any(header):
        problem = "is empty"
        if text.strip():
            problem = "has a first line that cannot be read"
        raise DelimitedTextError(f"{problem}; the first line must name the columns")
    return DelimitedText(header, separator, text[begin:], lines + used)


def match_names(
    header: Iterable[str], known_names: Iterable[str], pattern: re.Pattern[str] | None = None
) -> tuple[str, ...]:
    """Return header names without surrounding spaces.

    Known names get their known spelling, and names that match the pattern become lower case.
    """
    spelling = {name.casefold(): name for name in known_names}
    matched = []
    for name in map(str.strip, header):
        folded = name.casefold()
        if pattern is not None and pattern.fullmatch(folded):
            name = folded
        matched.append(spelling.get(folded, name))
    return tuple(matched)


def decode_text(encoded: bytes) -> str:
    """Return a file's text without its byte order mark. Raises DelimitedTextError for any other content."""
    encoding, mark = next(((name, mark) for mark, name in MARKS if encoded.startswith(mark)), ("utf-8", b""))
    body = encoded.removeprefix(mark)
    try:
        text = body.decode(encoding)
    except UnicodeDecodeError as error:
        line = body.count(b"\n", 0, error.start) + 1
        raise DelimitedTextError(
            f"is not text in {encoding.upper()}: {error.reason} in line {line}; {SAVE_AS}"
        ) from None
    if "\0" in text:
        raise DelimitedTextError(f"holds zero bytes, as text in UTF-16 without a byte order mark does; {SAVE_AS}")
    return text


def is_row_number(name: str) -> bool:
    """Return whether a column has no name, or the name that pandas gives to a column of row numbers."""
    return ROW_NUMBERS.fullmatch(name.casefold()) is not None


def _has_values(table: pa.Table) -> pa.ChunkedArray:
    """Return whether each row has a value. Files from spreadsheets may end in rows that contain only separators."""
    import pyarrow.compute as pc

    filled = pc.is_valid(table.column(0))
    for column in table.columns[1:]:
        filled = pc.or_(filled, pc.is_valid(column))
    return filled


def _split_header(text: str, separator: str) -> tuple[list[str], int, int]:
    """Split the first non-empty line into cells.

    Returns the cells, the position of the text after this line, and the number of lines read.
    """
    ends = []

    def lines() -> Iterator[str]:
        for line, end in _lines(text):
            ends.append(end)
            yield line

    try:
        for cells in csv.reader(lines(), delimiter=separator, strict=True):
            if cells:
                return cells, ends[-1], len(ends)
    except csv.Error:
        pass
    return [], len(text), len(ends)


def _lines(text: str) -> Iterator[tuple[str, int]]:
    """Yield each line with its ending, and the start of the next line, without a second copy of the text."""
    begin = 0
    for line_end in LINE_END.finditer(text):
        yield text[begin : line_end.end()], line_end.end()
        begin = line_end.end()
    if begin < len(text):
        yield text[begin:], len(text)
