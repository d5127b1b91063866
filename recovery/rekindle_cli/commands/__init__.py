"""The commands of `rekindle`: each a typed function, or a `typer.Typer`, of its name.

They raise `RekindleError`s and leave exit codes to `rekindle_cli.command_line`, which lists them.
Commands of the local cluster and of the laboratory are beside what they run.

    check          errors of a pipeline before it runs
    check_history  judges a recorded history
    explain        why a query is not back yet
    forecast       the effect of the loss of each failure domain
    init           writes an example that runs
    output         the committed rows of a query
    pause          lets an application rest, and ends that (`rekindle resume`)
    plan           one problem file in, one plan out
    priority       which queries matter more
    reset          forgets an application, to start it over
    run            drives one pipeline on a Spark cluster
    savepoint      ends a pipeline at a checkpoint that a changed one can go on from
    sidecar        stands between one driver and ZooKeeper
    simulate       the effect of a failure, with the coordinator's core
    status         how the applications of a store stand
    store          checks a checkpoint store, and copies it
    test           runs a pipeline on given rows in this process
    verify         checks a report against the records of its run
"""
