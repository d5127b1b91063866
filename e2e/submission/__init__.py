"""What the two Spark operators do to a cluster, done here, where neither can be installed.

    spark_submit         one submission in cluster mode, by Spark's own client
    pod_templates        what kubeflow's webhook adds to pods, as pod templates
    kubeflow_submission  a SparkApplication of kubeflow's operator: its submission, its next status
    apache_submission    the same of apache's operator
    submission_steps     what is to be done about an application, and when: values
    submission_loop      looks at SparkApplications and pods, submits, writes statuses, restarts
                         drivers

Labels, names, owners, states and the order of things are those of the operators' sources (kubeflow
2.5, apache 1.0). Of their many fields only those are read that a driver's pod and its executors'
come from; any other field of a manifest is refused, so that nothing is left out silently.
"""
