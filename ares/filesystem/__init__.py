"""``ares://`` for programs that know fsspec: files of a cluster, each put whole.

The objects of buckets are at ``ares-bucket://`` (ares/filesystem/bucket_system.py).

Examples of such programs are pandas, pyarrow and dask.

    fsspec.open("ares://reports/2024.csv", "rb", cluster="cluster.toml", domain="reports")

The guarantees of each call:

- A *put* is any call that writes content: ``open`` for writing (a put at the close),
  ``pipe_file``, ``put_file``, ``cp_file``, ``touch``. A put replaces the file as a whole and
  atomically (ares/fragment/replace.py); a reader finds the content of a single put. A single one
  of several concurrent puts stands, and a put begun after the end of another put always replaces
  the earlier put. A put makes a shared file atomic, too.
- ``open`` for reading pins the file's present state. A later put does not show; the pinned content
  stays readable for at least a quarter of an hour after the replacement, and is an error (ESTALE)
  afterwards, never a mixture. After a deletion of the file the error comes at once.
- ``cat_file`` returns the content of a single put, for a part of a file, too. ``get_file`` does the
  same, and the local file keeps the old content or has all of the new content.
- Files shared block by block (not atomic) can be read, too: each block has the content of some
  moment of ``open``; the whole is no snapshot (ares/fragment/read.py).
- ``mode="xb"``, ``pipe_file(mode="create")`` and ``"ab"`` refuse to replace another client's
  concurrent put, with an exception: two puts that publish at the same time may both be told of
  success (coverability is weak; ares/registers/coverable.py).
- ``info``, ``exists`` and ``size`` are linearizable with the puts of the file. ``ls``, ``find`` and
  ``glob`` are no snapshot: files present throughout the call are listed. There is no cache.
- ``mv`` copies and afterwards deletes, a transaction publishes the files in sequence: each file
  atomically, all of them together not.

Directories exist through the files in them: ``mkdir`` and ``makedirs`` do nothing, ``rmdir``
refuses to remove a directory with files. An error with the words "nothing was changed" is exact,
and an error after an unknown outcome says that the outcome is unknown.
"""

from ares.filesystem.bucket_system import AresBucketFileSystem
from ares.filesystem.system import AresFileSystem

__all__ = ["AresBucketFileSystem", "AresFileSystem"]
