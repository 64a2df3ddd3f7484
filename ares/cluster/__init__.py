"""The files of a cluster: the cluster file, and the directories of processes."""
