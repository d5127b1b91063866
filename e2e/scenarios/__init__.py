"""Failures of whole clusters, with everything real: nodes, chart, operator, Spark, the pipeline.

    helm          the chart, installed as a user does it
    site          a cluster with Rekindle on it, and a place for an application
    flights       the flights' pipeline as a SparkApplication
    witness       what driver and operator say, as one record of the run
    autoscaling   nodes for pods that find none, one after the other, as an autoscaler brings them
    losses        the scenarios
    book          what they have measured, as tables and pictures in docs/e2e.md

`python -m scenarios` runs them. They take the cluster from `testbed`,
images from `images`, and act as the Spark operators by `submission`.
"""
