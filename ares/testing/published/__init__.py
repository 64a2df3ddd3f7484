"""The papers' algorithms to the letter: ARES of 2022, ARES II, and their data access primitives.

CoARES and CoARESF stand over both, by the papers' sentences: no algorithm of theirs is printed.

For judging the papers' claims, and for nothing else: ARES II as printed can lose a completed write,
and EC-DAP with more than delta writers can go back (docs/piggyback-counterexample.md). Only tests,
the simulator and experiments import this package. Servers answer QUERY-LIST only where the cluster
file says ``published = true``, which ``ares-cli init`` never writes.

Names and line numbers are those of ARES II, Alg. 1 to 5; the numbers stand beside the lines.
Struck-out lines, and the lines of ARES of 2022, are in ``ares_2022.py``. The servers' lines are
functions; a running server answers the same, except after gc-config.

| Alg. | file::function |
|---|---|
| 1:1-6, 25-30 | ares_2022.py::AresClient.__init__ |
| 1:7, 16, 24; 1:31, 47-48 | ares_2022.py::AresClient.write; ares_2022.py::AresClient.read |
| 1:8-15; 1:32-39 | ares2.py::Ares2Client.ask_tags; ares2.py::Ares2Client.ask_data |
| 1:17-23, 40-46 | ares2.py::Ares2Client.put |
| 2:1-17 | ares_2022.py::AresClient.find_next_config |
| 2:18-26 | ares_2022.py::AresClient.read_config |
| 2:27-32; 2:33-36 | ares_2022.py::AresClient.get_next_config; ares_2022.py::AresClient.put_config |
| 2:37-46 | ares2.py::Ares2Client.gc_config |
| 3:1-8; 3:9-22 | data_access.py::PublishedDap.get_tag; ec_dap.py::EcDap.get_data |
| 3:23-31 | data_access.py::PublishedDap.put_data |
| 4:1-3; 4:4-43 | alg4.py::beginning; alg4.py::respond |
| 5:1-5; 5:6-13 | ares_2022.py::AresClient.__init__; ares_2022.py::AresClient.reconfig |
| 5:14-22; 5:23-36 | ares_2022.py::AresClient.add_config; ares_2022.py::AresClient.update_config |
| 5:37-42 | ares_2022.py::AresClient.finalize_config |
"""
