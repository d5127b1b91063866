"""The checkpoint store without the runtime: its files, wherever they lie, and the output in it.

    store_files         the files of a store by a place: a folder or a URL
    local_files         in a folder that all nodes share
    object_files        on S3
    hdfs_files          on HDFS
    transfers           how much of a file has come or gone, while it is on its way
    store_errors        errors of a whole store as sentences
    store_readers       the shared part of readers: opening a store, reading ahead
    commit_log          the commit records, as a stream
    commit_segments     many older ones of them in one file
    checkpoint_records  the record of a checkpoint
    checksummed_file    files of checkpoints: a head, and a body, with their checksums
    committed_files     the output files that count
    compacted_outputs   where rows are once their files were put together
    output_rows         the rows of one output file, wherever they lie
    query_output        their rows, as Arrow, pandas or polars
    store_integrity     whether all files of a store are there and unchanged
    store_copies        copies a store to another place

The runtime writes with it. It imports nothing of the runtime, of Spark or of a terminal, so that
readers need none of these.
"""
