"""The files of a cluster: the cluster file, read and written, and the directories of its processes."""
