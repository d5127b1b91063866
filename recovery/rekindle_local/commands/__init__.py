"""The commands of `rekindle`, one module each: a typed function, or a `typer.Typer`, of its name.

They raise `RekindleError`s and leave exit codes to `rekindle_local.cli`, which lists them.

    bench            benchmarks beside their bars
    check_history    judges a recorded history
    demo             the demo, its report and its summary
    plan             one problem file in, one plan out
    run              drives one pipeline on a Spark cluster
    verify           checks a report against the records of its run
"""
