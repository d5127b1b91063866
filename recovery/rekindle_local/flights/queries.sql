-- The queries of the flights pipeline for a batch engine (DuckDB), written from what they mean,
-- not from the pipeline's steps. The views flights_ewr, flights_jfk, flights_lga and weather hold
-- all rows that were consumed. Windows are [start, start + size), aligned to 1970-01-01.

-- prelude

CREATE VIEW flights AS
SELECT * FROM flights_ewr
UNION ALL SELECT * FROM flights_jfk
UNION ALL SELECT * FROM flights_lga;

CREATE VIEW flights_in_time AS
SELECT *,
       time_bucket(INTERVAL 1 DAY, event_time, TIMESTAMP '1970-01-01') AS day,
       time_bucket(INTERVAL 7 DAY, event_time, TIMESTAMP '1970-01-01') AS week,
       CASE WHEN dep_delay > 15 THEN 1 ELSE 0 END AS is_late,
       CASE WHEN dep_delay IS NULL THEN 1 ELSE 0 END AS is_cancelled
FROM flights;

CREATE TEMP TABLE carrier_days AS
SELECT origin, carrier,
       day AS window_start, day + INTERVAL 1 DAY AS window_end,
       count(*) AS flights,
       sum(is_late)::BIGINT AS late,
       sum(is_cancelled)::BIGINT AS cancelled,
       sum(dep_delay)::BIGINT AS delay_minutes,
       sum(distance)::BIGINT AS miles
FROM flights_in_time
GROUP BY ALL;

CREATE TEMP TABLE carrier_week_sums AS
SELECT carrier,
       week AS window_start, week + INTERVAL 7 DAY AS window_end,
       count(*) AS flights,
       sum(is_late)::BIGINT AS late,
       sum(is_cancelled)::BIGINT AS cancelled,
       sum(dep_delay)::BIGINT AS delay_minutes
FROM flights_in_time
GROUP BY ALL;

CREATE TEMP TABLE destination_week_sums AS
SELECT dest,
       week AS window_start, week + INTERVAL 7 DAY AS window_end,
       count(*) AS flights,
       sum(is_cancelled)::BIGINT AS cancelled,
       sum(arr_delay)::DOUBLE / nullif(count(arr_delay), 0) AS mean_delay
FROM flights_in_time
GROUP BY ALL;

CREATE TEMP TABLE weather_day_sums AS
SELECT origin,
       time_bucket(INTERVAL 1 DAY, event_time, TIMESTAMP '1970-01-01') AS window_start,
       time_bucket(INTERVAL 1 DAY, event_time, TIMESTAMP '1970-01-01') + INTERVAL 1 DAY
           AS window_end,
       count(*) AS hours,
       min(temperature_tenths) AS coldest_tenths,
       max(temperature_tenths) AS warmest_tenths,
       sum(wind_speed_tenths)::DOUBLE / nullif(count(wind_speed_tenths), 0) AS mean_wind_tenths,
       sum(precipitation_hundredths)::BIGINT AS precipitation_hundredths
FROM weather
GROUP BY ALL;

-- Joined by origin and hour first, so that the batch engine need not compare all pairs.
CREATE TEMP TABLE departures_in_weather AS
SELECT greatest(f.event_time, w.event_time) AS event_time,
       f.event_time AS departure,
       w.event_time AS observed,
       f.origin, f.carrier, f.flight, f.dep_delay,
       CASE WHEN w.visibility_hundredths < 300 THEN 'fog'
            WHEN w.precipitation_hundredths > 0 THEN 'rain'
            WHEN w.wind_speed_tenths >= 200 THEN 'wind'
            ELSE 'fair' END AS conditions
FROM (
    SELECT event_time, origin, carrier, flight, dep_delay,
           unnest(list_distinct([
               date_trunc('hour', event_time - INTERVAL 30 MINUTE),
               date_trunc('hour', event_time + INTERVAL 30 MINUTE)
           ])) AS hour
    FROM flights
    WHERE dep_delay IS NOT NULL
) f
JOIN (SELECT *, date_trunc('hour', event_time) AS hour FROM weather) w
  ON w.origin = f.origin
 AND w.hour = f.hour
 AND w.event_time BETWEEN f.event_time - INTERVAL 30 MINUTE AND f.event_time + INTERVAL 30 MINUTE;

CREATE VIEW legs_and_neighbours AS
SELECT event_time, tailnum, origin, carrier, flight, dep_delay,
       row_number() OVER leg AS place,
       lag(arr_delay) OVER leg AS previous_arr_delay,
       coalesce(
           dep_delay > 15
           AND lag(arr_delay) OVER leg > 15
           AND event_time - lag(event_time) OVER leg <= INTERVAL 12 HOUR,
           false
       ) AS carries,
       coalesce(
           lead(dep_delay) OVER leg > 15
           AND arr_delay > 15
           AND lead(event_time) OVER leg - event_time <= INTERVAL 12 HOUR,
           false
       ) AS next_carries
FROM flights
WHERE dep_delay IS NOT NULL AND tailnum <> 'unknown'
WINDOW leg AS (PARTITION BY tailnum ORDER BY event_time, origin, sequence);

