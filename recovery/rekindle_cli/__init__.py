"""The command line `rekindle`, for users of a pipeline, a store or a coordinator.

Nothing of the product imports this package. It imports neither the local cluster nor the
laboratory: their commands join by the entry points `rekindle.commands`.

    child_process        runs a command's work apart, so that code which ends its process is a
                         message
    command_line         finds the command, turns errors into messages and exit codes
    commands             the commands, a module each
    jsonl_tail           event files that another process writes, followed
    example              the files that `rekindle init` writes
    guard                keeps users' code from ending, blocking or flooding a command
    local_request        the request of `rekindle run --local`, checked
    cli_options          checks of options that several commands share
    output_formats       rows as a table, JSON lines, CSV or Parquet
    svg_files            SVG files beside the output of commands
    pipeline_file        imports a pipeline file, asks it for its pipeline, and checks that
    pipeline_options     the options of all commands that load a pipeline file
    report_html          the report as a page, with the timeline as a picture
    run_view             the output of `rekindle run`
    state_loader         the applications for what-if questions
    coordination_access  the shared part of commands for the coordination store
    table_files          tables from Parquet, CSV and JSON lines
"""
