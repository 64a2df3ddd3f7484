"""The bench: ares beside other stores on one machine, under the same load, in one run; how ares grows; and what it costs to move data.

    make bench          # or .venv/bin/python -m experiments.bench --help
    make bench-quick
    make bench-scale    # .venv/bin/python -m experiments.bench.scale --help
    make bench-moving   # .venv/bin/python -m experiments.bench.moving --help

``workload`` says what is asked and ``values`` what a read may return; ``peers`` starts the stores; ``generator`` is a process that carries clients,
and ``load`` runs several of them at once; ``points`` and ``faults`` take turns; ``figures`` makes medians and ratios of what came of it, and ``text``
shows them. ``rounds`` writes them as runs, of which `ares-cli results` makes the page.
"""
