"""Subjects of preflight: applications, their pods and volumes, and the cluster around them.

manifest_schema    which field is what, as far as preflight reads it
executor_sizes     what Spark asks Kubernetes for, from its settings
workloads          an application as checks see it, whoever runs it
kubeflow_operator  an application from a SparkApplication of kubeflow's operator
apache_operator    an application from a SparkApplication of apache's operator
spark_pods         an application from a driver's pod and its executors' pods
environment        what is around an application: claims, quotas, nodes, policies, classes
"""
