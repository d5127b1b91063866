"""Failures of whole clusters, with everything real: nodes, chart, operator, Spark, the pipeline.

    helm            the chart, installed as a user does it
    contexts        a context of the user's kubeconfig, and what its API server says of it
    clusters        the cluster under it: our own, or one that a kube context names
    means           the commands by which the latter's nodes are lost
    afterwards      what is done at the end, however it has ended
    footprint       what scenarios make on a cluster, and whether it is there
    ground          a cluster that has what Rekindle comes upon
    site            a cluster with Rekindle on it, and a place for an application
    flights         the flights' pipeline as a SparkApplication
    ordinary        the same queries on ordinary Spark
    strategies      names of what a scenario runs with
    pod_logs        the logs of pods, kept beyond them
    witness         what driver and operator say, as one record of the run
    cloud           nodes for pods that find none, marks for machines that are off
    stage           an application that runs, and what is done to its nodes
    stories         what the cluster tells of an incident, and whether it is so
    losses          the scenarios
    figures         what they measure beside the report
    instructions    a page's blocks of shell commands as a program
    example_rows    the rows of the examples' pipeline against a batch computation
    quickstart      docs/quickstart.md, followed to the letter
    reports         the report of a scenario, whoever ran the queries
    report_folders  where reports go, one folder for each run
    selection       which scenarios run, and with what
    prerequisites   what they need, looked at before anything is made
    performing      one scenario from an empty machine to its report
    book            what they have measured, as tables and pictures in docs/e2e.md

`python -m scenarios` runs them. They take the cluster from `testbed`,
images from `images`, and act as the Spark operators by `submission`.
"""
