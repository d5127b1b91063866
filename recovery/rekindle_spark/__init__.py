"""The epoch runtime on Spark: pipelines, exchanges, hosts, checkpoints and recovery by plans.

What a user writes:
    pipeline       named steps: sources, map, filter, window, join, stateful, top, sinks
    replay         sources that replay files with event time at a chosen speed
    source_files   the file of a source, which must stay the one that the run began with
    operators      keyed operators on Arrow data (windows, joins, custom state, top rows)
    arguments      checks of what a user gives to all these
    testing        runs a pipeline on given tables in one process, for tests

What is known of users' code:
    checks         errors and warnings of a pipeline before it runs
    user_code      the files and lines of users' functions
    printing       what their functions print and log, on its way to the driver's log
    shipping       a program as the bytes that executors get

What runs in an executor's host:
    frames         blocks on the wire: header, Arrow batch, digest
    step_types     types and names of columns, checked when a pipeline is built
    program        a pipeline fused into chains and edges, as it is shipped to hosts
    chains         what a program is made of: chains and edges
    branches       parts of a chain that have stopped alone, as chains of their own
    partition      one operator partition: runs its chain for one epoch
    late_outputs   rows that come too late for a keyed step, kept beside
    late_counts    how many there are, of all that counts
    poison         finds rows for which a user's function raises, and makes them dead letters
    activity       signs of what a host does for each job, for the driver to see that it goes on
    watchdog       what a process works on, noted where it outlives it, and a limit on each call
    sandbox        runs partitions apart that are suspected to end their process
    runner         runs one epoch of one partition, here or apart
    work_items     what the items of a request mean
    states         versions of partition states, checkpoints and acknowledgements
    deltas         what has changed in a table since the checkpoint before
    inputs         durable input: the frames for a partition that is behind, in the store
    outputs        the sinks' files: put into the store together
    usage          CPU used per partition and by the executor as a whole
    memory         what a host uses of its memory, and when it says no
    allowance      what the container of an executor leaves to its host
    sampling       where the CPU of host and driver goes, by samples of stacks, when asked for
    turns          one piece of work at a time, the most urgent first
    serving        threads that serve requests, kept for the next ones
    native         holds native libraries to one thread, and to common instructions
    host_socket    where the host listens, for its own JVM alone
    answers        what a host answers, and its bytes
    host           the resident process: socket, requests, priorities

What runs in the driver:
    driver         opens the store, starts Spark, runs the loops to their end
    application    what the parts of one driver share
    event_log      what happens, line by line
    clock          what time it is for a driver: seconds since 1970 that never jump
    epochs         the epoch loop: cut, run, commit, checkpoint
    ahead          the sources of the next epoch, while one is still on its way
    catchup        the catch-up loop: brings newly placed partitions forward
    budget         how large epochs and pieces may be, so that hosts keep within their memory
    sparing        applies that: smaller epochs and pieces, or the end of the run
    pieces         how many epochs one job of catching up takes on
    pace           how long catching up rests, so that live queries keep their time
    publishing     makes output count: the commit record, and what tells of it
    dead_letters   which rows were left out: committed, and the same in every repeat
    staging        output of unordered epochs, held back until a checkpoint
    running        runs one job and makes its results finished
    idleness       since when nothing has been done for a job, and by whom
    results        what came of a job, judged from the reports of its tasks
    repeats        what is said of a repeat that gave something else
    timing         how long each executor's task took, by the driver's clock
    stragglers     which executors are slow
    jobs           epochs and catch-up pieces as job specifications
    exchange       Spark jobs of pinned tasks, retained and removed shuffles (Java in jvm/)
    progress       where partitions are, how far, and which blocks are retained
    restoring      from where each partition can be brought back
    moving         moves of live partitions to other executors, between two epochs
    preserving     has the input of partitions that are behind written to the store
    upgrades       a changed pipeline goes on from a savepoint
    checkpointing  when to take a checkpoint, and when one is global
    arrivals       when rows arrive, and how they are cut into epochs
    library_versions  whether what runs again gives what it gave, with these libraries
    user_requests  what users ask for by files in the store
    store          the checkpoint store: generations, offset log, commit log
    fold           what all commit records say together
    sealing        puts older commit records into segments
    patience       waits for a store that is away
    control        observes, confers, obeys: the control plane's end in the driver
    stopping       takes partitions whose functions raise out of what runs
    blame          whose fault the death of a process is: an executor's, or a function's
    suspects       which partitions are suspected, and how they run meanwhile
    guidance       whose orders are followed: the coordinator's, or those of the core in here
    reporting      what the driver says of itself
    sidecar        the driver's end of the sidecar: HTTP on a Unix socket
    java           the Java on this machine
    masters        whether a Spark master answers, before anything waits for it
    links          which executors cannot read from each other, and which of them has to go
    membership     executors that come, go and fall silent
    statistics     windows of measured cost, calibration of the replay's rate
    costs          what each operator partition costs
    compilation    compiles a folder of Java sources into a jar
    jar            builds the Java classes
    ranges         stretches of consecutive numbers
"""
