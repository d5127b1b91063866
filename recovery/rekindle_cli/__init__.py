"""The command line `rekindle`: what users of a pipeline, a store or a coordinator type.

Nothing of the product imports this package. It imports neither the local cluster nor the
laboratory: their commands join by the entry points `rekindle.commands`.

    child_process     runs a command's work apart, so that code which ends its process is a message
    cli               finds the command, turns errors into messages and exit codes
    commands          the commands, a module each
    event_files       event files that another process writes, followed
    example           what `rekindle init` writes
    guard             keeps users' code from ending, blocking or flooding a command
    local_request     what `rekindle run --local` asks for, and who can do it
    options           checks of options that several commands share
    output_formats    rows as a table, JSON lines, CSV or Parquet
    pictures          SVG files beside what commands print
    pipeline_checks   all checks of a pipeline, with its functions called under guard
    pipeline_file     imports a pipeline file, and asks it for its pipeline
    pipeline_options  the options of all commands that load a pipeline file
    report_html       the report as a page, with the timeline as a picture
    run_view          what `rekindle run` shows
    shown_run         shows a run of the driver in this very process
    situations        where what-if questions get an application from
    store_access      what commands that speak to the coordination store share
    table_files       tables from Parquet, CSV and JSON lines
"""
