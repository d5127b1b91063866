"""The rows of the queries: what their lines consist of, and the files that count.

A line has its fields in the order of `flights/queries.sql`, with tabs between them; `Queries.java`
makes it. Times are microseconds since 1970, `\\N` is a value that is not there.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.csv

_WINDOW = "window_start:time window_end:time"
_SUMS = "flights late cancelled delay_minutes"
_CARRIER_DAY = f"origin:text carrier:text {_WINDOW} {_SUMS} miles"
_NOTABLE = "event_time:time carrier:text flight tailnum:text dest:text dep_delay"
_WEATHER_DAY = (
    f"origin:text {_WINDOW} hours coldest_tenths warmest_tenths mean_wind_tenths:mean"
    " precipitation_hundredths"
)
_DESTINATION = f"dest:text {_WINDOW} flights cancelled mean_delay:mean"
_CARRIED = f"carrier:text {_WINDOW} carried delay_minutes longest_chain"
# The columns of each query; those without a kind are whole numbers.
COLUMNS: Mapping[str, str] = {
    "ewr-extreme-delays": _NOTABLE,
    "ewr-latest-carriers": f"{_CARRIER_DAY} rank",
    "ewr-bad-weather-delays": (
        "event_time:time departure:time observed:time carrier:text flight conditions:text dep_delay"
    ),
    "jfk-diversions": _NOTABLE,
    "jfk-departure-waves": f"origin:text {_WINDOW} flights mean_delay:mean",
    "lga-cancellation-days": _CARRIER_DAY,
    "windy-hours": "event_time:time origin:text wind_speed_tenths visibility_hundredths",
    "weather-days": _WEATHER_DAY,
    "wettest-airports": f"{_WEATHER_DAY} rank",
    "airport-days": f"origin:text {_WINDOW} {_SUMS}",
    "carrier-weeks": f"carrier:text {_WINDOW} {_SUMS}",
    "late-carriers": f"carrier:text {_WINDOW} {_SUMS} rank",
    "destination-weeks": _DESTINATION,
    "top-destinations": f"{_DESTINATION} rank",
    "delays-by-weather": f"conditions:text {_WINDOW} flights mean_delay:mean",
    "carried-delay-chains": (
        "event_time:time tailnum:text origin:text carrier:text flight previous_arr_delay dep_delay"
        " legs"
    ),
    "carried-delay-weeks": _CARRIED,
    "top-carried-delays": f"{_CARRIED} rank",
}
_KINDS = {"time": pa.int64(), "text": pa.string(), "mean": pa.float64(), "": pa.int64()}


def committed_files(store: Path, query: str) -> list[Path]:
    """The output files that count, in the order in which they came to."""
    folder = store / "outputs" / query
    found = [path for path in folder.iterdir() if not path.name.startswith(".")]
    # Renaming a file touches its st_ctime alone.
    return sorted(found, key=lambda path: path.stat().st_ctime)


def read(query: str, path: Path) -> pa.Table:
    """The rows of a file with the columns of the query."""
    columns = [part.partition(":") for part in COLUMNS[query].split()]
    names = [name for name, _, _ in columns]
    table = pyarrow.csv.read_csv(
        path,
        read_options=pyarrow.csv.ReadOptions(column_names=names, use_threads=False),
        parse_options=pyarrow.csv.ParseOptions(delimiter="\t", quote_char=False),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types={name: _KINDS[kind] for name, _, kind in columns},
            null_values=["\\N"],
            strings_can_be_null=False,
        ),
    )
    return table.cast(_schema(columns))


def _schema(columns: Sequence[tuple[str, str, str]]) -> pa.Schema:
    return pa.schema(
        [
            (name, pa.timestamp("us") if kind == "time" else _KINDS[kind])
            for name, _, kind in columns
        ]
    )
