"""The cluster as the operator sees it: pods, nodes, applications, the API client and watches.

pods                  what is kept of a pod
nodes                 what is kept of a node
spark_applications    what is kept of a SparkApplication
cluster_cache         all that has been seen, joined as it changes
application_matching  which pods make up which application
json_access           reading objects as they come from the API
api_client            the API server: requests with deadlines, failures as three kinds
object_kinds          the kinds of objects that are read and written
object_watcher        pods and nodes: listed in pages, then watched
watch_events          how objects become news
cluster_view          all that is known of the cluster
work_queue            what takes a while and may fail, done by a few threads
"""
