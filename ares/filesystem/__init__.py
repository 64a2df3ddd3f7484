"""``ares://`` for programs that know fsspec (pandas, pyarrow, dask and others): files of a cluster, each put whole.

    fsspec.open("ares://reports/2024.csv", "rb", cluster="cluster.toml", domain="reports")

Which call gives which guarantee:

- A *put* is everything that writes content: ``open`` for writing (when it is closed), ``pipe_file``, ``put_file``, ``cp_file``, ``touch``. It
  replaces the file as a whole and atomically (ares/fragment/replace.py); a reader finds one put or another. Of puts at the same time one
  stands, and a put that began after another one ended always replaces that one. The file is atomic from then on, whatever it was before.
- ``open`` for reading pins the file as it is at that moment. A put meanwhile does not show; what is pinned stays readable for at least a quarter
  of an hour after it was replaced, and then is an error (ESTALE), never a mixture. It is an error at once when the file was deleted.
- ``cat_file`` is of one put, also a part of a file; ``get_file`` too, and it leaves the local file wholly as it was or wholly new.
- Files that others share block by block (not atomic) are read, too, every block as it was at one moment of ``open``; that is no snapshot of the
  whole (ares/fragment/read.py).
- ``mode="xb"``, ``pipe_file(mode="create")`` and ``"ab"`` refuse to replace what somebody else put meanwhile, except that of two that publish at
  the same time both may believe to be the one (coverability is weak; ares/objects/coverable.py).
- ``info``, ``exists`` and ``size`` are linearizable with the puts of that file. ``ls``, ``find`` and ``glob`` are no snapshot: what is there
  throughout is listed. Nothing is cached.
- ``mv`` copies and then deletes, a transaction publishes one file after the other: each file atomically, all of them together not.

Directories exist through the files in them: ``mkdir`` and ``makedirs`` do nothing, ``rmdir`` refuses when there are files. An error that says
"nothing was changed" means it, and one that does not know says so.
"""

from ares.filesystem.system import AresFileSystem

__all__ = ["AresFileSystem"]