-- A chain is counted from the last leg that carries nothing over.
CREATE VIEW legs_in_chains AS
SELECT *,
       place - max(place) FILTER (NOT carries) OVER (PARTITION BY tailnum ORDER BY place) AS legs
FROM legs_and_neighbours
WHERE carries OR next_carries;

CREATE TEMP TABLE carried_legs AS
SELECT event_time, tailnum, origin, carrier, flight, previous_arr_delay, dep_delay, legs,
       time_bucket(INTERVAL 7 DAY, event_time, TIMESTAMP '1970-01-01') AS week
FROM legs_in_chains
WHERE carries;

CREATE TEMP TABLE carried_week_sums AS
SELECT carrier,
       week AS window_start, week + INTERVAL 7 DAY AS window_end,
       count(*) AS carried,
       sum(dep_delay)::BIGINT AS delay_minutes,
       max(legs) AS longest_chain
FROM carried_legs
GROUP BY ALL;

-- query: ewr-extreme-delays
SELECT event_time, carrier, flight, tailnum, dest, dep_delay
FROM flights_ewr
WHERE dep_delay >= 180;

-- query: ewr-latest-carriers
SELECT origin, carrier, window_start, window_end,
       flights, late, cancelled, delay_minutes, miles,
       row_number() OVER (PARTITION BY window_end ORDER BY late DESC, carrier) AS rank
FROM carrier_days
WHERE origin = 'EWR'
QUALIFY rank <= 1;

-- query: ewr-bad-weather-delays
SELECT event_time, departure, observed, carrier, flight, conditions, dep_delay
FROM departures_in_weather
WHERE origin = 'EWR' AND dep_delay >= 60 AND conditions <> 'fair';

-- query: jfk-diversions
SELECT event_time, carrier, flight, tailnum, dest, dep_delay
FROM flights_jfk
WHERE dep_delay IS NOT NULL AND arr_delay IS NULL;

-- query: jfk-departure-waves
SELECT origin,
       slot - back * INTERVAL 6 HOUR AS window_start,
       slot - back * INTERVAL 6 HOUR + INTERVAL 12 HOUR AS window_end,
       count(*) AS flights,
       sum(dep_delay)::DOUBLE / nullif(count(dep_delay), 0) AS mean_delay
FROM (
    SELECT *, time_bucket(INTERVAL 6 HOUR, event_time, TIMESTAMP '1970-01-01') AS slot
    FROM flights_jfk
)
CROSS JOIN (VALUES (0), (1)) AS earlier(back)
GROUP BY ALL;

-- query: lga-cancellation-days
SELECT * FROM carrier_days
WHERE origin = 'LGA' AND cancelled >= 5;

-- query: windy-hours
SELECT event_time, origin, wind_speed_tenths, visibility_hundredths
FROM weather
WHERE wind_speed_tenths >= 200;

-- query: weather-days
SELECT * FROM weather_day_sums;

-- query: wettest-airports
SELECT *,
       row_number() OVER (
           PARTITION BY window_end ORDER BY precipitation_hundredths DESC, origin
       ) AS rank
FROM weather_day_sums
WHERE precipitation_hundredths > 0
QUALIFY rank <= 1;

-- query: airport-days
SELECT origin,
       day AS window_start, day + INTERVAL 1 DAY AS window_end,
       count(*) AS flights,
       sum(is_late)::BIGINT AS late,
       sum(is_cancelled)::BIGINT AS cancelled,
       sum(dep_delay)::BIGINT AS delay_minutes
FROM flights_in_time
GROUP BY ALL;

-- query: carrier-weeks
SELECT * FROM carrier_week_sums;

-- query: late-carriers
SELECT *,
       row_number() OVER (PARTITION BY window_end ORDER BY late DESC, carrier) AS rank
FROM carrier_week_sums
QUALIFY rank <= 3;

-- query: destination-weeks
SELECT * FROM destination_week_sums;

-- query: top-destinations
SELECT *,
       row_number() OVER (PARTITION BY window_end ORDER BY flights DESC, dest) AS rank
FROM destination_week_sums
QUALIFY rank <= 3;

-- query: delays-by-weather
SELECT conditions,
       time_bucket(INTERVAL 1 DAY, event_time, TIMESTAMP '1970-01-01') AS window_start,
       time_bucket(INTERVAL 1 DAY, event_time, TIMESTAMP '1970-01-01') + INTERVAL 1 DAY
           AS window_end,
       count(*) AS flights,
       sum(dep_delay)::DOUBLE / count(dep_delay) AS mean_delay
FROM departures_in_weather
GROUP BY ALL;

-- query: carried-delay-chains
SELECT event_time, tailnum, origin, carrier, flight, previous_arr_delay, dep_delay, legs
FROM carried_legs
WHERE legs >= 2;

-- query: carried-delay-weeks
SELECT * FROM carried_week_sums;

-- query: top-carried-delays
SELECT *,
       row_number() OVER (PARTITION BY window_end ORDER BY delay_minutes DESC, carrier) AS rank
FROM carried_week_sums
QUALIFY rank <= 3;
