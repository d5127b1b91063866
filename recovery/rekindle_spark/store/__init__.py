"""The checkpoint store as the driver writes it: generations, offsets, commits, segments.

checkpoint_store  the checkpoint store: generations, offset log, commit log
commit_summary    what all commit records say together
segment_writer    puts older commit records into segments
store_retry       waits for a store that is away
user_requests     what users ask for by files in the store
library_versions  whether what runs again gives what it gave, with these libraries
"""
