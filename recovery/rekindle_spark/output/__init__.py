"""Output: files of sinks, staged output, and the commit record that makes it count.

late_row_counts    how many there are, of all that counts
lag_goals          for how long queries have been further behind than their goals
sink_files         the sinks' files: put into the store together
output_commit      makes output count: commit records, and what waits for a checkpoint
dead_letters       which rows were left out: committed, and the same in every repeat
output_compaction  puts output files of old commits together
row_packing        packs the rows of many Parquet files into few
sink_publishing    follows the commit log, and writes committed output to topics
sink_declarations  names of the writers of topics, in the record of each driver's start
"""
