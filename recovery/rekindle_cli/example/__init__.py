"""The example that `rekindle init` writes: a web server's log of a day, and a pipeline over it.

    request_log  makes the log, the same one each time
    web_log      the pipeline file, written as it stands here

Its other files lie beside these as templates, for they are nobody's modules here.
"""

from pathlib import Path

import pyarrow.parquet as pq

from rekindle_cli.example import request_log

__all__ = ["FILES", "LOG", "write"]

HERE = Path(__file__).parent
# The name of each file in the example, and in this folder.
FILES = {
    "web_log.py": "web_log.py",
    "test_web_log.py": "test_web_log.py.template",
    "settings.yaml": "settings.yaml",
    "README.md": "README.md.template",
}
LOG = "data/requests.parquet"


def write(folder: Path) -> None:
    """Write the example into a folder that holds none of its files. Raises OSError."""
    (folder / LOG).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(request_log.log(), folder / LOG, compression="zstd", row_group_size=20_000)
    for name, template in FILES.items():
        (folder / name).write_text((HERE / template).read_text(encoding="utf-8"), encoding="utf-8")
