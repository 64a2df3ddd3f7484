"""The bench: ares beside other stores under the same load, growth of ares, and cost of moving data.

    make bench          # or .venv/bin/python -m experiments.bench --help
    make bench-quick
    make bench-scale    # .venv/bin/python -m experiments.bench.scale --help
    make bench-moving   # .venv/bin/python -m experiments.bench.moving --help

All stores of a comparison run on the same machine in the same run. ``workload`` defines the
requests and ``values`` the allowed results of a read. ``peers`` starts the stores. ``generator`` is
a process that runs clients, and ``load`` runs several generators at once. ``points`` takes turns.
``figures`` makes medians and ratios of the measurements, and ``text`` shows them. ``bench_files``
writes them as runs, from which `ares-cli results` makes the page. ``goals`` has the goals of the
product, and ``performance_page`` the page of all goals. ``apart`` delays all packets of a run.
"""
