"""Programs that test ares: the simulator, torture of real processes, fuzzing, judges of histories."""
