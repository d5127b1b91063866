"""Files in which the rows of a keyed step wait for a branch that is left out behind it.

They are Parquet behind a line with a checksum of all of it. The pages of output files have
checksums of their own, but what a branch reads here decides later output, and types and the
watermark are in the metadata, which has none. Files of earlier versions are Parquet alone. Which
names they have: `checkpoint_records.waiting_rows`. Format: docs/formats.md.
"""

import pyarrow as pa
import pyarrow.parquet as pq

from rekindle.model.errors import DamagedError, first_line
from rekindle_store import checksummed_file

VERSION = 1
PARQUET = b"PAR1"


def seal(content: bytes) -> bytes:
    """A file's content, from that of a Parquet file."""
    return checksummed_file.seal(VERSION, {}, content)


def check(name: str, data: bytes) -> pa.Table:
    """The rows of a file, with what was noted in their metadata. Raises DamagedError where it is
    not what was written, RunError when another version has written it."""
    is_sealed = not data.startswith(PARQUET)
    body = checksummed_file.check(name, data, VERSION)[1] if is_sealed else data
    try:
        source = pa.BufferReader(body)
        return pq.ParquetFile(source, page_checksum_verification=True).read()
    except (pa.ArrowException, OSError) as error:
        raise DamagedError(
            where=name,
            what=f"cannot be read ({first_line(error)})",
            remedy="restore it from a copy of the store",
        ) from error
