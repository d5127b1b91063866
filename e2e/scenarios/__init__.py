"""Failures of whole clusters, with everything real: nodes, chart, operator, Spark, the pipeline.

    helm_chart                the chart, installed as a user does it
    kube_contexts             a context of the user's kubeconfig, and what its API server says of it
    scenario_clusters         the cluster under it: our own, or one that a kube context names
    node_commands             the commands by which the latter's nodes are lost
    cleanup_stack             what is done at the end, however it has ended
    footprint                 what scenarios make on a cluster, and whether it is there
    cluster_setup             a cluster that has what Rekindle comes upon
    deployment                a cluster with Rekindle on it, and a place for an application
    flights_application       the flights' pipeline as a SparkApplication
    structured_streaming_run  the same queries on ordinary Spark
    strategies                names of what a scenario runs with
    pod_logs                  the logs of pods, kept beyond them
    run_recorder              what driver and operator say, as one record of the run
    cloud_autoscaler          nodes for pods that find none, marks for machines that are off
    scenario_run              an application that runs, and what is done to its nodes
    incident_checks           what the cluster tells of an incident, and whether it is so
    loss_scenarios            the scenarios
    announced_pair            the loss of eight nodes, announced and not
    stream_program            queries over files, as an application of anybody's
    file_streams              what is written for these, and how long each lags
    protection_cost           the CPU that protection takes
    application_scenarios     the same loss with Rekindle and without
    scenario_figures          what they measure beside the report
    docs_instructions         a page's blocks of shell commands as a program
    example_rows              the rows of the examples' pipeline against a batch computation
    quickstart_scenario       docs/quickstart.md, followed to the letter
    scenario_reports          the report of a scenario, whoever ran the queries
    report_folders            where reports go, one folder for each run
    scenario_selection        which scenarios run, and with what
    scenario_prerequisites    what they need, looked at before anything is made
    scenario_runner           one scenario from an empty machine to its report
    docs_report               what they have measured, as tables and pictures in docs/e2e.md

`python -m scenarios` runs them. They take the cluster from `testbed`,
images from `images`, and act as the Spark operators by `submission`.
"""
