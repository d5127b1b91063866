"""Blocks that are compressed and encrypted, as Spark's settings may want them.

Plain ones are looked at in `test_faults_workers`, compressed ones in `test_submitted`.
"""

from collections.abc import Callable

from application import Application
from block_files import blocks_are_read_as_they_were_written_and_their_files_go_with_their_epochs

Prepare = Callable[..., Application]


def test_compressed_and_encrypted_blocks_are_read_as_they_were_written_and_go_with_their_epochs(
    prepare: Prepare,
) -> None:
    application = prepare(
        spark={"spark.shuffle.compress": "true", "spark.io.encryption.enabled": "true"}
    )
    application.start_and_recover()
    blocks_are_read_as_they_were_written_and_their_files_go_with_their_epochs(application)
    application.finish()
