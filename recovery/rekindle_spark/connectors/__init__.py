"""Sources that read other systems, and sinks that write to them.

Sources keep the contract of `unbounded_source`.

    kafka               topics of Kafka as a source: what there is, and the rows of ranges
    kafka_ranges        reads ranges of offsets, on the nodes
    kafka_options       settings of the client, and its errors
    decoding            values as rows: JSON, or a function; what cannot be decoded is kept beside
    avro_values         values in Avro, with a registry of schemas
    file_source         files that are added to a folder or bucket: new ones, and the rows of ranges
    file_listing        which file has which offsets, in the store
    file_rows           how many rows a file has, and those of a range
    file_folders        what is in a folder or bucket, and the bytes of one version of a file
    hidden_values       secrets, by the file or variable that has them

    kafka_sink          topics of Kafka as sinks: rows as records, by default JSON objects
    kafka_transactions  one query partition's writer: epochs and their marker in transactions

Users import from the modules; docs/kafka.md and docs/files.md have examples.
"""
